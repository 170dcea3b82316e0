"""Streaming metrics against brute force on all values at once, and their memory."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from helpers.calibrations import calibration_of
from musigma.functional.constants import SIGMA_FLOOR
from musigma.types import ConfigError, DataError, ImageError
from musigma.uncertainty.metrics import HIGHER_IS_BETTER, blocks
from musigma.uncertainty.metrics.all_metrics import ConstantSigma, UncertaintyMetrics
from musigma.uncertainty.metrics.intervals import Intervals, Reliability
from musigma.uncertainty.metrics.per_image_mean import pll_metric
from musigma.uncertainty.metrics.sparsification import Sparsification

DOUBLED = calibration_of(method="pooled-quantile", values=(2.0,), factor=1.5, num_images=1)
"""The standard deviation is twice sigma, the half-width three times."""


def random_set(seed):
    """Three images of different sizes and error levels; sigma is off and sometimes 0."""
    rng = np.random.default_rng(seed)
    for shape, level in [((3, 37, 31), -4.0), ((3, 23, 41), -3.0), ((1, 64, 50), -2.0)]:
        target = rng.random(shape)
        spread = np.exp(rng.normal(level, 0.8, shape))
        mean = target + spread * rng.laplace(size=shape)
        sigma = spread * np.exp(rng.normal(0, 0.4, shape))
        sigma[rng.random(shape) < 0.001] = 0
        yield mean, target, sigma


def fed(metric, images):
    for image in images:
        metric.update(*(torch.from_numpy(map_)[None] for map_ in image))
    return metric


def pooled(images):
    """Return |e| and sigma of all values of all images."""
    errors = np.concatenate([np.abs(target - mean).ravel() for mean, target, _ in images])
    return errors, np.concatenate([sigma.ravel() for _, _, sigma in images])


def brute_force_ause(errors, sigmas, power):
    """Remove the worst, one percent at a time, from a full sort; whole values and a fraction."""

    def curve(order):
        ascending = errors[order] ** power
        left = []
        for percent in range(100):
            kept = len(errors) * (100 - percent) / 100
            whole = int(kept)
            part = kept - whole
            total = ascending[:whole].sum() + (part * ascending[whole] if part else 0)
            left.append((total / kept) ** (1 / power))
        return np.array(left) / left[0]

    gap = curve(np.argsort(sigmas, kind="stable")) - curve(np.argsort(errors, kind="stable"))
    return integrate.trapezoid(gap, dx=0.01)


def brute_force_calibration_error(errors, sigmas):
    levels = np.arange(1, 100) / 100
    floored = np.maximum(sigmas, SIGMA_FLOOR)
    observed = [(errors <= stats.norm.interval(level)[1] * floored).mean() for level in levels]
    return np.abs(np.array(observed) - levels).mean()


def gaussian_oracle(images, factor):
    """Return PLL, CRPS and calibration error of ``factor * sigma``, by scipy."""
    pll, crps = [], []
    for mean, target, sigma in images:
        std = factor * np.maximum(sigma, SIGMA_FLOOR)
        folded = stats.foldnorm.mean(np.abs(target - mean) / std, scale=std)
        pll.append(stats.norm.logpdf(target, mean, std).mean())
        crps.append((folded - std / math.sqrt(math.pi)).mean())
    errors, sigmas = pooled(images)
    error = brute_force_calibration_error(errors, factor * np.maximum(sigmas, SIGMA_FLOOR))
    return np.mean(pll), np.mean(crps), error


@pytest.mark.parametrize("seed", range(10))
def test_every_metric_equals_its_oracle(seed):
    from skimage.metrics import peak_signal_noise_ratio

    images = list(random_set(seed))
    errors, sigmas = pooled(images)
    half_width = 3 * np.maximum(sigmas, SIGMA_FLOOR)
    pll, crps, error = gaussian_oracle(images, 1)
    pll_calibrated, crps_calibrated, error_calibrated = gaussian_oracle(images, 2)
    expected = {
        "pll": pll,
        "crps": crps,
        "calibration_error": error,
        "pll_calibrated": pll_calibrated,
        "crps_calibrated": crps_calibrated,
        "calibration_error_calibrated": error_calibrated,
        "sigma_psnr": np.mean(
            [
                peak_signal_noise_ratio(np.abs(target - mean), sigma, data_range=1)
                for mean, target, sigma in images
            ]
        ),
        "sigma_psnr_calibrated": np.mean(
            [
                peak_signal_noise_ratio(
                    np.abs(target - mean),
                    stats.halfnorm.mean(scale=2 * np.maximum(sigma, SIGMA_FLOOR)),
                    data_range=1,
                )
                for mean, target, sigma in images
            ]
        ),
        "ause": brute_force_ause(errors, sigmas, power=1),
        "coverage": (errors <= half_width).mean(),
        "width": 2 * half_width.mean(),
    }
    results = fed(UncertaintyMetrics(DOUBLED, coverage=0.9), images).compute()
    assert results == pytest.approx(expected, abs=1e-4, rel=0)


@pytest.mark.parametrize("seed", range(10))
def test_rmse_ause_equals_brute_force(seed):
    images = list(random_set(seed))
    ause = fed(Sparsification("rmse"), images).compute().ause
    assert ause == pytest.approx(brute_force_ause(*pooled(images), power=2), abs=1e-4)


def test_the_luma_of_sigma_predicts_the_error_of_the_luma():
    generator = torch.Generator().manual_seed(0)
    mean, target, sigma = torch.rand(3, 1, 3, 37, 31, generator=generator, dtype=torch.float64)
    metric = UncertaintyMetrics(coverage=0.9, luma=True)
    metric.update(mean, target, sigma)
    weights = np.array([65.481, 128.553, 24.966]).reshape(1, 3, 1, 1) / 255
    error, predicted = ((part.numpy() * weights).sum(1) for part in ((target - mean), sigma))
    expected = -10 * np.log10(np.mean((np.abs(error) - predicted) ** 2))
    assert metric.compute()["sigma_psnr_y"] == pytest.approx(expected, abs=1e-9)
    assert "sigma_psnr_y" not in fed(UncertaintyMetrics(coverage=0.9), random_set(0)).compute()


def test_without_a_calibration_intervals_are_normal():
    images = list(random_set(0))
    results = fed(UncertaintyMetrics(coverage=0.9), images).compute()
    errors, sigmas = pooled(images)
    half_width = stats.norm.interval(0.9)[1] * np.maximum(sigmas, SIGMA_FLOOR)
    assert "pll_calibrated" not in results
    assert results["coverage"] == pytest.approx((errors <= half_width).mean(), abs=1e-9)
    assert results["width"] == pytest.approx(2 * half_width.mean(), abs=1e-9)


def test_sparsification_by_hand():
    # Errors 1..100 (/100): what is left of the k smallest is (k + 1) / 2 for the perfect order,
    # 100 - (k - 1) / 2 for the worst, over 50.5; both are straight lines in k.
    errors = torch.arange(1, 101, dtype=torch.float64).reshape(1, 1, 10, 10) / 100
    zeros = torch.zeros_like(errors)
    perfect, worst = Sparsification(), Sparsification()
    perfect.update(zeros, errors, errors)
    worst.update(zeros, errors, 1.01 - errors)
    kept = 100 - np.arange(100)
    np.testing.assert_allclose(perfect.compute().by_error, (kept + 1) / 2 / 50.5, rtol=1e-9)
    np.testing.assert_allclose(worst.compute().by_sigma, (100 - (kept - 1) / 2) / 50.5, rtol=1e-9)
    assert perfect.compute().ause == pytest.approx(0, abs=1e-12)


def test_ties_are_removed_in_random_order():
    # A constant sigma says nothing: the error left stays the whole error.
    errors = torch.arange(1, 101, dtype=torch.float64).reshape(1, 1, 10, 10) / 100
    metric = Sparsification()
    metric.update(torch.zeros_like(errors), errors, torch.full_like(errors, 0.1))
    np.testing.assert_allclose(metric.compute().by_sigma, 1, rtol=1e-12)


def test_perfect_images_have_no_sparsification_error():
    image = torch.rand(1, 3, 5, 7, generator=torch.Generator().manual_seed(0))
    metric = Sparsification()
    metric.update(image, image, torch.full_like(image, 0.1))
    assert metric.compute().ause == 0


def test_the_right_sigma_is_calibrated():
    # 1.1 million normal errors: every observed share has a std below 5e-4.
    generator = torch.Generator().manual_seed(0)
    sigma = torch.rand(1, 1, 1050, 1050, generator=generator) * 0.1 + 0.01
    mean = sigma * torch.randn(sigma.shape, generator=generator)
    metric = Reliability()
    metric.update(mean, torch.zeros_like(mean), sigma)
    assert metric.compute().calibration_error < 1e-3
    np.testing.assert_allclose(metric.compute().observed, metric.compute().level, atol=2.5e-3)


def test_the_papers_baseline_is_the_mean_absolute_error():
    baseline = ConstantSigma()
    for mean, target, _ in random_set(0):
        baseline.update(torch.from_numpy(mean)[None], torch.from_numpy(target)[None])
    errors, _ = pooled(list(random_set(0)))
    assert baseline.compute() == pytest.approx(errors.mean(), abs=1e-12)


def test_blocks_and_batches_do_not_change_a_number(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    batch = [torch.rand(3, 3, 37, 31, generator=generator) for _ in range(3)]
    whole = UncertaintyMetrics(DOUBLED, coverage=0.9)
    whole.update(*batch)
    monkeypatch.setattr(blocks, "BLOCK_SIZE", 1000)
    pieces = UncertaintyMetrics(DOUBLED, coverage=0.9)
    for image in zip(*batch, strict=True):
        pieces.update(*(map_[None].to(memory_format=torch.channels_last) for map_ in image))
    assert pieces.compute() == pytest.approx(whole.compute(), abs=1e-12)


def state_bytes(value):
    """Return the bytes of all numbers and arrays that an object holds."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, int | float):
        return 8
    if isinstance(value, list | tuple):
        return sum(state_bytes(item) for item in value)
    return (
        sum(state_bytes(item) for item in vars(value).values()) if hasattr(value, "__dict__") else 0
    )


def test_the_state_does_not_grow():
    generator = torch.Generator().manual_seed(0)
    metrics = UncertaintyMetrics(DOUBLED, coverage=0.9)
    before = state_bytes(metrics)
    assert 2**20 < before < 2**22
    for _ in range(64):
        target = torch.rand(1, 1, 64, 64, generator=generator)
        sigma = torch.rand(target.shape, generator=generator) / 10
        noise = torch.randn(target.shape, generator=generator)
        metrics.update(target + sigma * noise, target, sigma)
        assert state_bytes(metrics) == before
    assert metrics.compute()["coverage"] == pytest.approx(2 * stats.norm.cdf(3) - 1, abs=1e-3)


@pytest.mark.parametrize("metric", [pll_metric(), Intervals(), Reliability(), Sparsification()])
def test_no_images_have_no_number(metric):
    with pytest.raises(DataError, match="call update first"):
        metric.compute()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_is_refused(bad):
    image = torch.zeros(1, 1, 3, 3)
    sigma = image.clone()
    sigma[0, 0, 1, 1] = bad
    with pytest.raises(ImageError, match="finite"):
        UncertaintyMetrics(coverage=0.9).update(image, image, sigma)


def test_a_negative_sigma_is_refused():
    image = torch.zeros(1, 1, 3, 3)
    with pytest.raises(ImageError, match=r"minimum is -0.5"):
        Sparsification().update(image, image, image - 0.5)


def test_a_calibration_for_another_coverage_is_refused():
    with pytest.raises(ConfigError, match=r"coverages of 0.9, not of 0.8"):
        UncertaintyMetrics(DOUBLED, coverage=0.8)


def all_metrics():
    return [
        UncertaintyMetrics(DOUBLED, coverage=0.9, luma=True),
        UncertaintyMetrics(coverage=0.9),
        pll_metric(),
        Intervals(),
        Reliability(),
        Sparsification("rmse"),
    ]


def flat(value):
    """Return the numbers of whatever a metric computes."""
    if isinstance(value, dict):
        return np.array(list(value.values()))
    return np.concatenate([np.ravel(part) for part in value]) if np.ndim(value) else [value]


@pytest.mark.parametrize("number", range(len(all_metrics())))
def test_parts_of_a_set_merge_into_the_whole(number):
    batches = [
        torch.rand(3, 2, 3, 13, 11, generator=torch.Generator().manual_seed(n)) for n in (0, 1)
    ]
    whole, first, second = (all_metrics()[number] for _ in range(3))
    for batch, part in zip(batches, (first, second), strict=True):
        whole.update(*batch)
        part.update(*batch)
    first.merge(second)
    np.testing.assert_allclose(flat(first.compute()), flat(whole.compute()), rtol=1e-12)


@pytest.mark.parametrize("number", range(len(all_metrics())))
def test_a_metric_that_is_reset_is_new(number):
    one_batch = torch.rand(3, 2, 3, 13, 11, generator=torch.Generator().manual_seed(0))
    metric, new = (all_metrics()[number] for _ in range(2))
    metric.update(*one_batch + 0.1)
    metric.reset()
    for either in (metric, new):
        either.update(*one_batch)
    np.testing.assert_array_equal(flat(metric.compute()), flat(new.compute()))


def test_every_number_has_a_direction():
    metrics = UncertaintyMetrics(DOUBLED, coverage=0.9, luma=True)
    metrics.update(*torch.rand(3, 1, 3, 13, 11, generator=torch.Generator().manual_seed(0)))
    names = {name.removesuffix("_calibrated") for name in metrics.compute()}
    assert names == HIGHER_IS_BETTER.keys()
    assert pll_metric().higher_is_better


def test_metrics_of_different_calibrations_do_not_merge():
    with pytest.raises(ConfigError, match="same calibration"):
        UncertaintyMetrics(DOUBLED, coverage=0.9).merge(UncertaintyMetrics(coverage=0.9))


def test_each_map_is_copied_once(monkeypatch):
    # However many metrics look at a block, its values are converted to float64 a single time.
    copies = []
    convert = torch.Tensor.to

    def counted(tensor, *words, **options):
        copies.append(words)
        return convert(tensor, *words, **options)

    metrics = UncertaintyMetrics(DOUBLED, coverage=0.9, luma=True)
    batch = torch.rand(3, 1, 3, 13, 11, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(torch.Tensor, "to", counted)
    metrics.update(*batch)
    assert copies == [("cpu", torch.float64)] * 3
