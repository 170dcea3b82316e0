"""Metrics of joint error bars, by hand, by brute force, and on fields that are known."""

import math
import statistics

import pytest
import torch

from musigma.functional.scores import normal_factor
from musigma.types import ConfigError, ImageError
from musigma.uncertainty.joint import Correlation, StationaryErrors, draw_field
from musigma.uncertainty.metrics.joint import (
    QuantityIntervals,
    energy_score,
    in_decibels,
    radial_spectrum,
)
from musigma.uncertainty.quantities import Probes

INDEPENDENT = Correlation.independent(scale=2, radius=1, channels=3)


@pytest.fixture(autouse=True)
def few_probes(monkeypatch):
    """Measure each kind of quantity at a few places only."""
    monkeypatch.setattr("musigma.uncertainty.quantities.PROBES_PER_IMAGE", 8)


def updated(rule: str, factors: float, num_images: int = 12) -> QuantityIntervals:
    metric, generator = QuantityIntervals(rule, factors=factors), torch.Generator()
    generator.manual_seed(0)
    std = torch.full((3, 64, 64), 0.1)
    for _ in range(num_images):
        errors = StationaryErrors(std, INDEPENDENT)
        metric.update(std * draw_field((3, 64, 64), INDEPENDENT, generator), errors)
    return metric


def test_intervals_of_independent_errors_hold_what_they_state():
    factor = normal_factor(0.9)
    joint, independent = (
        updated("joint", factor).compute(),
        updated("independent", factor).compute(),
    )
    for name in ("box 4", "box 8", "profile 16", "channel 8"):
        assert joint[name].coverage == pytest.approx(0.9, abs=0.08), name
        assert joint[name].width == pytest.approx(independent[name].width, rel=0.01), name
    assert joint["box 4"].width == pytest.approx(2 * 25.5 * factor / math.sqrt(48), rel=0.01)


def test_added_bars_hold_everything_and_are_too_wide():
    added = updated("added", normal_factor(0.9), 3).compute()
    assert added["box 16"].coverage == 1
    assert added["box 16"].width == pytest.approx(2 * 25.5 * normal_factor(0.9), rel=0.01)


def test_a_quantile_is_the_factor_of_its_share():
    fitted = updated("joint", 1.0).quantile(0.9)
    assert fitted["box 4"] == pytest.approx(normal_factor(0.9), rel=0.15)


def test_factors_are_those_on_the_power_of_the_standard_deviation():
    metric = QuantityIntervals("joint", factors=2.0, power=0.5)
    errors, stds = torch.tensor([7.9, 8.1]).double() / 255, torch.full((2,), 16 / 255).double()
    metric.add([("box 4", Probes(errors, errors, stds, stds, stds))])
    scores = metric.compute()["box 4"]
    assert (scores.coverage, scores.width) == (0.5, pytest.approx(16.0))
    assert metric.quantile(1.0)["box 4"] == pytest.approx(8.1 / 4, rel=0.01)


def test_the_standard_error_of_a_coverage_is_that_over_images():
    metric, inside = QuantityIntervals("joint", factors=1.0), (0.25, 0.5, 1.0)
    for share in inside:
        ratios = torch.where(torch.arange(8) < 8 * share, 0.5, 2.0).double()
        metric.add([("profile 16", Probes(*[ratios] * 2, *[torch.ones(8)] * 3))] * 2)
    scores = metric.compute()["profile 16"]
    assert scores.coverage == pytest.approx(statistics.mean(inside))
    assert scores.coverage_error == pytest.approx(statistics.stdev(inside) / math.sqrt(3))


def test_parts_can_be_merged():
    whole, first, second = (
        updated("joint", 1.5, 4),
        updated("joint", 1.5, 2),
        updated("joint", 1.5, 2),
    )
    first.merge(second)
    assert first.num_images == whole.num_images == 4
    assert first.compute().keys() == whole.compute().keys()
    assert first.compute()["box 8"].width == pytest.approx(whole.compute()["box 8"].width)


def test_an_unknown_rule_is_refused():
    with pytest.raises(ConfigError, match="no rule 'sum'"):
        QuantityIntervals("sum")


def test_energy_score_equals_the_formula():
    generator = torch.Generator().manual_seed(0)
    samples, target = torch.rand(3, 2, 4, 4, generator=generator), torch.rand(2, 4, 4)
    flat, truth = samples.flatten(1).double(), target.flatten().double()
    distances = sum(float((a - b).norm()) for a in flat for b in flat)
    expected = sum(float((a - truth).norm()) for a in flat) / 3 - distances / (2 * 3 * 2)
    assert energy_score(samples, target, block=4) == pytest.approx(expected / math.sqrt(32))
    with pytest.raises(ImageError, match="two samples"):
        energy_score(samples[:1], target, block=4)


def test_energy_score_prefers_samples_of_the_true_field():
    generator, std = torch.Generator().manual_seed(0), torch.full((3, 64, 64), 0.1)
    row = [1.0] * len(INDEPENDENT.values[0])  # neighbours are nearly the same
    alike = Correlation(scale=2, radius=1, values=(tuple(row),) * 3, common=(0.0,) * 3)
    target = StationaryErrors(std, alike).sample(1, generator)[0]
    own, white = (
        StationaryErrors(std, correlation).sample(6, generator)
        for correlation in (alike, INDEPENDENT)
    )
    assert energy_score(own, target) < energy_score(white, target)


def test_the_spectrum_of_white_noise_is_flat_and_blur_lowers_its_end():
    generator = torch.Generator().manual_seed(0)
    white = torch.randn(20, 1, 64, 64, generator=generator)
    flat = in_decibels(radial_spectrum(white), radial_spectrum(white).mean())
    assert max(map(abs, flat[1:])) < 1
    blurred = torch.nn.functional.avg_pool2d(white, 3, 1, 1)
    change = in_decibels(radial_spectrum(blurred), radial_spectrum(white))
    assert change[0] > -2
    assert change[-1] < -10
