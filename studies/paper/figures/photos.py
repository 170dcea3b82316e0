"""Figures of pictures: the result beside its neighbors, and sigma beside the true error."""

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from musigma.datasets.catalog import ROOT_VARIABLE, find_dataset
from musigma.datasets.demo_photo import portrait
from musigma.evaluation.protocol import super_resolution
from musigma.functional.geometry import crop_to_multiple
from musigma.images.image_io import read_image
from musigma.model import load
from musigma.prediction.predict import predict
from musigma.types import DataError
from studies.paper.figures.style import COLORS, INK, QUIET, Drawing, new_figure, style
from studies.paper.measurements import RecordSet

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NETWORK = "edsr-baseline"


class Detail(NamedTuple):
    """A square of a picture; without a set, of the portrait that is always at hand."""

    scale: int
    top: int
    left: int
    side: int
    picture: str = "portrait"
    data: str = ""


_PORTRAIT = (Detail(2, 40, 216, 120), Detail(3, 96, 160, 144), Detail(4, 436, 316, 144))
_BENCHMARK = (
    Detail(2, 280, 440, 120, "barbara", "Set14"),
    Detail(3, 40, 60, 144, "comic", "Set14"),
    Detail(4, 100, 100, 192, "zebra", "Set14"),
)


@style()
def draw_comparison(record_set: RecordSet) -> Drawing:  # noqa: ARG001 - every figure is given the records
    """Draw the input, bicubic enlargement, the shipped network and the truth, at x2, x3 and x4."""
    details, where = _details()
    figure = new_figure(6.6)
    grid: Any = figure.subplots(len(details), 4)
    for row, detail in zip(grid, details, strict=True):
        protocol = super_resolution(detail.scale)
        low, target = protocol.pair(_cut(detail), detail.picture)
        shown: dict[str, Tensor] = {"input": low}
        scores = {"input": "", "truth": ""}
        for title, name in (("bicubic", "bicubic"), ("musigma", NETWORK)):
            shown[title] = predict(load(name, scale=detail.scale).network, low).mean
            scores[title] = f"{protocol.fidelity(shown[title], target)['psnr_y']:.2f} dB"
        shown["truth"] = target
        for axes, (title, image) in zip(row, shown.items(), strict=True):
            _show(axes, image)
            axes.set_title(title if detail is details[0] else "")
            axes.set_xlabel(scores[title], color=QUIET, labelpad=3)
        row[0].set_ylabel(f"{detail.picture} x{detail.scale}", color=INK)
    caption = (
        f"Details {where}, shrunk and enlarged again at x2, x3 and x4 by bicubic interpolation and "
        f"by the shipped {NETWORK}; PSNR on Y of the detail. What is finer than the input can "
        "hold, such as narrow stripes, a network invents, and may invent wrongly."
    )
    return Drawing(figure, caption)


@style()
def draw_sigma(record_set: RecordSet) -> Drawing:  # noqa: ARG001 - every figure is given the records
    """Draw sigma beside the true error, and how large errors are where sigma has a value."""
    scale = 3
    model, protocol = load(NETWORK, scale=scale), super_resolution(scale)
    low, target = protocol.pair(portrait()[..., :378, 90:468], "portrait")  # head and cap
    mean, sigma = predict(model.network, low)
    assert sigma is not None
    error = (mean - target).abs()
    figure = new_figure(5.0)
    halves: Any = figure.subfigures(2, 1, height_ratios=(1, 1.25))
    upper, lower = halves
    detail = (slice(None), slice(None), slice(90, 252), slice(60, 222))
    small = torch.nn.functional.interpolate(low, scale_factor=scale, mode="nearest")
    panels: Any = upper.subplots(1, 5)
    titles = ("input", "truth", "result", "true error", "predicted error")
    maps = (small, target, mean, error, sigma)
    top = float(np.percentile(255 * error.mean(1).numpy(), 99))
    for axes, title, image in zip(panels, titles, maps, strict=True):
        drawn = _show(axes, image[detail], top=top if "error" in title else None)
        axes.set_title(title)
    bar = upper.colorbar(drawn, ax=list(panels), shrink=0.8, aspect=14, pad=0.01, extend="max")
    bar.set_label("levels of 255")
    bar.outline.set_visible(False)
    left, right = lower.subplots(1, 2, width_ratios=(1.25, 1))
    _draw_quantiles(left, 255 * sigma.flatten().numpy(), 255 * error.flatten().numpy())
    _draw_histogram(right, (error / sigma).flatten().numpy())
    caption = (
        f"The shipped {NETWORK} x{scale} on a photo. Above: predicted beside true error, on one "
        "scale. Below, left: the median true error and the middle half of the errors, among values "
        "of about the same sigma; a sigma that is the median, as the paper's auxiliary loss asks, "
        "lies on the dashed line, and one that is the mean (sigma_l2) has the median just below "
        "it. Right: how often the error is how many times sigma; left of 1 lies half of it for a "
        "median, and somewhat more for a mean."
    )
    return Drawing(figure, caption)


def _draw_quantiles(axes: "Axes", sigma: Any, error: Any) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    edges = np.quantile(sigma, np.linspace(0, 1, 33))
    inside = np.clip(np.searchsorted(edges, sigma, side="right") - 1, 0, 31)
    groups = [error[inside == number] for number in range(32)]
    at = np.array([np.median(sigma[inside == number]) for number in range(32)])
    low, middle, high = np.array([np.quantile(group, (0.25, 0.5, 0.75)) for group in groups]).T
    axes.fill_between(at, low, high, color=COLORS[0], alpha=0.15, linewidth=0)
    axes.plot(at, middle, color=COLORS[0])
    ends = np.array([at[0], at[-1]])
    axes.plot(ends, ends, color=INK, linewidth=1, linestyle=(0, (4, 3)))
    axes.set(xscale="log", yscale="log", xlim=ends)
    axes.set(xlabel="predicted error, sigma (levels of 255)", ylabel="true error (levels of 255)")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_locator(NullLocator())
    axes.text(
        0.03, 0.95, "median and middle half", color=COLORS[0], va="top", transform=axes.transAxes
    )


def _draw_histogram(axes: "Axes", ratio: Any) -> None:
    share = float((ratio <= 1).mean())
    axes.hist(ratio, bins=np.linspace(0, 5, 51).tolist(), color=COLORS[0], alpha=0.75, density=True)
    axes.axvline(1, color=INK, linewidth=1, linestyle=(0, (4, 3)))
    axes.set(xlim=(0, 5), yticks=[], xlabel="true error / sigma")
    axes.spines.left.set_visible(False)
    text_style: Any = {"va": "top", "transform": axes.get_xaxis_transform(), "color": INK}
    axes.text(1.15, 0.97, f"{share:.0%} of the errors\nlie below sigma", **text_style)


def _details() -> tuple[tuple[Detail, ...], str]:
    """Return the benchmark's details where its pictures are, or else those of the portrait."""
    if os.environ.get(ROOT_VARIABLE):
        try:
            names = {item.name for item in find_dataset("Set14").items}
        except DataError:
            names = set()  # the folder may hold other sets only
        if names.issuperset(detail.picture for detail in _BENCHMARK):
            return _BENCHMARK, "of Set14"
    return _PORTRAIT, "of the portrait that matplotlib carries"


def _cut(detail: Detail) -> Tensor:
    if detail.data:
        items = {item.name: item.target for item in find_dataset(detail.data).items}
        image = read_image(items[detail.picture])[0]
    else:
        image = portrait()
    rows, columns = (slice(start, start + detail.side) for start in (detail.top, detail.left))
    return crop_to_multiple(image[..., rows, columns], detail.scale)


def _show(axes: "Axes", image: Tensor, top: float | None = None) -> Any:
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(False)
    if top is not None:
        return axes.imshow(255 * image[0].mean(0).numpy(), cmap="magma", vmin=0, vmax=top)
    return axes.imshow(image[0].clamp(0, 1).permute(1, 2, 0).numpy(), interpolation="nearest")
