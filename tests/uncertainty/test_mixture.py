"""Mixtures of stationary fields: against brute force, and by their samples."""

import math

import pytest
import torch

from musigma.networks.joint_head import FieldBank, JointHead, normalised, with_noise
from musigma.types import ImageError
from musigma.uncertainty.consistency import shrink
from musigma.uncertainty.given_input import ROUNDING_VARIANCE, ErrorsGivenInput
from musigma.uncertainty.mixture import (
    NOISE_SHARES,
    MixtureErrors,
    block_covariance,
    log_density,
    noisy_log_density,
    sum_variances,
)
from musigma.uncertainty.quantities import expected_sum, region_weights


def small_bank(fields: int = 5, reach: int = 2) -> FieldBank:
    head = JointHead(4, 3, scale=1, fields=fields, width=2, reach=reach)
    torch.manual_seed(0)
    with torch.no_grad():
        head.raw_filters.add_(0.3 * torch.randn_like(head.raw_filters))
        head.raw_mixing.add_(0.3 * torch.randn_like(head.raw_mixing))
    bank = head.bank()
    return FieldBank(bank.filters.detach(), bank.mixing.detach())


def random_weights(*shape: int) -> torch.Tensor:
    return normalised(torch.randn(1, *shape, generator=torch.Generator().manual_seed(3)))[0]


def mixing_matrix(weights: torch.Tensor, bank: FieldBank) -> torch.Tensor:
    """Return the matrix from all noise to the mixture, ``(C h w, noise)``, by its definition."""
    fields, side = bank.filters.shape[:2]
    reach, channels = side // 2, bank.mixing.shape[1]
    height, width = weights.shape[1:]
    size = (channels, height + 2 * reach, width + 2 * reach)
    columns = []
    for k in range(fields):
        units = torch.eye(math.prod(size)).reshape(-1, *size)
        filtered = torch.nn.functional.conv2d(
            units.flatten(0, 1)[:, None], bank.filters[k].flip(0, 1)[None, None]
        ).reshape(len(units), channels, height, width)
        mixed = torch.einsum("cj,njhw->nchw", bank.mixing[k], filtered)
        columns.append((weights[k] * mixed).flatten(1))
    return torch.cat(columns).T.double()


def test_variances_equal_those_of_the_definition():
    bank, weights = small_bank(), random_weights(5, 6, 5)
    matrix = mixing_matrix(weights, bank)
    covariance = matrix @ matrix.T
    assert torch.allclose(covariance.diagonal(), torch.ones(90).double(), atol=1e-5)
    sums = torch.randn(4, 3, 6, 5, generator=torch.Generator().manual_seed(1))
    flat = sums.flatten(1).double()
    expected = torch.einsum("ni,ij,nj->n", flat, covariance, flat)
    shares = weights.expand(4, -1, -1, -1)
    assert torch.allclose(sum_variances(sums, shares, bank).double(), expected, rtol=1e-4)
    std = torch.rand(3, 6, 5) + 0.1
    errors = MixtureErrors(std, weights, bank)
    assert errors.variance_of(sums[0] / std) == pytest.approx(float(expected[0]), rel=1e-4)


def test_the_covariance_of_a_block_equals_that_of_the_definition():
    bank, weights = small_bank(), random_weights(5, 6, 6)
    matrix = mixing_matrix(weights, bank)
    order = torch.arange(108).reshape(3, 36).T.flatten()  # pixels before channels
    expected = (matrix @ matrix.T)[order][:, order]
    covariance = block_covariance(weights[None], bank, bank.correlations())[0].double()
    assert torch.allclose(covariance, expected, atol=1e-5)
    residual = 0.5 * torch.randn(1, 3, 6, 6, generator=torch.Generator().manual_seed(2))
    normal = torch.distributions.MultivariateNormal(torch.zeros(108).double(), expected)
    values = residual[0].flatten(1).T.flatten().double()
    density = float(log_density(residual, weights[None], bank))
    assert density == pytest.approx(float(normal.log_prob(values)), abs=0.05)


@pytest.mark.parametrize("shape", [(16, 16), (20, 70), (5, 33)])
def test_likelihood_of_any_size_counts_every_value_once(shape):
    bank, std = small_bank(), torch.full((3, *shape), 0.1)
    errors = MixtureErrors(std, random_weights(5, *shape), bank)
    residual = errors.sample(1, torch.Generator().manual_seed(0))[0]
    own = errors.log_likelihood(residual)
    entropy = 0.5 * math.log(2 * math.pi * math.e * 0.01)
    assert own > -entropy  # less is open than for independent errors
    assert own > MixtureErrors(1.3 * std, errors.weights, bank).log_likelihood(residual)
    assert own > MixtureErrors(std / 1.3, errors.weights, bank).log_likelihood(residual)


def test_noise_that_the_input_does_not_show_costs_little_likelihood():
    bank, weights = small_bank(), random_weights(5, 16, 16)[None]
    generator = torch.Generator().manual_seed(4)
    prior = math.log(len(NOISE_SHARES))
    white = torch.randn(1, 3, 16, 16, generator=generator)
    independent = -0.5 * float((white.square() + math.log(2 * math.pi)).sum())
    assert float(log_density(white, weights, bank)) < independent - 10
    assert float(noisy_log_density(white, weights, bank)) >= independent - prior - 1e-3
    errors = MixtureErrors(torch.ones(3, 16, 16), weights[0], bank)
    own = errors.sample(1, generator)
    without = float(log_density(own, weights, bank))
    assert without - prior - 1e-2 <= float(noisy_log_density(own, weights, bank)) < without + 1


def test_the_density_with_noise_is_the_mean_of_the_densities():
    bank, weights = small_bank(), random_weights(5, 4, 4)[None]
    values = torch.randn(1, 3, 4, 4, generator=torch.Generator().manual_seed(5))
    covariance = block_covariance(weights, bank, bank.correlations())[0].double()
    flat = values[0].flatten(1).T.flatten().double()
    densities = [
        torch.distributions.MultivariateNormal(
            torch.zeros(48).double(), (1 - share) * covariance + share * torch.eye(48).double()
        )
        .log_prob(flat)
        .exp()
        for share in NOISE_SHARES
    ]
    expected = float(torch.stack(densities).mean().log())
    assert float(noisy_log_density(values, weights, bank)) == pytest.approx(expected, abs=1e-2)


def test_samples_have_the_bars_and_the_variances_of_the_model():
    bank, std = small_bank(), torch.rand(3, 24, 20) + 0.1
    errors = MixtureErrors(std, random_weights(5, 24, 20), bank)
    samples = errors.sample(400, torch.Generator().manual_seed(2))
    ratio = samples.square().mean(0).sqrt() / std
    assert torch.allclose(ratio.mean((1, 2)), torch.ones(3), atol=0.03)
    weights = region_weights((3, 24, 20), (4, 4, 8, 8))
    spread = float((samples * weights).sum((1, 2, 3)).square().mean())
    assert spread == pytest.approx(errors.variance_of(weights), rel=0.35)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ImageError, match="weights"):
        MixtureErrors(torch.ones(3, 8, 8), torch.ones(4, 8, 8), small_bank())
    errors = MixtureErrors(torch.ones(3, 8, 8), random_weights(5, 8, 8), small_bank())
    with pytest.raises(ImageError, match="shape"):
        errors.variance_of(torch.ones(3, 8, 9))


def test_given_the_input_what_is_left_is_hidden_in_it():
    generator = torch.Generator().manual_seed(0)
    errors = MixtureErrors(torch.full((3, 32, 32), 0.1), random_weights(5, 32, 32), small_bank())
    mean = torch.rand(3, 32, 32, generator=generator)
    degraded = shrink(mean[None], 4)[0] + 0.01 * torch.randn(3, 8, 8, generator=generator)
    given = ErrorsGivenInput(errors, mean, degraded, 4)
    samples = mean + given.sample(3, generator)
    assert torch.allclose(shrink(samples, 4), degraded.expand(3, -1, -1, -1), atol=1e-4)
    box = region_weights((3, 32, 32), (8, 8, 16, 16))
    assert given.variance_of(box) < 0.5 * errors.variance_of(box)
    drawn = torch.stack([(box * sample).sum() for sample in given.sample(300, generator)])
    # Samples agree with the input exactly; intervals allow for its rounding, too.
    variance = given.variance_of(box)
    assert float(drawn.var()) == pytest.approx(variance, rel=0.4, abs=ROUNDING_VARIANCE)
    assert float(drawn.mean()) == pytest.approx(expected_sum(given, box), abs=4 * variance**0.5)


def test_samples_given_the_input_keep_the_spread_of_the_bars():
    std = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(1)) / 10 + 0.05
    blob = torch.ones(1, 3, 3) / 3  # a smooth field, which shrinking by 2 shows for the most part
    smooth = FieldBank(blob, torch.eye(3)[None])
    errors = MixtureErrors(std, torch.ones(1, 32, 32), smooth)
    mean = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(2))
    given = ErrorsGivenInput(errors, mean, shrink(mean[None], 2)[0], 2)
    drawn = given.sample(40, torch.Generator().manual_seed(3)) - given.shift
    assert float((drawn / std).square().mean().sqrt()) == pytest.approx(1, abs=0.03)
    assert float(shrink(drawn, 2).abs().max()) < 1e-4


def test_the_gradient_of_the_log_density_is_that_of_pytorch():
    bank, weights = small_bank(), random_weights(5, 4, 4).double()[None]
    bank = FieldBank(*(part.double() for part in bank))
    values = torch.randn(1, 3, 4, 4, generator=torch.Generator().manual_seed(2)).double()
    weights.requires_grad_()
    assert torch.autograd.gradcheck(lambda w: log_density(values, w, bank), weights)


def test_noise_in_the_truth_makes_small_errors_independent_and_keeps_every_bar():
    weights = random_weights(5, 4, 6)[None]
    std = torch.full((1, 3, 4, 6), 1 / 255)
    std[..., 3:] = 100 / 255
    noisy = with_noise(weights, std, noise_std=1 / 255)
    assert torch.allclose(noisy.square().sum(1), torch.ones(1, 4, 6), atol=1e-5)
    assert torch.allclose(noisy[:, 0, :, :3], torch.ones(1, 4, 3))
    assert torch.allclose(noisy[..., 3:], weights[..., 3:], atol=2e-2)
