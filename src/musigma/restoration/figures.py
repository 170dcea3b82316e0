"""Figures: one style for all of them, and the true error beside the predicted one.

Figures belong to no window; `write_picture` saves them. The colors are those of Okabe and Ito,
which color-blind readers can distinguish.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from musigma.atomic import write_atomically
from musigma.functional.finite import is_finite
from musigma.functional.scores import psnr_of
from musigma.images.listing import image_error
from musigma.types import ImageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, QUIET, _GRID = "#23221f", "#66635c", "#e7e5e0"
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
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
    """Use our fonts, colors and lines inside the block, or in a decorated function."""
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        yield


@style()
def write_picture(path: Path | str, figure: "Figure") -> None:
    """Write a figure as PNG or SVG, as the suffix says; the file is complete or not there."""
    path = Path(path)
    format_name = path.suffix.lower().removeprefix(".")
    if format_name not in ("png", "svg"):
        raise image_error(path, "a figure must end in .png or .svg")
    buffer = io.BytesIO()
    metadata = {"Date": None} if format_name == "svg" else None
    figure.savefig(buffer, format=format_name, dpi=160, bbox_inches="tight", metadata=metadata)
    write_atomically(path, buffer.getvalue())


@style()
def draw_error_beside_sigma(error: Tensor, sigma: Tensor) -> "Figure":
    """Draw the true error and sigma on one scale, with two numbers that compare them.

    The numbers are Pearson's correlation over all values, and the PSNR (dB, peak 1) between the two
    maps (`musigma.functional.scores.sigma_psnr`).

    Args:
        error: ``|target - mean|``, ``(1, C, H, W)``.
        sigma: The absolute error that the network predicts, in the same shape.
    """
    if error.shape != sigma.shape:
        shapes = f"{tuple(error.shape)} and {tuple(sigma.shape)}"
        raise ImageError(f"error and sigma must share one shape, got {shapes}")
    titles = ["True absolute error", "sigma: predicted absolute error"]
    figure = _draw_maps([error, sigma], titles)
    difference = float(psnr_of((sigma.double() - error.double()).square().mean()))
    caption = f"correlation {_correlation(error, sigma)}, PSNR between the two {difference:.2f} dB"
    figure.supxlabel(caption, size="medium")
    return figure


@style()
def draw_panels(
    pictures: Mapping[str, Tensor], maps: Mapping[str, Tensor] | None = None, *, columns: int = 2
) -> "Figure":
    """Draw pictures and error maps of one scene beside each other, each under its title.

    Small pictures are shown as large as the others, pixel by pixel. Error maps share one scale,
    which ends where 0.5 % of their pixels lie beyond.

    Args:
        pictures: Images ``(1, 1 or 3, H, W)`` in ``[0, 1]``, by title; other values are clamped.
        maps: Error maps ``(1, C, H, W)``, not negative, by title; the mean over the channels is
            shown in levels of 255.
        columns: Panels in a row.

    Example:
        >>> image = torch.rand(1, 3, 8, 8)
        >>> len(draw_panels({"input": image}, {"std": 0.1 * image}).axes)  # with the scale
        3
    """
    from matplotlib.figure import Figure

    levels = {title: _levels(values) for title, values in (maps or {}).items()}
    height, width = next(iter(pictures.values())).shape[-2:]
    panels = len(pictures) + len(levels)
    rows = -(-panels // columns)
    figure = Figure(
        (3 * columns, rows * (3 * height / width + 0.3) + 0.6 * bool(levels)), layout="compressed"
    )
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel in axes:
        panel.axis("off")
    for panel, (title, picture) in zip(axes, pictures.items(), strict=False):
        shown = picture[0].detach().float().cpu().clamp(0, 1).permute(1, 2, 0)
        panel.imshow(shown.expand(-1, -1, 3).numpy(), interpolation="nearest")
        panel.set_title(title)
    if levels:
        _fill_maps(figure, axes[len(pictures) : panels], levels, all_axes=axes)
    return figure


def _fill_maps(figure: "Figure", axes: Any, levels: Mapping[str, Any], *, all_axes: Any) -> None:
    """Draw error maps with one scale below all axes."""
    values = np.concatenate([map_.ravel() for map_ in levels.values()])
    top = float(np.percentile(values, 99.5)) or 1.0
    for panel, (title, map_) in zip(axes, levels.items(), strict=True):
        image = panel.imshow(map_, cmap="magma", vmin=0, vmax=top, interpolation="nearest")
        panel.set_title(title)
    _add_scale(figure, image, all_axes, aspect=60, clipped=bool(values.max() > top))


def _add_scale(figure: "Figure", image: Any, axes: Any, *, aspect: int, clipped: bool) -> None:
    bar = figure.colorbar(
        image,
        ax=axes,
        location="bottom",
        aspect=aspect,
        pad=0.02,
        extend="max" if clipped else "neither",
        extendfrac=0.02,
    )
    bar.set_label("error (levels of 255)")
    bar.outline.set_visible(False)


def _draw_maps(maps: Sequence[Tensor], titles: Sequence[str]) -> "Figure":
    from matplotlib.figure import Figure

    levels = [_levels(map_) for map_ in maps]
    top = float(np.percentile(levels, 99.5))
    height, width = levels[0].shape
    across = max(1.6, 4.8 * min(1, width / height))  # inches; the scale's label needs some
    down = 4.8 * min(1, height / width)
    figure = Figure((len(maps) * across, down + 0.9), layout="compressed")
    grid = figure.subplots(1, len(maps), squeeze=False)
    for axes, map_, title in zip(grid[0], levels, titles, strict=True):
        image = axes.imshow(map_, cmap="magma", vmin=0, vmax=top or 1)
        axes.set_title(title)
        axes.axis("off")
    _add_scale(figure, image, grid, aspect=40 * len(maps), clipped=bool(np.max(levels) > top))
    return figure


def _levels(values: Tensor) -> NDArray[np.float32]:
    if values.ndim != 4 or values.shape[0] != 1 or not values.numel():
        raise ImageError(f"expected one error map (1, C, H, W), got shape {tuple(values.shape)}")
    if not is_finite(values) or bool(values.min() < 0):
        raise ImageError("an error map must be finite and not negative; take the absolute error")
    return (255 * values.detach().float().mean((0, 1))).cpu().numpy()


def _correlation(error: Tensor, sigma: Tensor) -> str:
    if error.min() == error.max() or sigma.min() == sigma.max():
        return "undefined"  # a constant has no correlation
    maps = torch.stack([error.flatten(), sigma.flatten()]).double()
    return f"{float(maps.corrcoef()[0, 1]):.2f}"
