"""The one style of all drawings, and what several figures do alike."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from musigma.restoration.figures import COLORS, INK, QUIET, style
from musigma.uncertainty.conformal import isotonic_regression

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLORS", "INK", "QUIET", "Drawing", "label_ends", "new_figure", "style"]

WIDTH = 8.0
"""Inches of every figure, so that their letters have one size on a page."""


@dataclass(frozen=True)
class Drawing:
    """A figure, what it shows, and the records it comes from."""

    figure: "Figure"
    caption: str
    sources: tuple[str, ...] = ()


def new_figure(height: float) -> "Figure":
    """Return an empty figure that belongs to no window."""
    from matplotlib.figure import Figure

    return Figure((WIDTH, height), layout="constrained")


def label_ends(axes: "Axes", ends: Mapping[str, tuple[float, str]], *, gap: float = 0.08) -> None:
    """Write names behind the ends of lines, at the right edge, moved apart where they would touch.

    Args:
        axes: With their final limits.
        ends: By name, the last value of the line and its color.
        gap: Least distance between two names, as a share of the axes.
    """
    names = sorted(ends, key=lambda name: ends[name][0])
    to_axes = axes.transData + axes.transAxes.inverted()
    heights = np.array([to_axes.transform((0, ends[name][0]))[1] for name in names])
    # The nearest heights that are a gap apart: a regression that never falls, on top of the gaps.
    gaps = gap * np.arange(len(names))
    heights = isotonic_regression(heights - gaps, np.ones(len(names))) + gaps
    heights += max(0.0, 0.03 - heights[0])  # above the axis and its numbers
    for name, height in zip(names, heights, strict=True):
        text_style: Any = {"xycoords": "axes fraction", "textcoords": "offset points"}
        axes.annotate(name, (1, height), (6, 0), color=ends[name][1], va="center", **text_style)
