"""Calibrations against known noise: the fit, the promise, the refusal, the way through JSON."""

import dataclasses
import json
import math
import re

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from musigma.degradations import parse
from musigma.evaluation import protocol_for
from musigma.functional.constants import SIGMA_FLOOR
from musigma.functional.scores import interval_coverage, pll
from musigma.model import load
from musigma.networks.weights_file import SHIPPED
from musigma.types import ConfigError, DataError
from musigma.uncertainty.calibration import Calibration
from musigma.uncertainty.fitting import (
    HeldOut,
    fit,
    fit_conformal,
    fit_conformal_risk_control,
    fit_gaussian_scale,
    fit_isotonic,
    fit_pooled_quantile,
    fit_risk_control,
)
from musigma.uncertainty.methods import METHODS
from musigma.uncertainty.metrics.all_metrics import UncertaintyMetrics

GRID_STEP = 2 ** (16 / 4095)  # sixteen octaves of factors in 4096 points
SPREAD = 0.3  # of the logarithm of an image's noise level


BY_HAND = Calibration(
    method="isotonic",
    knots=(0.01, 0.03),
    values=(0.02, 0.03),
    factor=2.0,
    coverage=0.9,
    confidence=None,
    num_images=1,
)


def noisy_images(generator, num_images, size=(1, 20, 20)):
    """Return mean, target and sigma: normal errors, sigma off by a random level for each image."""
    sigma = 0.01 + 0.05 * torch.rand(num_images, *size, generator=generator)
    level = torch.exp(SPREAD * torch.randn(num_images, 1, 1, 1, generator=generator))
    error = level * sigma * torch.randn(sigma.shape, generator=generator)
    return error, torch.zeros_like(error), sigma


def held_out_of(mean, target, sigma, base=None):
    held_out = HeldOut(base)
    held_out.update(mean, target, sigma)
    return held_out


def images_of_ratios(*ratios):
    """Return images with sigma 0.01 and the given |e| / sigma, one row of ratios for each."""
    ratio = torch.tensor(ratios, dtype=torch.float64)[:, None, None, :]
    return 0.01 * ratio, torch.zeros_like(ratio), torch.full_like(ratio, 0.01)


def factor_on_sigma(calibration):
    return float(calibration.half_width(torch.tensor([0.01], dtype=torch.float64))) / 0.01


def assert_on_grid(factor, exact):
    """A factor is the exact one rounded up to the grid, by one step at most."""
    assert exact * (1 - 1e-9) <= factor <= exact * GRID_STEP * (1 + 1e-9)


@pytest.mark.parametrize(
    ("draw", "factor", "gain"),
    [(torch.randn, 1.4826, 0.205), (None, math.sqrt(2) / math.log(2), 0.868)],
    ids=["normal", "laplace"],
)
def test_a_median_sigma_is_too_small_by_the_known_factor(draw, factor, gain):
    # Sigma = median |e|: of N(0, 1) it is 0.6745, of Laplace(1) it is log 2, and the stds are 1
    # and sqrt 2. The gain in PLL is (f^2 - 1) / 2 - log f.
    generator = torch.Generator().manual_seed(0)
    shape, median = (4, 1, 500, 500), math.log(2)
    if draw is None:
        uniform = torch.rand(shape, generator=generator, dtype=torch.float64) - 0.5
        error = -uniform.sign() * torch.log1p(-2 * uniform.abs())
    else:
        error, median = draw(shape, generator=generator, dtype=torch.float64), stats.norm.ppf(0.75)
    mean, sigma = 0.02 * error, torch.full(shape, 0.02 * median, dtype=torch.float64)
    target = torch.zeros_like(mean)
    calibration = fit_gaussian_scale(held_out_of(mean, target, sigma), coverage=0.9)
    raw, calibrated = (
        pll(mean, target, std).mean().item() for std in (sigma, calibration.std(sigma))
    )
    assert calibration.values[0] == pytest.approx(factor, rel=5e-3)
    assert calibrated - raw == pytest.approx(gain, abs=1e-2)


def test_the_scale_is_the_best_for_pll():
    mean, target, sigma = noisy_images(torch.Generator().manual_seed(0), 20)
    best = optimize.minimize_scalar(
        lambda scale: -pll(mean.double(), target.double(), scale * sigma.double()).mean().item(),
        bounds=(0.5, 3),
        method="bounded",
        options={"xatol": 1e-8},
    )
    calibration = fit_gaussian_scale(held_out_of(mean, target, sigma), coverage=0.9)
    assert calibration.values[0] == pytest.approx(best.x, abs=1e-4)
    assert calibration.factor == pytest.approx(stats.norm.ppf(0.95))


def test_the_isotonic_map_finds_a_bent_relation():
    generator = torch.Generator().manual_seed(0)
    sigma = 0.01 + 0.09 * torch.rand(8, 1, 200, 200, generator=generator, dtype=torch.float64)
    std = 0.1 * sigma.sqrt()
    mean = std * torch.randn(std.shape, generator=generator, dtype=torch.float64)
    target = torch.zeros_like(mean)
    held_out = held_out_of(mean, target, sigma)
    isotonic, scale = (
        fit_isotonic(held_out, coverage=0.9),
        fit_gaussian_scale(held_out, coverage=0.9),
    )
    assert len(isotonic.knots) == 32
    torch.testing.assert_close(isotonic.std(sigma), std, rtol=0.1, atol=0)
    gain = pll(mean, target, isotonic.std(sigma)) - pll(mean, target, scale.std(sigma))
    assert gain.min() > 0.05


def test_the_map_is_linear_between_knots_and_proportional_outside():
    sigma = torch.tensor([0.0, 0.005, 0.01, 0.02, 0.03, 0.06])
    expected = torch.tensor([2 * SIGMA_FLOOR, 0.01, 0.02, 0.025, 0.03, 0.06])
    torch.testing.assert_close(BY_HAND.std(sigma), expected)
    torch.testing.assert_close(BY_HAND.half_width(sigma), 2 * expected)


def test_average_is_the_pooled_quantile():
    # Nine of the ten smallest ratios of both images together, whatever image they are in.
    held_out = held_out_of(*images_of_ratios([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]))
    assert_on_grid(factor_on_sigma(fit_pooled_quantile(held_out, coverage=0.9)), 9)
    assert_on_grid(factor_on_sigma(fit_pooled_quantile(held_out, coverage=0.91)), 10)


def test_the_expected_factor_counts_one_more_image_as_missed():
    # Nine images of ratios 1..9: the factor f covers f / 9. To be asked: 10 / 9 of the coverage.
    held_out = held_out_of(*images_of_ratios(*[[float(i) for i in range(1, 10)]] * 9))
    for coverage, ratio in [(0.7, 7), (0.8, 8), (0.81, 9), (0.9, 9)]:
        assert_on_grid(
            factor_on_sigma(fit_conformal_risk_control(held_out, coverage=coverage)), ratio
        )


def test_expected_keeps_its_promise_and_little_more():
    # The true coverage of a factor f on sigma is E[P(|z| <= f / level)], level log-normal. By the
    # theory the mean over fits lies between the asked 0.8 and two missed images in ten above it.
    levels = np.exp(SPREAD * stats.norm.ppf((np.arange(4000) + 0.5) / 4000))
    generator = torch.Generator().manual_seed(0)
    covered = []
    for _ in range(300):
        calibration = fit_conformal_risk_control(
            held_out_of(*noisy_images(generator, 9)), coverage=0.8
        )
        covered.append(1 - 2 * stats.norm.sf(factor_on_sigma(calibration) / levels).mean())
    error = np.std(covered) / math.sqrt(300)
    assert 0.8 - 3 * error <= np.mean(covered) <= 0.8 + 2 / 10
    assert np.mean(covered) == pytest.approx(0.8 * 10 / 9, abs=0.02)  # this noise hides no surprise


def test_the_conformal_factor_is_the_kth_smallest():
    # Image i has the ratio i everywhere. k = ceil(20 * 0.9) = 18 of 19; ceil(20 * 0.95) = 19.
    held_out = held_out_of(*images_of_ratios(*[[float(i)] * 10 for i in range(19, 0, -1)]))
    for confidence, rank in [(0.5, 10), (0.9, 18), (0.91, 19), (0.95, 19)]:
        calibration = fit_conformal(held_out, coverage=0.9, confidence=confidence)
        assert_on_grid(factor_on_sigma(calibration), rank)


def test_the_conformal_score_covers_enough_of_the_image():
    # Ten values of ratio 1..10: 0.9 needs nine of them, 0.91 all ten.
    held_out = held_out_of(*images_of_ratios(*[[float(i) for i in range(1, 11)]] * 4))
    for coverage, ratio in [(0.1, 1), (0.85, 9), (0.9, 9), (0.91, 10)]:
        calibration = fit_conformal(held_out, coverage=coverage, confidence=0.8)
        assert_on_grid(factor_on_sigma(calibration), ratio)


def test_conformal_keeps_its_promise_and_no_more():
    # 200 fits on nine images, k = 9, each tried on 8 new ones: a new image is covered with
    # probability 9 / 10 exactly, 8 / 10 if the rank were one less. Given the fit the tries are
    # not independent, so the error is that of 200 draws of Beta(9, 1), std 0.09, and of the tries.
    generator = torch.Generator().manual_seed(0)
    kept = []
    for _ in range(200):
        held_out = held_out_of(*noisy_images(generator, 9))
        calibration = fit_conformal(held_out, coverage=0.8, confidence=0.9)
        mean, target, sigma = noisy_images(generator, 8)
        share = interval_coverage(mean, target, calibration.half_width(sigma))
        kept.append((share >= 0.8).double().mean().item())
    error = math.sqrt((0.09**2 + 0.9 * 0.1 / 8) / 200)
    assert np.mean(kept) == pytest.approx(0.9, abs=3 * error)


def test_risk_control_keeps_its_promise():
    # The true risk of a factor f on sigma is E[P(|z| > f / level)], level log-normal.
    levels = np.exp(SPREAD * stats.norm.ppf((np.arange(4000) + 0.5) / 4000))
    generator = torch.Generator().manual_seed(0)
    risks = []
    for _ in range(200):
        held_out = held_out_of(*noisy_images(generator, 20))
        calibration = fit_risk_control(held_out, coverage=0.8, confidence=0.8)
        risks.append(2 * stats.norm.sf(factor_on_sigma(calibration) / levels).mean())
    kept = np.mean(np.array(risks) <= 0.2)
    assert kept >= 0.8 - 3 * math.sqrt(0.8 * 0.2 / 200)
    assert np.mean(risks) > 0.05  # not by covering everything


def test_risk_control_takes_the_first_factor_whose_bound_holds():
    # 40 images of ten values: k in each lie at ratio 10, the rest at 1, so covering ratio 1 leaves
    # the risk k / 10. At n = 40, bound 0.2, zero risk has p = 0.8^40 and 0.1 has
    # p = min(exp(-40 * 0.0367), e * P(Bin(40, 0.2) <= 4)) = min(0.230, e * 0.0759) = 0.206.
    for misses, confidence, ratio in [(1, 0.79, 1), (1, 0.8, 10), (0, 0.9, 1)]:
        row = [10.0] * misses + [1.0] * (10 - misses)
        held_out = held_out_of(*images_of_ratios(*[row] * 40))
        calibration = fit_risk_control(held_out, coverage=0.8, confidence=confidence)
        assert_on_grid(factor_on_sigma(calibration), ratio)


def test_intervals_of_the_average_fit_cover_new_images():
    generator = torch.Generator().manual_seed(0)
    calibration = fit_pooled_quantile(held_out_of(*noisy_images(generator, 200)), coverage=0.9)
    metrics = UncertaintyMetrics(calibration, coverage=0.9)
    metrics.update(*noisy_images(generator, 200))
    results = metrics.compute()
    assert results["coverage"] == pytest.approx(0.9, abs=0.02)
    assert results["pll_calibrated"] > results["pll"]


def test_a_scale_on_sigma_changes_no_interval():
    mean, target, sigma = noisy_images(torch.Generator().manual_seed(0), 30)
    base = fit_gaussian_scale(held_out_of(mean, target, sigma), coverage=0.9)
    plain, on_base = (
        fit_conformal(held_out_of(mean, target, sigma, base), coverage=0.9, confidence=0.9)
        for base in (None, base)
    )
    assert factor_on_sigma(on_base) == pytest.approx(factor_on_sigma(plain), rel=GRID_STEP - 1)
    assert on_base.values == pytest.approx(plain.values, rel=1e-6)


def test_conformal_on_an_isotonic_map_keeps_the_map():
    generator = torch.Generator().manual_seed(0)
    base = fit_isotonic(held_out_of(*noisy_images(generator, 30)), coverage=0.9)
    held_out = held_out_of(*noisy_images(generator, 30), base)
    calibration = fit_conformal(held_out, coverage=0.9, confidence=0.9)
    assert calibration.knots == base.knots
    ratios = np.array(calibration.values) / np.array(base.values)
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-12)
    mean, target, sigma = noisy_images(generator, 100)
    share = interval_coverage(mean, target, calibration.half_width(sigma)) >= 0.9
    assert share.double().mean() > 0.75


@pytest.mark.parametrize(
    ("fit", "confidence", "needed"),
    [(fit_conformal, 0.9, 9), (fit_conformal, 0.95, 19), (fit_risk_control, 0.9, 22)],
)
def test_too_few_images_are_refused_with_the_number_needed(fit, confidence, needed):
    generator = torch.Generator().manual_seed(0)
    few = held_out_of(*noisy_images(generator, needed - 1))
    expected = f"needs at least {needed} held-out images, got {needed - 1}"
    with pytest.raises(DataError, match=expected):
        fit(few, coverage=0.9, confidence=confidence)
    few.update(*noisy_images(generator, 1))
    assert fit(few, coverage=0.9, confidence=confidence).num_images == needed


@pytest.mark.parametrize("method", METHODS)
def test_no_images_are_refused(method):
    with pytest.raises(DataError, match=r"needs at least \d+ held-out images, got 0"):
        fit(HeldOut(), method, coverage=0.9)


def test_what_no_interval_can_hold_is_refused():
    image = torch.zeros(1, 1, 4, 4)
    with pytest.raises(DataError, match="check that mean, target and sigma are of the same images"):
        fit_pooled_quantile(held_out_of(image, image + 255, image), coverage=0.9)
    with pytest.raises(DataError, match="pass predictions, not the targets"):
        fit_pooled_quantile(held_out_of(image, image, image + 0.1), coverage=0.9)


@pytest.mark.parametrize("method", METHODS)
def test_json_gives_back_the_same_calibration(method):
    held_out = held_out_of(*noisy_images(torch.Generator().manual_seed(0), 40))
    calibration = fit(held_out, method, coverage=0.9)
    again = Calibration.from_dict(json.loads(json.dumps(calibration.to_dict())))
    assert again == calibration
    assert calibration.method == method
    assert f"; method: {method}" in calibration.promise


def test_an_expected_coverage_needs_images_enough():
    few = held_out_of(*noisy_images(torch.Generator().manual_seed(0), 8))
    with pytest.raises(DataError, match=r"coverage 0\.9 needs at least 9 held-out"):
        fit_conformal_risk_control(few, coverage=0.9)


PROTOCOL = {"degradation": "bicubic", "scale": 2}


def test_a_promise_names_its_numbers_and_its_conditions():
    held_out = held_out_of(*noisy_images(torch.Generator().manual_seed(0), 40))
    expected = fit_conformal_risk_control(held_out, coverage=0.9)
    assert dataclasses.replace(expected, protocol=PROTOCOL, data={"name": "crops"}).promise == (
        "On average, at least 90 % of the true values of an image lie inside their intervals, for "
        "images like the 40 of the calibration (crops): clean, shrunk by 2 with bicubic (MATLAB); "
        "method: conformal-risk-control"
    )
    assert "Without a guarantee" in fit_pooled_quantile(held_out, coverage=0.9).promise
    assert fit_conformal(held_out, coverage=0.9, confidence=0.95).promise.startswith(
        "With probability 0.95, at least 90 % of the true values of an image lie inside their "
        "intervals, for images like the 40 of the calibration: unknown"
    )


@pytest.mark.parametrize(
    ("protocol", "words"),
    [
        (None, "unknown"),
        (PROTOCOL, "clean, shrunk by 2 with bicubic (MATLAB)"),
        (
            {"degradation": "noise(0..50)", "scale": 1},
            "clean, with white noise of standard deviation 0 to 50 (8-bit levels)",
        ),
        ({"degradation": "pairs", "scale": 1}, "as in the pairs of files"),
        ({"degradation": "noise(5, gain=0.1)", "scale": 1}, 'made by "noise(5, gain=0.1)"'),
        (
            {"degradation": str(parse("photo", scale=2)), "scale": 2},
            "a mixture of clean, blurred, noisy, smoothed, resampled, JPEG-compressed images "
            "(scale 2)",
        ),
        (
            {"degradation": ["bicubic", "jpeg(75)"], "scale": 2},
            "a mixture of clean, JPEG-compressed images (scale 2, 2 kinds of input)",
        ),
    ],
)
def test_conditions_say_how_the_inputs_were_made(protocol, words):
    calibration = dataclasses.replace(BY_HAND, protocol=protocol)
    assert words in calibration.conditions


def test_a_calibration_knows_the_noise_levels_of_its_fit():
    def includes(fitted, level):
        return dataclasses.replace(BY_HAND, protocol=fitted).includes_noise_std(level)

    assert includes({"noise_std": 25.0}, 25)
    assert not includes({"noise_std": 25.0}, 50)
    assert includes({"noise_std": [0.0, 50.0]}, 50)
    assert not includes({"noise_std": None}, 25)
    assert not includes(None, 25)


@pytest.mark.parametrize(
    ("former", "method"),
    [("expected", "conformal-risk-control"), ("average", "pooled-quantile"), ("isotonic",) * 2],
)
def test_files_of_version_0_1_load_with_unknown_conditions(former, method):
    data = BY_HAND.to_dict()
    for name in ("method", "protocol", "data"):
        del data[name]
    calibration = Calibration.from_dict(data | {"kind": former})
    assert calibration.method == method
    assert calibration.conditions.endswith("unknown")


@pytest.mark.parametrize("stored", ["wide", 3, [1.0], True])
def test_a_stored_calibration_that_is_no_table_is_refused(stored):
    with pytest.raises(ConfigError, match="a calibration is a table of values"):
        Calibration.from_dict(stored)


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.safetensors")), ids=lambda path: path.stem)
def test_shipped_weights_name_their_conditions_and_no_path(path):
    model = load(path)
    calibration = model.require_calibration()
    assert calibration.data["name"] == "DIV2K_crops"
    assert calibration.includes_noise_std(25) == model.takes_noise_level
    if path.stem.startswith("photo"):
        assert any("jpeg(" in text for text in calibration.protocol["degradation"])
        assert "(DIV2K_crops): a mixture of clean, blurred, noisy, JPEG" in calibration.promise
    else:
        level = 25.0 if model.takes_noise_level else None
        assert calibration.protocol == protocol_for(model.network, noise_std=level).as_json()
        assert "(DIV2K_crops): clean, " in calibration.promise
    texts = json.dumps(model.metadata | {"licence": ""})
    assert not re.search(r"[\w.]/[\w.]", texts), texts


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "conformall"}, "did you mean 'conformal'"),
        ({"knots": [0.2, 0.1], "values": [1.0, 1.0]}, "must be positive and increase"),
        ({"knots": []}, "got 0 knots for 1 values"),
        ({"values": [-1.0]}, "must be positive and not decrease"),
        ({"values": [math.inf]}, "must be positive and not decrease"),
        ({"values": ["wide"]}, "made of numbers"),
        ({"knots": [[1.0]], "values": [[1.0]]}, "made of numbers"),
        ({"factor": math.nan}, "factor of a calibration must be positive"),
        ({"coverage": 90}, "coverage must lie strictly between"),
        ({"method": "conformal", "confidence": 1}, "confidence must lie strictly between"),
        ({"method": "conformal"}, "confidence must lie strictly between"),
        ({"colour": "blue"}, r"unknown \['colour'\]"),
    ],
)
def test_a_broken_file_is_refused(change, message):
    held_out = held_out_of(*noisy_images(torch.Generator().manual_seed(0), 2))
    data = fit_pooled_quantile(held_out, coverage=0.9).to_dict() | change
    with pytest.raises(ConfigError, match=message):
        Calibration.from_dict(data)


def test_a_missing_key_is_named():
    held_out = held_out_of(*noisy_images(torch.Generator().manual_seed(0), 2))
    data = fit_pooled_quantile(held_out, coverage=0.9).to_dict()
    del data["factor"]
    with pytest.raises(ConfigError, match=r"missing \['factor'\]"):
        Calibration.from_dict(data)


def test_a_calibration_cannot_be_changed():
    calibration = fit_pooled_quantile(
        held_out_of(*noisy_images(torch.Generator().manual_seed(0), 2)), coverage=0.9
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        calibration.factor = 1.0


def test_the_held_out_state_does_not_depend_on_the_image_size():
    generator = torch.Generator().manual_seed(0)
    small, large = (
        held_out_of(*noisy_images(generator, 1, size)) for size in [(1, 5, 7), (3, 370, 310)]
    )
    assert small.inputs[0].num_covered.nbytes == large.inputs[0].num_covered.nbytes == 2**15
    assert small.by_sigma[""].sums.nbytes == large.by_sigma[""].sums.nbytes


def test_inputs_of_one_image_count_as_one_image():
    # Ten copies of nine images are not ninety: the promise needs nine images that differ.
    generator = torch.Generator().manual_seed(0)
    held_out = HeldOut()
    for name in range(8):
        for _ in range(10):
            held_out.update(*noisy_images(generator, 1), image=str(name))
    assert held_out.num_images == 8
    with pytest.raises(DataError, match="needs at least 9 held-out images, got 8"):
        fit_conformal_risk_control(held_out, coverage=0.9)


def test_the_share_of_an_image_is_the_mean_over_its_inputs():
    held_out = HeldOut()
    for ratios in ([1.0, 1.0], [4.0, 4.0]):
        held_out.update(*images_of_ratios(ratios), image="a")
    at_two = int(np.searchsorted(held_out.factors, 2))
    assert held_out.coverages().shape == (1, len(held_out.factors))
    assert held_out.coverages()[0, at_two] == pytest.approx(0.5)


def test_a_group_is_fitted_and_measured_alone():
    held_out = HeldOut()
    held_out.update(*images_of_ratios([1.0] * 10), group="clean")
    held_out.update(*images_of_ratios([4.0] * 10), group="noisy")
    assert held_out.groups == ["clean", "noisy"]
    clean = fit_pooled_quantile(held_out.of_group("clean"), coverage=0.9)
    assert_on_grid(factor_on_sigma(clean), 1)
    together = fit_pooled_quantile(held_out, coverage=0.5)
    assert [held_out.of_group(name).coverage_of(together) for name in held_out.groups] == [1, 0]
    assert held_out.coverage_of(together) == pytest.approx(0.5)
