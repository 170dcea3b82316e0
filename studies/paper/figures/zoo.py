"""The figure of the study over all networks: gains, and gains against the distance from the end."""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from musigma.types import DataError
from studies.paper.figures.style import COLORS, INK, QUIET, Drawing, new_figure, style
from studies.paper.figures.training import scale_gains
from studies.paper.measurements import RecordSet
from studies.paper.zoo import (
    NOT_RUN,
    Entry,
    find_entries,
    joint_interval,
    longer_entries,
    sources_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW = 0.19
"""Inches of a row."""

SCATTER = 3.2
"""Inches of the lower panel."""


@style()
def draw_zoo(record_set: RecordSet) -> Drawing:
    """Draw the gain of every network, and below it gains against how far the loss still fell."""
    entries = find_entries(record_set)
    measured = [entry for entry in entries if entry.difference is not None]
    if not measured:
        raise DataError("no network of the study has records of l1 and of the full objective")
    longer = longer_entries(measured, record_set)
    rows = [(*group, None) for group in _by_task(entries)]
    lines = [entry for group in rows for entry in group][:-1]
    heights = (ROW * len(lines), SCATTER)
    figure = new_figure(1.2 + sum(heights))
    upper, lower = figure.subplots(2, 1, height_ratios=heights)
    _draw_gains(upper, lines, len(entries))
    _draw_distances(lower, measured, longer)
    sources = [source for entry in (*measured, *longer) for source in sources_of(entry)]
    caption = (
        f"What the paper's full objective gains over l1, for {len(measured)} of {len(entries)} "
        "networks; the others are not yet run. Thick bars: the 95 % interval of a gain by itself; "
        "thin bars: widened for the number of networks (Bonferroni). Both count seeds and images. "
        "Below: the gain against the share by which the loss of l1 still fell from the middle of "
        "the run to its last tenth. Lines join runs of one network that differ in their updates. "
        "The upper axis is linear in its middle and logarithmic beyond."
    )
    return Drawing(figure, caption, tuple(dict.fromkeys(sources)))


def _by_task(entries: Sequence[Entry]) -> list[tuple[Entry, ...]]:
    return [tuple(group) for _, group in groupby(entries, key=lambda entry: entry.task)]


def _draw_gains(axes: "Axes", lines: Sequence[Entry | None], num_networks: int) -> None:
    axes.axvline(0, color=QUIET, linewidth=1)
    for row, entry in enumerate(lines):
        if entry is None:
            continue
        if entry.difference is None:
            axes.annotate(NOT_RUN, (0, row), (4, 0), **_BESIDE, color=QUIET, fontsize=7)
            continue
        mean, *ends = entry.difference.interval()
        axes.plot(joint_interval(entry.difference, num_networks)[1:], (row, row), color=INK, lw=0.7)
        axes.plot(ends, (row, row), color=COLORS[0], linewidth=2.5)
        axes.plot(mean, row, "o", color=INK, markersize=4)
    names = [f"{entry.name} ({entry.task})" if entry else "" for entry in lines]
    axes.set(
        yticks=range(len(lines)),
        yticklabels=names,
        ylim=(len(lines) - 0.5, -0.5),
    )
    scale_gains(axes)
    axes.tick_params("y", length=0, labelcolor=INK)
    axes.grid(visible=False, axis="y")


_BESIDE: Any = {"textcoords": "offset points", "va": "center"}


def _draw_distances(axes: "Axes", measured: Sequence[Entry], longer: Sequence[Entry]) -> None:
    axes.axhline(0, color=QUIET, linewidth=1)
    for entry in measured:
        others = [other for other in longer if other.name == entry.name]
        points = [_point(each) for each in sorted((entry, *others), key=_updates)]
        axes.plot(*zip(*points, strict=True), color=QUIET, linewidth=1)
    for entry in (*measured, *longer):
        assert entry.difference is not None
        x, gain = _point(entry)
        low, high = entry.difference.interval()[1:]
        axes.plot((x, x), (low, high), color=COLORS[0], linewidth=1.4)
        axes.plot(x, gain, "o", color=INK, markersize=4)
        text = entry.name if entry in measured else f"{entry.name}, {_updates(entry):,}"
        axes.annotate(text, (x, high), (-2, 3), **_ABOVE)
    axes.margins(x=0.08, y=0.25)
    axes.set(
        xlabel="how far the loss of l1 still fell in the second half of the run (%)",
        ylabel="gain (dB)",
    )


_ABOVE: Any = {"textcoords": "offset points", "rotation": 40, "fontsize": 7}


def _point(entry: Entry) -> tuple[float, float]:
    assert entry.difference is not None
    return 100 * (entry.loss_fall or 0.0), entry.difference.mean


def _updates(entry: Entry) -> int:
    steps: int = entry.recipe["steps"]
    return steps
