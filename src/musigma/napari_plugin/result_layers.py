"""The layers of a result: what they hold, and where they lie. napari itself is not needed."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from musigma.images.science.samples import encode
from musigma.restoration.restore_array import RestoredArray


class Placement(NamedTuple):
    """Where a layer lies: pixel ``x`` is at ``linear @ x + translate``, and its step is ``scale``.

    Attributes:
        scale: Size of a pixel along each axis.
        translate: Place of the center of the first pixel.
        linear: Matrix of scale, rotation and shear.
    """

    scale: NDArray[np.float64]
    translate: NDArray[np.float64]
    linear: NDArray[np.float64]


class LayerTuple(NamedTuple):
    """A layer that is to be made: its data, and its properties by name."""

    data: NDArray[Any]
    properties: dict[str, Any]


def placement_of(restored: RestoredArray, source: Placement) -> dict[str, NDArray[np.float64]]:
    """Return ``scale`` and ``translate`` by which a result covers its source exactly.

    A pixel of napari is centered at its index, so that the first pixel of the source begins half a
    pixel before 0. At zoom 2 the center of the first restored pixel is at -1/4 of the source.

    Args:
        restored: The result.
        source: Where the source lies.

    Example:
        >>> image = np.zeros((4, 4), np.float32)
        >>> restored = RestoredArray(name="a", rgb=False, mean=image, std=None, factor=None,
        ...                          coverage=None, zoom=2, first=())
        >>> source = Placement(np.array([1.0, 1.0]), np.array([0.0, 0.0]), np.eye(2))
        >>> placement_of(restored, source)
        {'scale': array([0.5, 0.5]), 'translate': array([-0.25, -0.25])}
    """
    before_first = 0.5 / restored.zoom - 0.5
    offset = np.array([*restored.first, before_first, before_first])
    scale = np.array(source.scale, np.float64)
    scale[-2:] /= restored.zoom
    return {"scale": scale, "translate": source.translate + source.linear @ offset}


def bounds(restored: RestoredArray) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Return both ends of the intervals, rounded outwards where the values are integers.

    Returns:
        `None` for a model without sigma or without a calibration.
    """
    half_width = restored.half_width
    if half_width is None:
        return None
    mean, dtype = restored.colors, restored.mean.dtype
    if dtype.kind == "f":
        return (mean - half_width).astype(dtype), (mean + half_width).astype(dtype)
    low, high = np.floor(mean - half_width), np.ceil(mean + half_width)
    return encode(low.astype(np.float64), dtype), encode(high.astype(np.float64), dtype)


def result_layers(
    restored: RestoredArray, *, look: dict[str, Any], intervals: bool = True
) -> list[LayerTuple]:
    """Return the layers of a result from the lowest to the highest; the mean alone is shown.

    Args:
        restored: The result.
        look: How the source is shown and where the result lies, for all of the layers: properties
            of an image layer, without its name.
        intervals: Whether to add the ends of the intervals.
    """
    placed = {k: v for k, v in look.items() if k not in ("contrast_limits", "colormap", "gamma")}
    name, info = restored.name, {"musigma": restored.info}
    layers = []
    if restored.std is not None:
        layers.append(LayerTuple(_gray(restored), placed | _sigma_look(restored)))
    ends = bounds(restored) if intervals else None
    if ends is not None and restored.coverage is not None:
        share = f"{100 * restored.coverage:g} %"
        for end, words in zip(ends, (f"lower {share}", f"upper {share}"), strict=True):
            of_end = {"name": f"{name} {words}", "rgb": restored.rgb, "visible": False}
            layers.append(LayerTuple(end, look | of_end))
    layers.append(LayerTuple(restored.mean, look | {"name": f"{name} mean", "rgb": restored.rgb}))
    return [LayerTuple(data, properties | {"metadata": info}) for data, properties in layers]


def _gray(restored: RestoredArray) -> NDArray[np.float32]:
    """Return sigma for display: of colors their mean, as in the error maps of files."""
    assert restored.std is not None
    return restored.std.mean(-1) if restored.rgb else restored.std


def _sigma_look(restored: RestoredArray) -> dict[str, Any]:
    assert restored.std is not None
    largest = float(np.nanmax(restored.std, initial=0.0))
    return {
        "name": f"{restored.name} sigma",
        "rgb": False,
        "visible": False,
        "colormap": "inferno",
        "contrast_limits": (0.0, largest if np.isfinite(largest) and largest > 0 else 1.0),
    }
