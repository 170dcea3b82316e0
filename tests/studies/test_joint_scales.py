"""The comparison of scales finds the power that errors were made with."""

import numpy as np
import pytest

from studies.measurements.joint_scales import Measured, compared


@pytest.fixture(scope="module")
def rows():
    """Errors of two kinds whose spread is the standard deviation to the power 0.8."""
    random = np.random.default_rng(0)
    count, images = 20_000, 100
    std = np.exp(random.normal(0, 1, count))
    errors = std**0.8 * random.normal(0, 1, count)
    image = np.arange(count) % images
    kind = np.where(np.arange(count) // images % 2, "box 4", "profile 16")
    pixels = np.where(kind == "box 4", 16.0, 15.0)
    return compared(Measured(image, kind, errors, errors, std, std, pixels))


def test_the_fitted_power_is_that_of_the_errors(rows):
    assert rows["power_by_coverage"]["90"] == pytest.approx(0.8, abs=0.03)
    assert rows["power_by_coverage"]["50"] == pytest.approx(0.8, abs=0.03)


def test_intervals_of_a_right_scale_hold_alike_at_all_standard_deviations(rows):
    fitted, plain = (
        rows[name]["coverage_by_tenth_of_std"] for name in ("power, fitted", "one factor")
    )
    assert all(abs(share - 0.9) < 0.03 for share in fitted.values())
    assert plain["1"] < 0.85 < 0.95 < plain["10"]


def test_widths_are_those_over_independent_bars(rows):
    for kind in ("box 4", "profile 16"):
        assert rows["factor for each kind"][kind]["width_over_independent"] == pytest.approx(1)
        assert rows["power, fitted"][kind]["width_over_independent"] < 0.95
        assert rows["power, fitted"][kind]["coverage"] == pytest.approx(0.9, abs=0.015)
