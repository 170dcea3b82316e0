"""Per-image uncertainty numbers against scipy and scikit-image."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from musigma.functional import scores
from musigma.functional.constants import SIGMA_FLOOR
from musigma.types import ConfigError, ImageError

SHAPE = (2, 3, 37, 31)
PER_IMAGE = [
    scores.pll,
    scores.crps,
    scores.sigma_psnr,
    scores.interval_coverage,
]


def random_case(seed):
    """Errors of a spread that changes from pixel to pixel, a wrong sigma, and some zeros in it."""
    rng = np.random.default_rng(seed)
    target = rng.random(SHAPE)
    spread = np.exp(rng.normal(-3.5, 0.8, SHAPE))
    mean = target + spread * rng.standard_normal(SHAPE)
    sigma = spread * np.exp(rng.normal(-0.3, 0.5, SHAPE))
    sigma[rng.random(SHAPE) < 0.02] = 0
    return mean, target, sigma


def test_the_floor_is_the_std_of_rounding_to_8_bits():
    step = 1 / 255
    rounding = stats.uniform(-step / 2, step).std()
    assert rounding == pytest.approx(SIGMA_FLOOR, rel=1e-12)


def test_pll_by_hand():
    # z = 2, sigma = 0.01: -2 + log(100) - log(2 pi) / 2
    image = torch.zeros(1, 1, 1, 1, dtype=torch.float64)
    value = scores.pll(image, image + 0.02, image + 0.01)
    assert value.item() == pytest.approx(-2 + math.log(100) - 0.9189385332046727, abs=1e-12)


def test_crps_by_integration():
    # The definition: the integral of (F(x) - 1{x >= target})^2.
    mean, target, sigma = 0.4, 0.47, 0.05

    def integrand(x):
        return (stats.norm.cdf(x, mean, sigma) - (x >= target)) ** 2

    expected = (
        integrate.quad(integrand, -0.2, target)[0] + integrate.quad(integrand, target, 1.0)[0]
    )
    maps = (torch.full((1, 1, 1, 1), value, dtype=torch.float64) for value in (mean, target, sigma))
    assert scores.crps(*maps).item() == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("seed", range(10))
def test_each_image_equals_its_oracle(seed):
    from skimage.metrics import peak_signal_noise_ratio

    arrays = random_case(seed)
    maps = [torch.from_numpy(array) for array in arrays]
    pll, crps = scores.pll(*maps), scores.crps(*maps)
    psnr, coverage = scores.sigma_psnr(*maps), scores.interval_coverage(*maps)
    for i, (mean, target, sigma) in enumerate(zip(*arrays, strict=True)):
        floored = np.maximum(sigma, SIGMA_FLOOR)
        error = np.abs(target - mean)
        # CRPS = E|X - y| - E|X - X'| / 2: a folded normal mean, and 2 sigma / sqrt(pi).
        folded = stats.foldnorm.mean(error / floored, scale=floored)
        assert pll[i].item() == pytest.approx(stats.norm.logpdf(target, mean, floored).mean())
        assert crps[i].item() == pytest.approx((folded - floored / math.sqrt(math.pi)).mean())
        assert psnr[i].item() == pytest.approx(peak_signal_noise_ratio(error, sigma, data_range=1))
        assert coverage[i].item() == pytest.approx((error <= sigma).mean())


@pytest.mark.parametrize("coverage", [0.5, 0.682689492137, 0.9, 0.99])
def test_normal_factor_equals_scipy(coverage):
    assert scores.normal_factor(coverage) == pytest.approx(stats.norm.interval(coverage)[1])


@pytest.mark.parametrize("function", PER_IMAGE)
def test_single_precision_is_close(function):
    maps = [torch.from_numpy(array) for array in random_case(0)]
    single = function(*(map_.float() for map_ in maps))
    torch.testing.assert_close(single.double(), function(*maps), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("function", PER_IMAGE)
def test_other_shapes_are_refused_not_broadcast(function):
    image = torch.zeros(1, 3, 4, 4)
    with pytest.raises(ImageError, match=r"must share one shape.*\(1, 1, 4, 4\)"):
        function(image, image, image[:, :1])
    with pytest.raises(ImageError, match=r"image\[None\]"):
        function(image[0], image[0], image[0])


@pytest.mark.parametrize("coverage", [0, 1, 90, -0.1, math.nan])
def test_a_coverage_outside_0_and_1_is_refused(coverage):
    with pytest.raises(ConfigError, match="coverage must lie strictly between 0 and 1"):
        scores.normal_factor(coverage)
