"""Where the layers of a result lie, and what they hold."""

import numpy as np
import pytest

from musigma.napari_plugin.result_layers import Placement, bounds, placement_of, result_layers
from musigma.restoration.restore_array import RestoredArray


def restored(mean: np.ndarray, std: float | None = 2.0, **changes: object) -> RestoredArray:
    rgb = bool(changes.get("rgb", False))
    shape = mean[..., :3].shape if rgb else mean.shape
    errors = None if std is None else np.full(shape, std, np.float32)
    values = {"name": "cells", "rgb": rgb, "factor": 1.5, "coverage": 0.9, "zoom": 2, "first": ()}
    return RestoredArray(mean=mean, std=errors, **(values | changes))


@pytest.mark.parametrize("zoom", [1, 2, 3, 4])
def test_the_edges_of_the_result_are_those_of_the_source(zoom):
    """Pixels are centered at whole numbers, so that the edges of n pixels are at -1/2, n - 1/2."""
    angle = np.array([[0.8, -0.6], [0.6, 0.8]])
    linear = np.eye(3)
    linear[1:, 1:] = angle @ np.diag([0.2, 0.3])
    source = Placement(np.array([1.0, 0.2, 0.3]), np.array([5.0, 7.0, -9.0]), linear)
    result = restored(np.zeros((1, zoom * 10, zoom * 6)), zoom=zoom, first=(4,))
    placed = placement_of(result, source)
    result_linear = linear @ np.diag(placed["scale"] / source.scale)
    for corner in ((0, 0), (0, 6), (10, 0), (10, 6)):
        at_source = linear @ [4.0, corner[0] - 0.5, corner[1] - 0.5] + source.translate
        y, x = (zoom * number - 0.5 for number in corner)
        assert result_linear @ [0.0, y, x] + placed["translate"] == pytest.approx(at_source)


def test_bounds_of_integers_are_rounded_outwards_and_kept_in_the_type():
    low, high = bounds(restored(np.array([[[2, 100, 254]]], np.uint8), std=2.1, rgb=True))
    assert low.tolist() == [[[0, 96, 250]]]
    assert high.tolist() == [[[6, 104, 255]]]
    assert low.dtype == high.dtype == np.uint8


def test_bounds_of_floating_point_are_exact_and_missing_without_a_calibration():
    low, high = bounds(restored(np.full((2, 2), 10.0, np.float32)))
    assert (low == 7).all()
    assert (high == 13).all()
    assert bounds(restored(np.zeros((2, 2)), std=None)) is None
    assert bounds(restored(np.zeros((2, 2)), factor=None, coverage=None)) is None


def test_layers_of_gray_values_look_like_the_source():
    look = {"contrast_limits": (0, 9), "colormap": "gray", "gamma": 1.0, "scale": (1, 1)}
    layers = result_layers(restored(np.zeros((4, 4), np.float32)), look=look)
    names = [layer.properties["name"] for layer in layers]
    assert names == ["cells sigma", "cells lower 90 %", "cells upper 90 %", "cells mean"]
    assert [layer.properties.get("visible", True) for layer in layers] == [False] * 3 + [True]
    assert [layer.properties["contrast_limits"] for layer in layers] == [(0, 2)] + [(0, 9)] * 3
    assert all(layer.properties["scale"] == (1, 1) for layer in layers)


def test_sigma_of_colors_is_shown_as_their_mean():
    mean = np.zeros((4, 5, 4), np.uint8)
    layers = result_layers(restored(mean, rgb=True), look={}, intervals=False)
    assert [layer.data.shape for layer in layers] == [(4, 5), (4, 5, 4)]
    assert [layer.properties["rgb"] for layer in layers] == [False, True]


def test_a_model_without_sigma_gives_the_mean_alone():
    (layer,) = result_layers(restored(np.zeros((4, 4)), std=None), look={})
    assert layer.properties["name"] == "cells mean"
