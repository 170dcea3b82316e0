"""Values at the pointer, and boxes by the centers of their pixels."""

import numpy as np
import pytest

from musigma.napari_plugin.measure import box_in_words, box_of, pixel_at, value_in_words
from musigma.restoration.restore_array import RestoredArray
from musigma.types import ConfigError
from musigma.uncertainty.box_statistics import Box


def restored(**changes: object) -> RestoredArray:
    mean = np.arange(48, dtype=np.float32).reshape(2, 4, 6)
    values = {"name": "cells", "rgb": False, "factor": 2.0, "coverage": 0.9, "zoom": 2}
    values |= {"first": (0,), "mean": mean, "std": np.full(mean.shape, 0.5, np.float32)}
    return RestoredArray(**(values | changes))


def rectangle(top: float, left: float, bottom: float, right: float) -> np.ndarray:
    return np.array([[top, left], [top, right], [bottom, right], [bottom, left]])


def test_a_pixel_reaches_half_a_pixel_to_each_side_of_its_index():
    result = restored()
    assert pixel_at(result, (0, -0.49, 5.49)) == (0, 0, 5)
    assert pixel_at(result, (0, -0.51, 0)) is None
    assert pixel_at(result, (0, 0, 5.51)) is None
    assert pixel_at(result, (1.4, 0.5, 0)) == (1, 1, 0)
    assert pixel_at(result, (0, float("nan"), 0)) is None


def test_values_in_words():
    assert value_in_words(restored(), (1, 0, 2)) == "26, 90 % interval 25 to 27"
    plain = restored(factor=None, coverage=None)
    assert value_in_words(plain, (1, 0, 2)) == "26, sigma 0.5 (not calibrated)"
    assert value_in_words(restored(std=None), (1, 0, 2)) == "26"
    missing = restored(mean=np.full((2, 4, 6), np.nan, np.float32))
    assert value_in_words(missing, (0, 0, 0)) == "no value"
    colors = np.array([[[10, 20, 30, 255]]], np.uint8)
    std = np.ones((1, 1, 3), np.float32)
    opaque = restored(mean=colors, std=std, rgb=True, first=())
    assert value_in_words(opaque, (0, 0)) == (
        "10, 20, 30, 90 % interval 8 to 12, 18 to 22, 28 to 32"
    )


def test_a_box_holds_the_pixels_whose_centers_it_holds():
    assert box_of(rectangle(-0.5, -0.5, 3.5, 5.5), (4, 6)) == Box(0, 0, 6, 4)
    assert box_of(rectangle(0.1, 1.9, 2.1, 3.9), (4, 6)) == Box(2, 1, 2, 2)
    assert box_of(rectangle(-40, -40, 40, 40), (4, 6)) == Box(0, 0, 6, 4)


def test_boxes_that_cannot_be_measured_are_refused():
    with pytest.raises(ConfigError, match="no pixel"):
        box_of(rectangle(0.2, 0.2, 0.8, 0.8), (4, 6))
    with pytest.raises(ConfigError, match="no pixel"):
        box_of(rectangle(10, 10, 20, 20), (4, 6))
    with pytest.raises(ConfigError, match="along the rows and columns"):
        box_of(np.array([[1.0, 0.0], [2.0, 1.0], [1.0, 2.0], [0.0, 1.0]]), (4, 6))


def test_the_mean_of_a_box_comes_with_both_ends_of_its_error():
    text = box_in_words(restored(), (1,), Box(1, 0, 2, 2))
    assert text.startswith("Box of 2 x 2 pixels at 1, 0, 90 % interval: Mean 28.5.")
    assert "between ± 0.5 (if" in text  # independent: 1 / sqrt(4)
    assert "± 1 (if they were all the same)" in text


def test_a_box_without_errors_or_with_missing_values():
    text = box_in_words(restored(std=None), (0,), Box(0, 0, 2, 1))
    assert text == "Box of 2 x 1 pixels at 0, 0: mean 0.5. The model has no calibrated errors."
    mean = np.zeros((2, 4, 6), np.float32)
    mean[0, 0, 0] = np.nan
    with pytest.raises(ConfigError, match="values are missing"):
        box_in_words(restored(mean=mean), (0,), Box(0, 0, 2, 1))
    assert "Mean 0." in box_in_words(restored(mean=mean), (0,), Box(1, 0, 2, 1))
