"""Values and intervals at a pixel, and the mean of a box, in words. napari itself is not needed."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from musigma.restoration.array_source import Index
from musigma.restoration.restore_array import RestoredArray
from musigma.types import ConfigError
from musigma.uncertainty.box_statistics import box_statistics, in_words
from musigma.uncertainty.quantities import Box

_NUMBER = ".4g"
_PARALLEL = 1e-3
"""Pixels by which the corners of a rectangle that is parallel to the rows may differ."""


def pixel_at(restored: RestoredArray, position: Sequence[float]) -> Index | None:
    """Return the pixel at a position in data coordinates; `None` outside.

    Args:
        restored: The result.
        position: A number for each axis. A pixel is centered at its index.
    """
    shape = restored.mean.shape[: restored.mean.ndim - restored.rgb]
    if not all(math.isfinite(number) for number in position):
        return None
    index = tuple(math.floor(number + 0.5) for number in position)
    inside = all(0 <= i < length for i, length in zip(index, shape, strict=True))
    return index if inside else None


def value_in_words(restored: RestoredArray, index: Index) -> str:
    """Say the value of a pixel with its interval, or with sigma where there is no calibration.

    Example:
        >>> image = np.full((2, 2), 103.0, np.float32)
        >>> restored = RestoredArray(name="a", rgb=False, mean=image, std=image / 103, factor=1.5,
        ...                          coverage=0.9, zoom=2, first=())
        >>> value_in_words(restored, (0, 1))
        '103, 90 % interval 101.5 to 104.5'
    """
    values = np.atleast_1d(restored.colors[index]).astype(np.float64)
    if not np.isfinite(values).all():
        return "no value"
    text = _joined(values)
    if restored.std is None:
        return text
    errors = np.atleast_1d(restored.std[index]).astype(np.float64)
    if restored.factor is None or restored.coverage is None:
        return f"{text}, sigma {_joined(errors)} (not calibrated)"
    half_width = restored.factor * errors
    ends = zip(values - half_width, values + half_width, strict=True)
    intervals = ", ".join(f"{low:{_NUMBER}} to {high:{_NUMBER}}" for low, high in ends)
    return f"{text}, {100 * restored.coverage:g} % interval {intervals}"


def box_of(corners: NDArray[np.float64], size: tuple[int, int]) -> Box:
    """Return the pixels whose centers lie inside a rectangle.

    Args:
        corners: Rows and columns of its corners in data coordinates of the result, ``(4, 2)``.
        size: Height and width of the result; pixels outside do not count.

    Raises:
        ConfigError: If it is turned, or holds no pixel.

    Example:
        >>> box_of(np.array([[1.6, 0.0], [1.6, 3.2], [4.0, 3.2], [4.0, 0.0]]), (8, 8))
        Box(x=0, y=2, width=4, height=3)
    """
    low, high = corners.min(0), corners.max(0)
    at_edges = np.minimum(np.abs(corners - low), np.abs(corners - high)) <= _PARALLEL
    if corners.shape != (4, 2) or not at_edges.all():
        raise ConfigError("the box must be a rectangle along the rows and columns of the layer")
    top, left = (max(0, math.ceil(number)) for number in low)
    bottom, right = (min(length - 1, math.floor(n)) for n, length in zip(high, size, strict=True))
    if bottom < top or right < left:
        raise ConfigError("the box holds no pixel of the result; draw it over the picture")
    return Box(left, top, right - left + 1, bottom - top + 1)


def box_in_words(restored: RestoredArray, plane: Index, box: Box) -> str:
    """Say the mean of a box and what is known about its error.

    Args:
        restored: The result.
        plane: Index of the plane in the result: a number for each axis before rows and columns.
        box: The pixels.
    """
    inside = f"Box of {box.width} x {box.height} pixels at {box.x}, {box.y}"
    mean = _as_channels(restored.colors[plane], rgb=restored.rgb)
    part = mean[..., box.y : box.y + box.height, box.x : box.x + box.width]
    if not part.isfinite().all():
        raise ConfigError("values are missing in the box; draw it where there are none")
    half_width = restored.half_width
    if half_width is None or restored.coverage is None:
        values = _joined(part.mean((0, 2, 3)).numpy())
        return f"{inside}: mean {values}. The model has no calibrated errors."
    errors = _as_channels(half_width[plane], rgb=restored.rgb)
    statistics = box_statistics(mean, errors, box, levels=1)
    return f"{inside}, {100 * restored.coverage:g} % interval: {in_words(statistics, _NUMBER)}"


def _as_channels(plane: NDArray[Any], *, rgb: bool) -> Tensor:
    """Return a plane as ``(1, C, H, W)``."""
    values = torch.from_numpy(plane.astype(np.float64))
    return values.permute(2, 0, 1)[None] if rgb else values[None, None]


def _joined(values: NDArray[np.float64]) -> str:
    return ", ".join(f"{value:{_NUMBER}}" for value in values)
