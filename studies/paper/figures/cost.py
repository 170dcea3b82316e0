"""The figure of what quality costs: PSNR against multiply-adds and against time."""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from musigma.networks import card
from musigma.types import DataError
from studies.paper.figures.style import COLORS, INK, QUIET, Drawing, new_figure, style
from studies.paper.measurements import RELEASED, RecordSet
from studies.paper.printed import printed_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SCALE, DATA = 2, "Set5"
# Offset of a label from its point, in points, for labels that would cover another one.
_OFFSETS = {"RCAN": (-3, -3), "OISR": (2, 3), "EDSR-baseline": (3, -6)}
_COLORS = {
    "printed in the paper": QUIET,
    "printed, with l_E": COLORS[1],
    "released weights, measured": COLORS[2],
    "ours, measured": COLORS[0],
}


class Point(NamedTuple):
    """What a network reached, and who says so."""

    name: str
    network: str
    origin: str
    psnr: float
    source: str = ""


@style()
def draw_trade_off(record_set: RecordSet) -> Drawing:
    """Draw PSNR against MACs and against processor time, the size of a mark by parameters."""
    points = list(_printed_points()) + list(_measured_points(record_set))
    source, seconds = _forward_times(record_set)
    cards = {name: card(name, scale=SCALE) for name in {point.network for point in points}}
    costs = [
        (
            "multiply-adds for 1280x720 (G)",
            {name: network.macs_g for name, network in cards.items()},
        ),
        ("seconds of one core, 320x180 to 640x360", seconds),
    ]
    figure = new_figure(3.9)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (title, cost) in zip(panels, costs, strict=True):
        for point in points:
            if point.network in cost:
                size = 14 + 6e-6 * cards[point.network].params
                _draw_point(axes, point, cost[point.network], size)
        for plain, other in pairwise(points):  # the paper prints a network, then the same with l_E
            if other.origin == "printed, with l_E" and plain.network in cost:
                position = cost[plain.network]
                axes.plot(
                    (position, position), (plain.psnr, other.psnr), color=COLORS[1], linewidth=0.8
                )
        axes.set(xscale="log", xlabel=title)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.margins(x=0.15, y=0.08)
    panels[0].set_ylabel(f"PSNR on Y, {DATA} x{SCALE} (dB)")
    for origin, color in _COLORS.items():
        face = color if "measured" in origin else "none"
        panels[0].plot([], [], "o", color=color, markerfacecolor=face, label=origin)
    figure.legend(loc="outside lower center", ncols=4, handletextpad=0.1, columnspacing=1.5)
    caption = (
        f"PSNR on {DATA} x{SCALE} against cost. Rings: printed in the paper; discs: measured "
        "here, of ours the best run of each network, without the short ones of the study. MACs are "
        "counted and times measured here for all networks, on "
        f"{record_set.records[source].provenance['device']}; the area of a mark grows with the "
        "number of parameters. The sigma branch costs nothing where only the mean is asked for."
    )
    sources = dict.fromkeys([point.source for point in points if point.source] + [source])
    return Drawing(figure, caption, tuple(sources))


def _printed_points() -> Iterator[Point]:
    for table in ("lightweight", "heavy"):
        printed = printed_table(table)
        column = [name for name, _ in printed.columns].index(DATA)
        for row in printed.rows:
            if row.conditions is not None and row.conditions["scale"] == SCALE:
                is_ours = row.name.endswith("+Ours")
                origin = "printed, with l_E" if is_ours else "printed in the paper"
                psnr = float(row.cells[column].split(" / ")[0])
                yield Point(
                    "" if is_ours else row.name, row.conditions["networks"][0], origin, psnr
                )


def _measured_points(record_set: RecordSet) -> Iterator[Point]:
    best: dict[tuple[str, str], Point] = {}
    for measurement in record_set.measurements:
        # Short runs of equal steps are compared with one another; a mean that was kept is not ours.
        if measurement.recipe.get("steps") or measurement.recipe.get("keep_mean"):
            continue
        if (
            measurement.data == DATA
            and measurement.scale == SCALE
            and measurement.objective
            and "psnr_y" in measurement.result
        ):
            is_released = measurement.objective == RELEASED
            origin = "released weights, measured" if is_released else "ours, measured"
            point = Point(
                "", measurement.network, origin, measurement.result["psnr_y"], measurement.source
            )
            known = best.setdefault((measurement.network, origin), point)
            if point.psnr > known.psnr:
                best[measurement.network, origin] = point
    yield from best.values()


def _forward_times(record_set: RecordSet) -> tuple[str, dict[str, float]]:
    for source, record in record_set.records.items():
        if record.protocol["name"] == "forward" and record.model["scale"] == SCALE:
            return source, {name: values["cpu_seconds"] for name, values in record.result.items()}
    raise DataError(
        f"there is no record of forward passes at x{SCALE}; "
        "`python -m studies bench forward --record FILE` makes one"
    )


def _draw_point(axes: "Axes", point: Point, cost: float, size: float) -> None:
    color = _COLORS[point.origin]
    is_measured = point.source != ""
    face = color if is_measured else "none"
    axes.scatter(cost, point.psnr, s=size, facecolor=face, edgecolor=color, alpha=0.9, zorder=3)
    if point.name:
        beside, y = _OFFSETS.get(point.name, (3, -3))
        x = beside + math.copysign(math.sqrt(size / math.pi), beside)  # from the mark's rim
        text_style: Any = {"textcoords": "offset points", "ha": "left" if x > 0 else "right"}
        axes.annotate(point.name, (cost, point.psnr), (x, y), color=INK, size="small", **text_style)
