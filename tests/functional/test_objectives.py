"""The five facts about the paper's objectives, and the checks that every objective goes through."""

import math
from functools import partial

import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

from musigma.functional import objectives as F  # noqa: N812
from musigma.types import ConfigError, ImageError

SHAPE = (2, 3, 37, 31)
FLOOR = 1 / (255 * math.sqrt(12))

# Every objective with the pictures it takes; settings without a default are filled in.
MEAN_TARGET = {
    "l1": F.l1,
    "l2": F.l2,
    "charbonnier": F.charbonnier,
    "expected_l1": F.expected_l1,
    "expected_l1, all pixels": partial(F.expected_l1, mask=False, samples=3),
    "expected_l1, laplace": partial(F.expected_l1, distribution="laplace"),
    "expected_l1, uniform": partial(F.expected_l1, distribution="uniform"),
    "expected_l1_closed_form": F.expected_l1_closed_form,
    "hard_l1": F.hard_l1,
    "fixed_sigma": partial(F.fixed_sigma, noise_std=0.1),
    "fourier": F.fourier,
    "edge": F.edge,
    "distillation": F.distillation,
}
MEAN_TARGET_SIGMA = {
    "learned_sigma": F.learned_sigma,
    "sigma_l1": F.sigma_l1,
    "sigma_l1, attached": partial(F.sigma_l1, detach=False),
    "sigma_l2": F.sigma_l2,
    "sigma_quantile": partial(F.sigma_quantile, level=0.9),
    "sigma_variance": F.sigma_variance,
    "laplace_nll": F.laplace_nll,
    "gaussian_nll": F.gaussian_nll,
    "beta_nll": F.beta_nll,
    "udl_step1": F.udl_step1,
    "udl_step2": F.udl_step2,
}
RANDOM = ("expected_l1", "learned_sigma", "fixed_sigma")
# Which pictures, by position, get no gradient by design.
DETACHED = {
    "sigma_l1": (0, 1),
    "sigma_l2": (0, 1),
    "sigma_quantile": (0, 1),
    "sigma_variance": (0,),
    "distillation": (1,),
    "udl_step2": (2,),
}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pictures(dtype: torch.dtype = torch.float32, shape: tuple[int, ...] = SHAPE) -> list[Tensor]:
    """Mean, target and sigma."""
    return [torch.rand(shape, generator=seeded(s)).to(dtype) for s in range(3)]


def inputs(name: str, given: list[Tensor]) -> list[Tensor]:
    return given if name in MEAN_TARGET_SIGMA else given[:2]


def call(name: str, given: list[Tensor]) -> Tensor:
    function = (MEAN_TARGET | MEAN_TARGET_SIGMA)[name]
    if name.startswith(RANDOM) and "closed" not in name:
        function = partial(function, generator=seeded())
    return function(*inputs(name, given))


every_objective = pytest.mark.parametrize("name", [*MEAN_TARGET, *MEAN_TARGET_SIGMA])


def gradient_of_expected_l1(error: Tensor, **settings) -> Tensor:
    mean = error.clone().requires_grad_()
    F.expected_l1(mean, torch.zeros_like(mean), **settings).sum().backward()
    assert mean.grad is not None
    return mean.grad


# Fact 1, the lemma.


def test_gradient_points_as_that_of_l1_for_every_draw():
    error = torch.randn(20_000, dtype=torch.float64, generator=seeded(1))
    gradient = gradient_of_expected_l1(error, mask=False, generator=seeded(2))
    z = torch.randn(20_000, dtype=torch.float64, generator=seeded(2))
    # For mean < target it is -|1 - z|, which is -|1 + z| in law but not draw by draw.
    torch.testing.assert_close(gradient, error.sign() * (1 + error.sign() * z).abs())
    assert (gradient * error > 0).all()


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_gradient_has_the_mean_and_variance_of_the_lemma(sign):
    num = 1_000_000
    gradient = gradient_of_expected_l1(
        torch.full((num,), sign, dtype=torch.float64), mask=False, generator=seeded(3)
    )
    mean, variance = 1.166631, 0.63897  # SCIENCE: Phi(1) - Phi(-1) + 2 phi(1), and 2 - mean^2
    fourth = (gradient - gradient.mean()).pow(4).mean().item()
    # Four standard errors: 0.0032 for the mean, about 0.0045 for the variance.
    assert gradient.mean().item() * sign == pytest.approx(mean, abs=4 * math.sqrt(variance / num))
    error_bar = 4 * math.sqrt((fourth - variance**2) / num)
    assert gradient.var().item() == pytest.approx(variance, abs=error_bar)


each_distribution = pytest.mark.parametrize(
    ("distribution", "reference"),
    [("normal", stats.norm()), ("laplace", stats.laplace()), ("uniform", stats.uniform(-1, 2))],
)


@each_distribution
def test_gain_is_the_integral_of_the_density(distribution, reference):
    def integrand(z: float) -> float:
        return abs(1 + z) * reference.pdf(z)

    pieces = [(-40, -1), (-1, 0), (0, 1), (1, 40)]  # split at the kinks
    gain = sum(integrate.quad(integrand, *piece)[0] for piece in pieces)
    assert F.expected_gain(distribution) == pytest.approx(gain, abs=1e-7)


@each_distribution
def test_draws_have_the_distribution_they_are_named_after(distribution, reference):
    ones = torch.ones(50_000, dtype=torch.float64)
    sizes = F.expected_l1(
        ones, torch.zeros_like(ones), mask=False, distribution=distribution, generator=seeded(4)
    )

    def cdf(size):  # of |1 + z|
        return reference.cdf(size - 1) - reference.cdf(-size - 1)

    assert stats.kstest(sizes.numpy(), cdf).pvalue > 0.01


def test_laplace_draws_are_finite_where_the_uniform_draw_is_zero(monkeypatch):
    monkeypatch.setattr(torch, "rand", lambda shape, **_: torch.zeros(shape))
    value = F.expected_l1(torch.ones(3), torch.zeros(3), mask=False, distribution="laplace")
    assert value.isfinite().all()


# Fact 2, the closed form.


@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize("distribution", ["normal", "laplace", "uniform"])
def test_closed_form_is_the_mean_over_draws(mask, distribution):
    mean, target, _ = pictures(shape=(1, 1, 5, 7))
    settings = {"mask": mask, "distribution": distribution}
    generator = seeded(5)
    parts = [
        F.expected_l1(mean, target, samples=1000, generator=generator, **settings)
        for _ in range(100)
    ]
    drawn = torch.stack(parts).mean(0)
    exact = F.expected_l1_closed_form(mean, target, **settings)
    # std of |1 + z| is at most 1.06 (Laplace): five standard errors, relative to |e|.
    torch.testing.assert_close(drawn, exact, rtol=5 * 1.07 / math.sqrt(100_000), atol=0)


def test_only_pixels_above_the_batch_mean_are_hard():
    mean, target = torch.tensor([[0.1, 0.2], [0.3, 0.8]]), torch.zeros(2, 2)  # mean |e| is 0.35
    weighted = F.expected_l1_closed_form(mean, target)
    torch.testing.assert_close(weighted, torch.tensor([[0.1, 0.2], [0.3, 0.8 * 1.166631]]))
    drawn = F.expected_l1(mean, target, generator=seeded())
    assert torch.equal(drawn.flatten()[:3], mean.flatten()[:3])
    assert drawn[1, 1] != mean[1, 1]


# Fact 3, Jensen.


@pytest.mark.parametrize("sigma", [0.0, 0.05, 0.1, 1.0])
def test_a_learned_sigma_only_adds_to_the_loss(sigma):
    num, error = 200_000, 0.1
    mean = torch.full((num,), error, dtype=torch.float64)
    value = F.learned_sigma(
        mean, torch.zeros_like(mean), torch.full_like(mean, sigma), generator=seeded(6)
    ).mean()
    exact = stats.foldnorm.mean(error / sigma, scale=sigma) if sigma else error
    assert value.item() == pytest.approx(exact, abs=4 * sigma / math.sqrt(num) + 1e-12)
    assert exact == error if sigma == 0 else exact > error


# Fact 4, the naive setting.


@pytest.mark.parametrize("error", [0.01, 0.1, 0.5])
def test_naive_setting_is_flat_at_its_minimum_and_convex_up_to_twice_it(error):
    target = torch.zeros(1, dtype=torch.float64)
    mean = torch.full_like(target, error)

    def slopes(sigma: float) -> tuple[float, float]:
        s = torch.full_like(target, sigma).requires_grad_()
        (first,) = torch.autograd.grad(
            F.laplace_nll(mean, target, s, floor=1e-9).sum(), s, create_graph=True
        )
        (second,) = torch.autograd.grad(first.sum(), s)
        return first.item(), second.item()

    assert slopes(error)[0] == pytest.approx(0, abs=1e-9)
    assert slopes(0.9 * error)[0] < 0 < slopes(1.1 * error)[0]
    assert all(slopes(error * k / 100)[1] > 0 for k in range(1, 200))
    assert slopes(2 * error)[1] == pytest.approx(0, abs=1e-9 / error**2)
    assert slopes(2.01 * error)[1] < 0


# Fact 5, sigma is a conditional median.


@pytest.mark.parametrize(
    ("residuals", "factor", "cost"),
    [(stats.norm(), 1.4826, 0.205), (stats.laplace(), 2.04, 0.868)],
)
def test_sigma_is_the_median_and_too_small_for_a_standard_deviation(residuals, factor, cost):
    num = 20_001
    levels = (torch.arange(num, dtype=torch.float64) + 0.5) / num
    error = torch.from_numpy(residuals.ppf(levels.numpy()))
    zero = torch.zeros_like(error)

    def mean_over(function, sigma: float) -> float:
        return function(error, zero, torch.full_like(error, sigma)).mean().item()

    median, std = error.abs().median().item(), residuals.std()
    assert std / median == pytest.approx(factor, abs=5e-3)
    best = mean_over(F.sigma_l1, median)
    assert best < min(mean_over(F.sigma_l1, median * k) for k in (0.98, 1.02))
    lost = mean_over(F.gaussian_nll, median) - mean_over(F.gaussian_nll, std)
    assert lost == pytest.approx(cost, abs=2e-3)  # the far tail is cut off by the grid


def test_sigma_l2_is_least_at_the_mean():
    error = torch.linspace(0, 1, 10_001, dtype=torch.float64) ** 2
    sigmas = torch.linspace(0.2, 0.5, 31, dtype=torch.float64)
    nought = torch.zeros_like(error)
    values = [F.sigma_l2(error, nought, sigma.expand_as(error)).mean() for sigma in sigmas]
    assert sigmas[torch.stack(values).argmin()].item() == pytest.approx(1 / 3, abs=0.005)


def test_sigma_quantile_is_least_at_the_quantile():
    error = torch.linspace(0, 1, 10_001, dtype=torch.float64)
    sigmas = torch.linspace(0.5, 1, 51, dtype=torch.float64)
    values = [
        F.sigma_quantile(error, torch.zeros_like(error), s.expand_as(error), level=0.9).mean()
        for s in sigmas
    ]
    assert sigmas[torch.stack(values).argmin()].item() == pytest.approx(0.9)


def test_sigma_variance_is_least_at_the_error_to_the_clean_target():
    """The noise of the target, constant and growing with the signal, is not part of sigma."""
    clean = torch.rand(200_000, dtype=torch.float64, generator=seeded(0))
    draw = partial(torch.randn, clean.shape, dtype=torch.float64)
    mean = clean + 0.05 * draw(generator=seeded(1))
    noise = (0.1**2 + 0.02 * clean).sqrt() * draw(generator=seeded(2))
    sigmas = torch.linspace(0.02, 0.08, 61, dtype=torch.float64)
    values = [
        F.sigma_variance(
            mean, clean + noise, s.expand_as(mean), noise_std=0.1, noise_gain=0.02
        ).mean()
        for s in sigmas
    ]
    assert sigmas[torch.stack(values).argmin()].item() == pytest.approx(0.05, abs=0.004)


# Values.


@pytest.mark.parametrize(
    ("name", "value"),
    [  # by hand for mean 0.75, target 0.5, sigma 0.5
        ("l1", 0.25),
        ("l2", 0.0625),
        ("charbonnier", math.sqrt(0.0625 + 1e-6)),
        ("distillation", 0.25),
        ("edge", 0.0),
        ("sigma_l1", 0.25),
        ("sigma_l2", 0.0625),
        ("sigma_quantile", 0.1 * 0.25),
        ("sigma_variance", (0.25 - 0.0625) ** 2),
        ("laplace_nll", math.log(0.5) + 0.5),
        ("gaussian_nll", math.log(0.5) + 0.125),
        ("beta_nll", 0.5 * (math.log(0.5) + 0.125)),
        ("udl_step1", 0.5 + 2 * math.log(0.5)),
        ("udl_step2", 0.0),
    ],
)
def test_objectives_by_hand(name, value):
    given = [torch.full((1, 1, 2, 3), v) for v in (0.75, 0.5, 0.5)]
    torch.testing.assert_close(call(name, given), torch.full((1, 1, 2, 3), value))


def test_random_values_by_the_formula():
    mean, target, sigma = pictures()
    z = torch.randn(SHAPE, generator=seeded())
    error = mean - target
    for name, expected in {
        "learned_sigma": target - (mean + sigma * z),
        "fixed_sigma": target + 0.1 * z - mean,
        "expected_l1": error + error.abs() * z * (error.abs() > error.abs().mean()),
    }.items():
        torch.testing.assert_close(call(name, [mean, target, sigma]), expected.abs())


def test_edge_objective_by_hand():
    mean = torch.tensor([[0.0, 1.0, 1.0], [0.0, 0.0, 3.0]])
    expected = torch.tensor([[1.0 + 0, 0.0 + 1, 0.0 + 2], [0.0, 3.0, 0.0]])
    assert torch.equal(F.edge(mean, torch.zeros_like(mean)), expected)
    assert torch.equal(F.edge(mean + 0.5, torch.zeros_like(mean)), expected)


def test_udl_step2_weighs_by_the_distance_to_the_least_log_sigma_of_each_channel():
    sigma = torch.tensor([[[[0.1, 0.2]], [[0.5, 0.05]]]])
    mean, target = torch.ones(1, 2, 1, 2), torch.zeros(1, 2, 1, 2)
    expected = torch.tensor([[[[0, math.log(2)]], [[math.log(10), 0]]]])
    torch.testing.assert_close(F.udl_step2(mean, target, sigma), expected)
    torch.testing.assert_close(F.udl_step2(mean, target, sigma, offset=1.0), expected + 1)


@pytest.mark.parametrize(
    ("function", "dropped"),
    [(F.laplace_nll, math.log(2)), (F.gaussian_nll, math.log(2 * math.pi) / 2)],
)
def test_likelihoods_integrate_to_one_with_the_dropped_constant(function, dropped):
    target = torch.linspace(-5, 5, 200_001, dtype=torch.float64)
    zero, sigma = torch.zeros_like(target), torch.full_like(target, 0.2)
    density = torch.exp(-function(zero, target, sigma) - dropped)
    assert torch.trapezoid(density, target).item() == pytest.approx(1, abs=1e-6)


def test_beta_nll_lies_between_gaussian_nll_and_half_of_l2():
    mean, target, sigma = pictures(torch.float64)
    torch.testing.assert_close(
        F.beta_nll(mean, target, sigma, beta=0), F.gaussian_nll(mean, target, sigma)
    )
    mean.requires_grad_()
    (by_beta,) = torch.autograd.grad(F.beta_nll(mean, target, sigma, beta=1).sum(), mean)
    (by_l2,) = torch.autograd.grad(F.l2(mean, target).sum(), mean)
    torch.testing.assert_close(by_beta, by_l2 / 2)


def test_udl_step1_is_least_at_half_the_error():
    error = torch.full((1,), 0.3, dtype=torch.float64)
    sigma = (error / 2).requires_grad_()
    F.udl_step1(error, torch.zeros_like(error), sigma).backward()
    assert sigma.grad is not None
    assert sigma.grad.item() == pytest.approx(0, abs=1e-9)


# Gradients.


@every_objective
def test_gradcheck(name):
    given = inputs(name, pictures(torch.float64, shape=(1, 2, 4, 3)))
    # Finite differences would see what is detached; the weight of beta_nll is, its sigma is not.
    fixed = {**DETACHED, "beta_nll": (2,)}.get(name, ())
    for position, picture in enumerate(given):
        picture.requires_grad_(position not in fixed)

    def function(*tensors: Tensor) -> Tensor:
        return call(name, list(tensors))

    assert torch.autograd.gradcheck(function, given)


def gradients(name: str, given: list[Tensor]) -> list[Tensor | None]:
    given = [p.detach().requires_grad_() for p in inputs(name, given)]
    call(name, given).mean().backward()
    return [p.grad for p in given]


@every_objective
def test_what_is_detached_gets_no_gradient_and_all_else_does(name):
    found = gradients(name, pictures())
    fixed = DETACHED.get(name, ())
    assert [g is None for g in found] == [position in fixed for position in range(len(found))]


def test_detached_parts_leave_the_right_gradient():
    mean, target, sigma = pictures(torch.float64)
    sigma = sigma.clamp_min(0.01)  # above the floor
    error, num = mean - target, mean.numel()
    by_sigma_l1 = gradients("sigma_l1", [mean, target, sigma])[2]
    torch.testing.assert_close(by_sigma_l1, (sigma - error.abs()).sign() / num)
    by_beta = gradients("beta_nll", [mean, target, sigma])
    torch.testing.assert_close(by_beta[0], sigma * error / sigma**2 / num)
    torch.testing.assert_close(by_beta[2], sigma * (1 / sigma - error**2 / sigma**3) / num)


@pytest.mark.parametrize("name", ["laplace_nll", "gaussian_nll", "beta_nll", "udl_step1"])
@pytest.mark.parametrize("sigma", [0.0, 1e-12])
def test_a_sigma_below_the_floor_counts_as_the_floor_but_can_rise(name, sigma):
    mean, target = torch.full((4,), 0.1), torch.zeros(4)
    low, at = torch.full((4,), sigma), torch.full((4,), FLOOR)
    torch.testing.assert_close(call(name, [mean, target, low]), call(name, [mean, target, at]))
    raised = gradients(name, [mean, target, low])[2]
    assert raised is not None
    assert (raised < 0).all()


@every_objective
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("sigma", [0.0, 1e-7, 1.0])
def test_half_precision_under_autocast_stays_finite(name, dtype, sigma):
    mean, target, _ = pictures(dtype)
    # Errors up to 0.5: the float16 gradient of gaussian_nll at the floor, e^2 / sigma^3 over the
    # number of values, must stay below 65504.
    given = inputs(name, [mean / 2, target / 2, torch.full(SHAPE, sigma, dtype=dtype)])
    for picture in given:
        picture.requires_grad_()
    with torch.autocast("cpu", dtype=dtype):
        value = call(name, given)
    assert (value.dtype, value.shape) == (torch.float32, SHAPE)
    assert value.isfinite().all()
    value.mean().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in given)


# The rest.


@every_objective
def test_float64_stays(name):
    assert call(name, pictures(torch.float64)).dtype == torch.float64


@pytest.mark.parametrize("name", RANDOM)
def test_the_generator_decides(name):
    given = pictures()
    function = (MEAN_TARGET | MEAN_TARGET_SIGMA)[name]
    first, same, other = (
        function(*inputs(name, given), generator=seeded(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_without_a_generator_the_global_stream_is_used():
    mean, target, _ = pictures()
    with torch.random.fork_rng():
        torch.manual_seed(7)
        by_stream = F.expected_l1(mean, target)
    assert torch.equal(by_stream, F.expected_l1(mean, target, generator=seeded(7)))


def test_what_would_broadcast_is_refused():
    with pytest.raises(ImageError, match=r"one shape, not \(2, 3, 37, 31\), \(2, 1, 37, 31\)"):
        F.l1(torch.zeros(SHAPE), torch.zeros(2, 1, 37, 31))


def test_bytes_are_refused():
    with pytest.raises(ImageError, match=r"torch\.uint8; divide 8-bit images by 255"):
        F.l1(torch.zeros(SHAPE), torch.zeros(SHAPE, dtype=torch.uint8))


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("charbonnier", {"epsilon": 0.0}, "epsilon must be above 0 and finite, got 0.0"),
        ("expected_l1", {"samples": 0}, "samples must be from 1 to 1024, got 0"),
        ("expected_l1", {"distribution": "norml"}, "called 'norml'; did you mean 'normal'"),
        ("fixed_sigma", {"noise_std": -1.0}, "0 or more and finite, got -1.0"),
        ("sigma_quantile", {"level": 1.0}, "between 0 and 1, got 1.0"),
        ("beta_nll", {"beta": 2.0}, "beta must be from 0 to 1, got 2.0"),
        ("laplace_nll", {"floor": 0.0}, "floor must be above 0 and finite, got 0.0"),
        ("charbonnier", {"epsilon": math.inf}, "epsilon must be above 0 and finite, got inf"),
        ("charbonnier", {"epsilon": math.nan}, "epsilon must be above 0 and finite, got nan"),
        ("fixed_sigma", {"noise_std": math.inf}, "noise_std must be 0 or more and finite"),
        ("udl_step1", {"floor": math.inf}, "floor must be above 0 and finite, got inf"),
        ("udl_step2", {"offset": math.nan}, "offset must be finite, got nan"),
    ],
)
def test_settings_out_of_range_are_refused(name, settings, message):
    function = getattr(F, name)
    with pytest.raises(ConfigError, match=message):
        function(*inputs(name, pictures()), **settings)


def test_the_mask_takes_the_threshold_of_the_whole_batch():
    mean, target, _ = pictures()
    threshold = F.mean_absolute_error(mean, target)
    for function in (F.expected_l1_closed_form, partial(F.expected_l1, generator=None)):
        torch.manual_seed(0)
        whole = function(mean, target)
        torch.manual_seed(0)
        assert torch.equal(function(mean, target, threshold=threshold), whole)
    halves = [
        F.expected_l1_closed_form(mean[n : n + 1], target[n : n + 1], threshold=threshold)
        for n in range(2)
    ]
    assert torch.equal(torch.cat(halves), F.expected_l1_closed_form(mean, target))


def test_hard_pixels_count_as_much_as_the_gain_says():
    mean, target = torch.tensor([[0.1, 0.2, 0.6]]), torch.zeros(1, 3)
    # The mean of |e| is 0.3, so that the last pixel alone is hard.
    expected = torch.tensor([[0.1, 0.2, 1.8]])
    torch.testing.assert_close(F.hard_l1(mean, target, gain=3.0), expected)
    closed = F.expected_l1_closed_form(mean, target)
    torch.testing.assert_close(F.hard_l1(mean, target, gain=F.expected_gain()), closed)
    with pytest.raises(ConfigError, match="gain must be above 0 and finite"):
        F.hard_l1(mean, target, gain=0.0)


def test_fourier_is_computed_by_hand():
    """A cosine of two periods over eight pixels has two lines of half its size each."""
    across = torch.cos(2 * math.pi * 2 * torch.arange(8) / 8)
    error = 0.5 * across.expand(1, 1, 4, 8)
    values = F.fourier(error, torch.zeros_like(error))
    # The unitary transform of 4x8 pixels divides sums by sqrt(32); 32 pixels times 0.5 / 2.
    expected = torch.zeros(1, 1, 4, 8)
    expected[..., 0, 2] = expected[..., 0, 6] = 32 * 0.25 / math.sqrt(32) / math.sqrt(2)
    torch.testing.assert_close(values, expected, atol=1e-6, rtol=0)


def test_fourier_of_white_noise_is_as_large_as_l1():
    noise = torch.randn(4, 3, 64, 64, generator=seeded())
    by_frequency = F.fourier(noise, torch.zeros_like(noise)).mean()
    # Re and Im have half of the variance each, and their mean sizes add up.
    torch.testing.assert_close(by_frequency, noise.abs().mean(), rtol=0.01, atol=0)


def test_a_fourier_term_compiles_in_one_graph():
    torch.compiler.reset()
    compiled = torch.compile(F.fourier, fullgraph=True, dynamic=False, backend="aot_eager")
    mean, target = (torch.rand(2, 3, 8, 8, generator=seeded(n)) for n in (1, 2))
    torch.testing.assert_close(compiled(mean, target), F.fourier(mean, target))
