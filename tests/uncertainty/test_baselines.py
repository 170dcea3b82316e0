"""Every baseline is a network with a sigma: values by hand, tiles as the whole, the same twice."""

import pytest
import torch

from musigma.networks import create, mean_only, with_sigma
from musigma.prediction.engines import TorchEngine
from musigma.prediction.predict import predict
from musigma.prediction.self_ensemble import SelfEnsemble
from musigma.types import ConfigError, Prediction
from musigma.uncertainty.baselines import (
    Ensemble,
    MeanOverViews,
    SpreadOverViews,
    WithConstantSigma,
    mc_dropout,
    mixture,
)


def values(*numbers):
    return torch.tensor(numbers).view(1, 1, 1, -1)


def picture(height=37, width=31):
    return torch.rand(1, 3, height, width, generator=torch.Generator().manual_seed(0))


def edsr(seed=0, *, sigma=True, **settings):
    torch.manual_seed(seed)
    network = create("edsr-baseline", scale=2, num_blocks=1, width=8, **settings)
    return (with_sigma(network, width=8, depth=1) if sigma else network).eval()


BASELINES = {
    "constant": lambda: WithConstantSigma(edsr(), 0.02),
    "tta": lambda: SpreadOverViews(edsr()),
    "self-ensemble": lambda: MeanOverViews(edsr()),
    "ensemble": lambda: Ensemble([edsr(0), edsr(1), edsr(2, sigma=False)]),
    "mc-dropout": lambda: mc_dropout(edsr(dropout=0.25), num_samples=4),
}


def test_a_mixture_by_hand():
    """Means 1 and 3 with stds 2 and 4: mean 2, variance (4 + 16) / 2 + 1 = 11."""
    prediction = mixture(
        [Prediction(values(1.0), values(2.0)), Prediction(values(3.0), values(4.0))]
    )
    assert prediction.mean.item() == 2
    assert prediction.sigma.item() == pytest.approx(11**0.5)


def test_a_mixture_of_many_is_the_population_variance_of_torch():
    generator = torch.Generator().manual_seed(0)
    # A spread of 1e-4 round 0.5: the difference of two sums of squares would not see it.
    means = 0.5 + 1e-4 * torch.randn(5, 1, 3, 7, 5, generator=generator)
    sigmas = 1e-4 * torch.rand(means.shape, generator=generator)
    prediction = mixture(map(Prediction, means, sigmas))
    expected = means.double().var(0, correction=0) + sigmas.double().square().mean(0)
    torch.testing.assert_close(prediction.sigma.double(), expected.sqrt(), rtol=2e-3, atol=0)
    torch.testing.assert_close(prediction.mean, means.mean(0))


def test_equal_predictions_have_no_spread():
    prediction = mixture([Prediction(values(0.1, 0.7))] * 3)
    assert torch.equal(prediction.sigma, values(0.0, 0.0))


def test_a_constant_keeps_the_mean():
    network = edsr()
    mean, sigma = WithConstantSigma(network, 0.03)(picture())
    assert torch.equal(mean, network(picture()).mean)
    assert torch.equal(sigma, torch.full_like(mean, 0.03))
    with pytest.raises(ConfigError, match="positive, not 0"):
        WithConstantSigma(network, 0.0)


def test_the_mean_over_views_is_the_self_ensemble():
    network, degraded = edsr(), picture(13, 11)
    prediction, expected = (
        MeanOverViews(network)(degraded),
        SelfEnsemble(TorchEngine(network))(degraded),
    )
    assert torch.equal(prediction.mean, expected.mean)
    assert torch.equal(prediction.sigma, expected.sigma)
    with pytest.raises(ConfigError, match="no sigma to average"):
        MeanOverViews(mean_only(network))


def test_the_spread_over_views_is_that_of_eight_results():
    network = edsr()
    degraded, base = picture(13, 11), mean_only(network)
    views = []
    for turns in range(4):
        for flipped in (False, True):
            view = degraded.rot90(turns, (2, 3))
            restored = base(view.flip(3) if flipped else view).mean
            views.append((restored.flip(3) if flipped else restored).rot90(-turns, (2, 3)))
    stack = torch.stack(views).double()
    mean, sigma = SpreadOverViews(network)(degraded)
    torch.testing.assert_close(mean.double(), stack.mean(0), rtol=0, atol=1e-6)
    torch.testing.assert_close(sigma.double(), stack.std(0, correction=0), rtol=1e-3, atol=1e-6)


def test_networks_that_treat_all_views_alike_have_no_spread():
    """Bicubic does, but for rounding: this baseline knows nothing of their error."""
    assert SpreadOverViews(create("bicubic", scale=2))(picture()).sigma.max() < 1e-5


def test_an_ensemble_sees_as_far_as_its_farthest_member():
    small, large = edsr(), create("edsr-baseline", scale=2, num_blocks=3)
    assert (
        Ensemble([small, large]).receptive_radius == large.receptive_radius > small.receptive_radius
    )
    blind = create("rcan", scale=2, num_groups=1, num_blocks=1)
    assert blind.receptive_radius is None
    assert Ensemble([small, blind]).receptive_radius is None
    drunets = [create("drunet", scale=1, num_blocks=1, widths=(8, 8, 8, 8)) for _ in range(2)]
    assert Ensemble(drunets).size_multiple == drunets[0].size_multiple > 1


def test_members_of_an_ensemble_fit_together():
    network = edsr()
    with pytest.raises(ConfigError, match=r"\(2, 3, 3\) and \(3, 3, 3\)"):
        Ensemble([network, create("edsr-baseline", scale=3)])
    with pytest.raises(ConfigError, match="two members or more, got 1"):
        Ensemble([network])


def test_draws_of_dropout_are_made_once():
    network = edsr(dropout=0.25, sigma=False)
    baseline, again = (mc_dropout(network, num_samples=4) for _ in range(2))
    for ours, theirs in zip(baseline(picture()), again(picture()), strict=True):
        assert torch.equal(ours, theirs)
    assert baseline.num_passes == 4
    assert baseline(picture()).sigma.min() > 0
    other = mc_dropout(network, num_samples=4, seed=1)
    assert not torch.equal(baseline(picture()).mean, other(picture()).mean)


@pytest.mark.parametrize("name", BASELINES)
def test_tiles_give_the_whole(name):
    baseline = BASELINES[name]()
    image = picture(37, 211)
    # With so little memory tiles read their border of 6 pixels and no more.
    tiled, whole = predict(baseline, image, memory=2**19), predict(baseline, image)
    for ours, theirs in zip(tiled, whole, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", BASELINES)
def test_half_precision_runs_it_too(name):
    baseline, image = BASELINES[name](), picture()
    mean, sigma = predict(baseline, image, engine=TorchEngine(baseline, precision="bf16"))
    expected = predict(baseline, image)
    torch.testing.assert_close(mean, expected.mean, rtol=0, atol=0.05)
    assert mean.dtype == sigma.dtype == torch.float32


def test_a_grey_picture_comes_back_grey():
    mean, sigma = predict(BASELINES["tta"](), picture()[:, :1])
    assert mean.shape == sigma.shape == (1, 1, 74, 62)
