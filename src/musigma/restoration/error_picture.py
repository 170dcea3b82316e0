"""The picture of an error map: its values in colors, above a scale bar.

The colors are looked up row by row and only the scale bar is a figure of matplotlib, because a
figure of the whole map takes a hundred bytes for each pixel.
"""

import io
import math

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

LONGEST_SIDE = 2048
"""Larger maps are downsampled to this many pixels."""

SMALLEST_WIDTH = 512
"""Narrower maps are enlarged by a whole number."""

COLORS = "magma"
BAND = 64
"""Rows that are colored at a time."""

DPI = 128
"""A power of two, so that sizes in inches are exact in pixels."""


def error_picture(values: Tensor, label: str, description: str) -> bytes:
    """Return a PNG of an error map, pixel for pixel where its size allows, above a scale bar.

    The scale ends where 0.5 % of the pixels lie beyond, so that a few of them do not darken all.

    Args:
        values: ``(1, 1 or 3, H, W)``; their mean over the channels is drawn, in levels of 255.
        label: Of the scale bar.
        description: Stored in the file.
    """
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    levels = _resized_for_display(values.mean(1, keepdim=True) * 255)
    top = float(np.percentile(levels, 99.5)) or 1.0
    height, width = levels.shape
    letter = round(min(max(width / 40, 12), 28))
    bar = _scale_bar(
        label,
        top=top,
        has_larger=bool(levels.max() > top),
        width=max(width, 36 * letter) + 2 * letter,  # room for the label
        letter=letter,
    )
    canvas = np.full((letter + height + len(bar), bar.shape[1], 3), 255, np.uint8)
    left = (bar.shape[1] - width) // 2
    _color(levels, top, out=canvas[letter : letter + height, left : left + width])
    canvas[letter + height :] = bar
    info = PngInfo()
    info.add_text("Description", description)
    buffer = io.BytesIO()
    Image.fromarray(canvas).save(buffer, format="png", pnginfo=info, dpi=(DPI, DPI))
    return buffer.getvalue()


def _color(levels: NDArray[np.float32], top: float, *, out: NDArray[np.uint8]) -> None:
    """Write the color of every level; levels from `top` on have the last one."""
    from matplotlib import colormaps

    table = (colormaps[COLORS](np.arange(256))[:, :3] * 255).round().astype(np.uint8)
    for first in range(0, len(levels), BAND):
        rows = slice(first, first + BAND)
        out[rows] = table[np.minimum(levels[rows] * (256 / top), 255).astype(np.uint8)]


def _scale_bar(
    label: str, *, top: float, has_larger: bool, width: int, letter: int
) -> NDArray[np.uint8]:
    """Return the picture of a scale bar with its label.

    Args:
        label: What the numbers are.
        top: The number at the right end.
        has_larger: Whether there are larger values, which the end then shows by an arrow.
        width: In pixels.
        letter: Height of a letter in pixels; the picture is six of them high.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

    height = 6 * letter
    figure = Figure((width / DPI, height / DPI), dpi=DPI, facecolor="white")
    canvas = FigureCanvasAgg(figure)
    # One letter of space, the bar of one letter, and below it numbers and label.
    box = (letter / width, 4 / 6, 1 - 2 * letter / width, 1 / 6)
    scale = figure.colorbar(
        ScalarMappable(Normalize(0, top), COLORS),
        cax=figure.add_axes(box),
        orientation="horizontal",
        extend="max" if has_larger else "neither",
        extendfrac=0.02,
    )
    size = letter * 72 / DPI
    scale.set_label(label, size=size)
    scale.ax.tick_params(labelsize=size)
    canvas.draw()  # type: ignore[no-untyped-call]
    pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
    return pixels[..., :3]


def _resized_for_display(levels: Tensor) -> NDArray[np.float32]:
    """Downsample a large map, and enlarge a small one by a whole number."""
    height, width = levels.shape[-2:]
    largest = max(height, width)
    if largest > LONGEST_SIDE:
        size = [max(1, side * LONGEST_SIDE // largest) for side in (height, width)]
        levels = functional.interpolate(levels, size=size, mode="area")
    else:
        factor = min(math.ceil(SMALLEST_WIDTH / width), LONGEST_SIDE // largest)
        levels = levels.repeat_interleave(factor, 2).repeat_interleave(factor, 3)
    drawn: NDArray[np.float32] = levels[0, 0].numpy()
    return drawn
