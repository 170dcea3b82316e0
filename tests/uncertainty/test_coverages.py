"""Several coverages from one calibration: the fit, the promise of each, the refusal of others."""

import json
import math

import numpy as np
import pytest
import torch

from musigma.functional.scores import interval_coverage, normal_factor
from musigma.types import ConfigError
from musigma.uncertainty.calibration import Calibration
from musigma.uncertainty.conformal import images_needed
from musigma.uncertainty.fitting import HeldOut, fit
from musigma.uncertainty.methods import COVERAGES, METHODS
from musigma.uncertainty.metrics.all_metrics import UncertaintyMetrics

SIGMA = torch.tensor([0.01, 0.02])
NUM_IMAGES = 120


def images_with_errors(generator, num_images, size=(1, 16, 16)):
    """Return mean, target and sigma: Laplace errors, each image with a level of its own."""
    sigma = 0.01 + 0.05 * torch.rand(num_images, *size, generator=generator)
    level = torch.exp(0.3 * torch.randn(num_images, 1, 1, 1, generator=generator))
    uniform = torch.rand(sigma.shape, generator=generator) - 0.5
    error = -level * sigma * uniform.sign() * torch.log1p(-2 * uniform.abs().clamp_max(0.4999999))
    return error, torch.zeros_like(error), sigma


def fitted(generator, num_images, method=METHODS[0], **options):
    held_out = HeldOut()
    held_out.update(*images_with_errors(generator, num_images))
    return fit(held_out, method, coverage=0.9, other_coverages=COVERAGES, **options)


@pytest.fixture(scope="module")
def shares():
    """Return the shares of new images that each of thirty fits covers, by coverage."""
    generator = torch.Generator().manual_seed(1)
    covered = {coverage: [] for coverage in COVERAGES}
    for _ in range(30):
        calibration = fitted(generator, NUM_IMAGES)
        mean, target, sigma = images_with_errors(generator, 20)
        for coverage, values in covered.items():
            half_width = calibration.half_width(sigma, coverage)
            values.append(float(interval_coverage(mean, target, half_width).mean()))
    return covered


@pytest.mark.parametrize("coverage", COVERAGES)
def test_each_coverage_keeps_its_promise_and_little_more(shares, coverage):
    # Conformal risk control: the mean over fits lies between what was asked for and two missed
    # images in n + 1 above it.
    error = np.std(shares[coverage]) / math.sqrt(len(shares[coverage]))
    mean = np.mean(shares[coverage])
    assert coverage - 4 * error <= mean <= coverage + 2 / (NUM_IMAGES + 1) + 4 * error


def test_fitted_factors_follow_the_errors_and_not_a_normal_distribution():
    # Laplace errors: normal intervals are too wide at 50 % and too narrow at 99 %.
    generator = torch.Generator().manual_seed(0)
    calibration = fitted(generator, 400, "pooled-quantile")
    metrics = UncertaintyMetrics(calibration, coverage=0.9)
    metrics.update(*images_with_errors(generator, 400))
    results = metrics.compute()
    assert results["coverage"] == pytest.approx(0.9, abs=0.03)
    for level in (50, 80, 95, 99):
        assert results[f"coverage_{level}"] == pytest.approx(level / 100, abs=0.03)
    assert calibration.factors[0.5] < 0.9 * normal_factor(0.5)
    assert calibration.factors[0.99] > 1.1 * normal_factor(0.99)


def test_what_too_few_images_allow_is_fitted_and_the_number_is_said():
    calibration = fitted(torch.Generator().manual_seed(0), 20)
    assert calibration.coverages == (0.5, 0.8, 0.9, 0.95)
    expected = (
        r"calibrated for coverages of 0\.5, 0\.8, 0\.9, 0\.95, not of 0\.99, which needs at least "
        "99 held-out images and had 20"
    )
    with pytest.raises(ConfigError, match=expected):
        calibration.half_width(SIGMA, 0.99)
    with pytest.raises(ConfigError, match=r"'musigma calibrate --coverage 0\.85' fits it"):
        calibration.at(0.85)
    with pytest.raises(ConfigError, match="coverage must lie strictly between"):
        calibration.at(95)


@pytest.mark.parametrize(
    ("method", "needed"),
    [("conformal-risk-control", 99), ("conformal", 9), ("risk-control", 230), ("isotonic", 1)],
)
def test_the_number_of_images_that_99_percent_needs(method, needed):
    assert images_needed(method, 0.99, 0.9) == needed


@pytest.mark.parametrize("method", METHODS)
def test_another_coverage_is_the_same_calibration_read_otherwise(method):
    calibration = fitted(torch.Generator().manual_seed(0), 100, method)
    wider = calibration.at(0.95)
    assert wider.coverage == 0.95
    assert wider.factors == calibration.factors
    assert wider.at(0.9) == calibration == calibration.at(None)
    torch.testing.assert_close(wider.half_width(SIGMA), calibration.half_width(SIGMA, 0.95))
    torch.testing.assert_close(wider.std(SIGMA), calibration.std(SIGMA))
    assert "95 % of the true values" in wider.promise
    again = Calibration.from_dict(json.loads(json.dumps(calibration.to_dict())))
    assert again == calibration


def test_a_coverage_of_ones_own_is_fitted_beside_the_usual_ones():
    held_out = HeldOut()
    held_out.update(*images_with_errors(torch.Generator().manual_seed(0), 20))
    calibration = fit(held_out, METHODS[0], coverage=0.7, other_coverages=COVERAGES)
    assert calibration.coverage == 0.7
    assert calibration.coverages == (0.5, 0.7, 0.8, 0.9, 0.95)
    assert list(calibration.factors.values()) == sorted(calibration.factors.values())


def stored(**changes):
    data = fitted(torch.Generator().manual_seed(0), 20).to_dict()
    return data | changes


def test_a_file_with_one_factor_still_loads():
    old = stored()
    for name in ("version", "other_factors"):
        del old[name]
    calibration = Calibration.from_dict(old)
    assert calibration.coverages == (0.9,)
    assert calibration.factor == old["factor"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 99}, "version 99, and this program reads up to 2; install a newer musigma"),
        ({"version": "2"}, "version '2'"),
        ({"version": []}, r"version \[\]"),
        ({"other_factors": 3}, "wrong type"),
        ({"other_factors": [[0.5]]}, "wrong type"),
        ({"other_factors": [[0.5, 0.6, 0.7]]}, "wrong type"),
        ({"other_factors": [["0.5", 0.6]]}, "made of numbers, got '0.5'"),
        ({"other_factors": [[0.5, True]]}, "made of numbers, got True"),
        ({"other_factors": [[0.5, -1.0]]}, "must be positive, got -1"),
        ({"other_factors": [[0.5, math.nan]]}, "must be positive, got nan"),
        ({"other_factors": [[0.5, 10**400]]}, "wrong type"),
        ({"other_factors": [[1.5, 1.0]]}, "coverage must lie strictly between"),
        ({"other_factors": [[0.5, 0.1], [0.5, 0.2]]}, "has two factors"),
        ({"other_factors": [[0.9, 0.1]]}, "has two factors"),
        ({"other_factors": [[0.5, 1000.0]]}, "must not decrease with the coverage"),
        ({"num_images": "many"}, "made of numbers, got 'many'"),
        ({"num_images": 0}, "at least one image"),
        ({"factor": "2"}, "made of numbers, got '2'"),
        ({"knots": "1"}, "made of numbers, got '1'"),
        ({"protocol": {"degradation": 5}}, "wrong type"),
        ({"protocol": {"degradation": [5, 6]}}, "wrong type"),
        ({"protocol": {"degradation": "bicubic", "noise_std": "loud"}}, "wrong type"),
    ],
)
def test_hostile_numbers_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        Calibration.from_dict(stored(**changes))
