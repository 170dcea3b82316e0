"""The figure of the study over all networks: gains, and gains against the distance from the end."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from statistics import fmean
from typing import TYPE_CHECKING

from musigma.types import DataError
from studies.paper.figures.style import COLORS, INK, QUIET, Drawing, new_figure, style
from studies.paper.figures.training import LINEAR, scale_gains
from studies.paper.measurements import RecordSet
from studies.paper.zoo import (
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

SCATTER, NAMES = 3.0, 1.7
"""Inches of the lower panel, and of the names above it."""

NAME_WIDTH = 0.026
"""Least distance of two names, as a share of the panel's width."""


@style()
def draw_zoo(record_set: RecordSet) -> Drawing:
    """Draw the gain of every network, and below it gains against how far the loss still fell."""
    entries = find_entries(record_set)
    measured = [entry for entry in entries if entry.difference is not None]
    if not measured:
        raise DataError("no network of the study has records of l1 and of the full objective")
    longer = longer_entries(measured, record_set)
    rows = [(*group, None) for group in _by_task(measured)]
    lines = [entry for group in rows for entry in group][:-1]
    heights = (ROW * len(lines), SCATTER)
    figure = new_figure(1.2 + NAMES + sum(heights))
    upper, lower = figure.subplots(2, 1, height_ratios=heights)
    _draw_gains(upper, lines, len(entries))
    _draw_distances(lower, measured, longer)
    sources = [source for entry in (*measured, *longer) for source in sources_of(entry)]
    caption = (
        f"What the paper's full objective gains over l1, for {len(measured)} of {len(entries)} "
        "networks; the others are not yet run, or not completely. Thick bars: the 95 % interval "
        "of a gain by itself; thin bars: widened for the number of networks (Bonferroni). Both "
        "count seeds and images. Below: the gain against the share by which the loss of l1 still "
        "fell from the middle of the run to its last tenth, blue for networks that enlarge and "
        "orange for denoisers, with their updates. Lines join runs of one network that differ in "
        "their updates. The upper axis is linear in its middle and logarithmic beyond."
    )
    return Drawing(figure, caption, tuple(dict.fromkeys(sources)))


def _by_task(entries: Sequence[Entry]) -> list[tuple[Entry, ...]]:
    return [tuple(group) for _, group in groupby(entries, key=lambda entry: entry.task)]


def _draw_gains(axes: "Axes", lines: Sequence[Entry | None], num_networks: int) -> None:
    axes.axvline(0, color=QUIET, linewidth=1)
    for row, entry in enumerate(lines):
        if entry is None:
            continue
        assert entry.difference is not None
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


def _draw_distances(axes: "Axes", measured: Sequence[Entry], longer: Sequence[Entry]) -> None:
    measured, longer = _with_distance(measured), _with_distance(longer)
    axes.axhline(0, color=QUIET, linewidth=1)
    for entry in measured:
        others = [other for other in longer if other.name == entry.name]
        points = [_point(each) for each in sorted((entry, *others), key=_updates)]
        axes.plot(*zip(*points, strict=True), color=QUIET, linewidth=1)
    for entry in (*measured, *longer):
        assert entry.difference is not None
        x, gain = _point(entry)
        low, high = entry.difference.interval()[1:]
        axes.plot((x, x), (low, high), color=_color(entry), linewidth=1.4)
        axes.plot(x, gain, "o", color=_color(entry), markersize=4)
    axes.set_ylim(-LINEAR, 2 * LINEAR)
    _name_points(axes, {_label(entry): _point(entry) for entry in (*measured, *longer)})
    axes.set(
        xlabel="how far the loss of l1 still fell in the second half of the run (%)",
        ylabel="gain (dB)",
    )


def _color(entry: Entry) -> str:
    """Return one color for networks that enlarge, and another one for denoisers."""
    return COLORS[0] if entry.recipe["scale"] > 1 else COLORS[1]


def _label(entry: Entry) -> str:
    network, steps = entry.recipe["network"], entry.recipe["steps"]
    return f"{network}, {steps:,}"


def _name_points(axes: "Axes", points: Mapping[str, tuple[float, float]]) -> None:
    """Write the names above the panel, side by side, with a line from each to its point."""
    ordered = sorted(points.items(), key=lambda item: item[1])
    left, right = 0.0, max(x for _, (x, _) in ordered) * 1.06
    axes.set_xlim(left, right)
    places = spread([x for _, (x, _) in ordered], least_gap=(right - left) * NAME_WIDTH)
    top = axes.get_ylim()[1]
    for place, (name, point) in zip(places, ordered, strict=True):
        axes.annotate(
            name,
            point,
            (place, top),
            rotation=90,
            ha="center",
            va="bottom",
            fontsize=7,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": QUIET, "linewidth": 0.5, "shrinkB": 3},
        )


def spread(places: Sequence[float], *, least_gap: float) -> list[float]:
    """Move ordered places apart until no two are nearer than a gap, each group about its middle.

    Example:
        >>> spread([1.0, 1.5, 4.0], least_gap=1.0)
        [0.75, 1.75, 4.0]
    """
    groups: list[list[float]] = []
    for place in places:
        groups.append([place])
        while len(groups) > 1 and _first_of(groups[-1], least_gap) < (
            _first_of(groups[-2], least_gap) + least_gap * len(groups[-2])
        ):
            last = groups.pop()
            groups[-1] += last
    return [
        _first_of(group, least_gap) + least_gap * number
        for group in groups
        for number in range(len(group))
    ]


def _first_of(group: Sequence[float], gap: float) -> float:
    """Return where the first of a group lies that is spread about the mean of its places."""
    return fmean(group) - gap * (len(group) - 1) / 2


def _with_distance(entries: Sequence[Entry]) -> list[Entry]:
    """Leave out networks whose logs are too short to tell how far they were from their end."""
    return [entry for entry in entries if entry.loss_fall is not None]


def _point(entry: Entry) -> tuple[float, float]:
    assert entry.difference is not None
    assert entry.loss_fall is not None
    return 100 * entry.loss_fall, entry.difference.mean


def _updates(entry: Entry) -> int:
    steps: int = entry.recipe["steps"]
    return steps
