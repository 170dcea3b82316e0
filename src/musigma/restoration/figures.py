"""Drawings of errors and of how far a sigma can be trusted, in one quiet style.

Every ``draw_*`` returns a matplotlib figure that belongs to no window, and `write_picture` puts it
into a file. The lines have the colours of Okabe and Ito, which colour-blind readers can tell apart.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from musigma.atomic import write_atomically
from musigma.functional.scores import psnr_of
from musigma.images.listing import image_error
from musigma.types import ConfigError, ImageError
from musigma.uncertainty.metrics.intervals import ReliabilityCurve
from musigma.uncertainty.metrics.sparsification import SparsificationCurve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_Curve = TypeVar("_Curve", ReliabilityCurve, SparsificationCurve)

INK, QUIET, _GRID = "#23221f", "#66635c", "#e7e5e0"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_DASHED = (0, (4, 3))
_STYLE: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same picture everywhere
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _GRID,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "svg.hashsalt": "musigma",  # the same drawing gives the same bytes
}


@contextmanager
def style() -> Iterator[None]:
    """Draw with our fonts, colours and lines while the block runs, or as a decorator."""
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        yield


@style()
def write_picture(path: Path | str, figure: "Figure") -> None:
    """Write a figure as PNG or SVG, as the suffix asks, whole or not at all."""
    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("png", "svg"):
        raise image_error(path, "a drawing must end in .png or .svg")
    buffer = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else None
    figure.savefig(buffer, format=kind, dpi=160, bbox_inches="tight", metadata=metadata)
    write_atomically(path, buffer.getvalue())


@style()
def draw_error_map(values: Tensor, *, label: str, top: float | None = None) -> "Figure":
    """Draw errors, averaged over the channels, in colours with a scale in levels of 255.

    Args:
        values: Predicted errors, half-widths of intervals or true errors, ``(1, C, H, W)``, in
            image units and not negative.
        label: What they are.
        top: The level at which the scale ends; without it 0.5 % of the pixels lie beyond.
    """
    return _draw_maps([values], [""], label=label, top=top)


@style()
def draw_error_beside_sigma(error: Tensor, sigma: Tensor) -> "Figure":
    """Draw the true and the predicted error on one scale, with two numbers that compare them.

    They are Pearson's correlation over all values, and the PSNR (dB, peak 1) between the two, which
    is `musigma.functional.scores.sigma_psnr`.

    Args:
        error: ``|target - mean|``, ``(1, C, H, W)``.
        sigma: The same shape.
    """
    if error.shape != sigma.shape:
        shapes = f"{tuple(error.shape)} and {tuple(sigma.shape)}"
        raise ImageError(f"error and sigma must share one shape, got {shapes}")
    figure = _draw_maps([error, sigma], ["True error", "Predicted error"], label="error", top=None)
    likeness = float(psnr_of((sigma.double() - error.double()).square().mean()))
    caption = f"correlation {_correlation(error, sigma)}, PSNR between the two {likeness:.2f} dB"
    figure.supxlabel(caption, size="medium")
    return figure


@style()
def draw_reliability(curves: Mapping[str, ReliabilityCurve]) -> "Figure":
    """Draw how often intervals of every level hold the target, one line for each named curve.

    The curves come from `musigma.uncertainty.metrics.intervals.Reliability`.
    """
    figure, axes = _plot(height=4.8)
    axes.plot([0, 100], [0, 100], color=QUIET, linewidth=1, linestyle=_DASHED, label="as promised")
    for colour, (name, curve) in _coloured(curves):
        label = f"{name}: calibration error {100 * curve.calibration_error:.1f} %"
        axes.plot(100 * curve.level, 100 * curve.observed, color=colour, label=label)
    for x, y, text in ((3, 95, "intervals too wide"), (62, 3, "intervals too narrow")):
        axes.text(x, y, text, color=QUIET, size="small")
    axes.set(xlim=(0, 100), ylim=(0, 100), aspect="equal")
    axes.set(xlabel="promised coverage (%)", ylabel="observed coverage (%)")
    figure.legend(loc="outside lower left")
    return figure


@style()
def draw_sparsification(curves: Mapping[str, SparsificationCurve]) -> "Figure":
    """Draw the error left when the values of largest sigma go first, one line for each named curve.

    The dashed line of its colour removes the largest errors first, as no sigma can better; the area
    between the two is AUSE. The curves come from `musigma.uncertainty.metrics`.
    """
    figure, axes = _plot(height=3.8)
    axes.axhline(100, color=QUIET, linewidth=1, linestyle=":", label="in random order")
    axes.plot([], color=QUIET, linewidth=1, linestyle=_DASHED, label="largest error first")
    for colour, (name, curve) in _coloured(curves):
        removed, by_sigma, by_error = (100 * values for values in curve)
        axes.plot(removed, by_sigma, color=colour, label=f"{name}: AUSE {curve.ause:.3f}")
        axes.plot(removed, by_error, color=colour, linewidth=1, linestyle=_DASHED)
        axes.fill_between(removed, by_error, by_sigma, color=colour, alpha=0.08, linewidth=0)
    axes.set(xlim=(0, 100), ylim=(0, None))
    axes.set(xlabel="values removed (%)", ylabel="error of the rest (% of all)")
    figure.legend(loc="outside lower left")
    return figure


def _plot(*, height: float) -> "tuple[Figure, Axes]":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.8, height), layout="constrained")
    return figure, figure.add_subplot()


def _coloured(curves: Mapping[str, _Curve]) -> Iterator[tuple[str, tuple[str, _Curve]]]:
    if not 1 <= len(curves) <= len(COLOURS):
        raise ConfigError(f"one drawing holds 1 to {len(COLOURS)} curves, got {len(curves)}")
    return zip(COLOURS, curves.items(), strict=False)


def _draw_maps(
    maps: Sequence[Tensor], titles: Sequence[str], *, label: str, top: float | None
) -> "Figure":
    from matplotlib.figure import Figure

    levels = [_levels(map_) for map_ in maps]
    end = float(np.percentile(levels, 99.5)) if top is None else top
    height, width = levels[0].shape
    across = max(1.6, 4.8 * min(1, width / height))  # inches; the scale's label needs some
    down = 4.8 * min(1, height / width)
    figure = Figure((len(maps) * across, down + 0.9), layout="compressed")
    grid = figure.subplots(1, len(maps), squeeze=False)
    for axes, map_, title in zip(grid[0], levels, titles, strict=True):
        image = axes.imshow(map_, cmap="magma", vmin=0, vmax=end or 1)
        axes.set_title(title)
        axes.axis("off")
    bar = figure.colorbar(
        image,
        ax=grid,
        location="bottom",
        aspect=40 * len(maps),
        pad=0.02,
        extend="max" if np.max(levels) > end else "neither",
        extendfrac=0.02,
    )
    bar.set_label(f"{label} (levels of 255)")
    bar.outline.set_visible(False)
    return figure


def _levels(values: Tensor) -> NDArray[np.float32]:
    if values.ndim != 4 or values.shape[0] != 1 or not values.numel():
        raise ImageError(f"expected one error map (1, C, H, W), got shape {tuple(values.shape)}")
    if not bool((values >= 0).all() and values.isfinite().all()):
        raise ImageError("an error map must be finite and not negative; take the absolute error")
    return (255 * values.detach().float().mean((0, 1))).cpu().numpy()


def _correlation(one: Tensor, other: Tensor) -> str:
    if one.min() == one.max() or other.min() == other.max():
        return "undefined"  # a constant goes along with nothing
    return f"{float(torch.stack([one.flatten(), other.flatten()]).double().corrcoef()[0, 1]):.2f}"
