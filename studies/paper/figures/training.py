"""Figures of training runs: how they converge, and what objectives gain at equal budget."""

from collections.abc import Mapping
from itertools import chain, cycle
from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np

from musigma.evaluation.record import Record
from musigma.types import DataError
from studies.paper.figures.style import COLORS, INK, QUIET, Drawing, label_ends, new_figure, style
from studies.paper.measurements import RecordSet
from studies.paper.study import ALL, REFERENCE, Outcome, budget_key, objective_studies
from studies.paper.tables import training_length

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COMPARABLE = ("l1", "expected_l1")
"""What an objective must begin with for its loss to be an absolute error."""

LINEAR = 0.05
"""Decibels up to which gains are drawn to scale: most are small, and a few losses are not."""

Runs = dict[str, list[tuple[str, Record]]]


@style()
def draw_convergence(record_set: RecordSet) -> Drawing:
    """Draw the loss over the steps, a line for each run, a color for each objective."""
    runs, is_matched = _runs_to_compare(record_set)
    figure = new_figure(3.4)
    axes = figure.add_subplot()
    ends = {}
    for (objective, same_objective), color in zip(runs.items(), _colors(), strict=False):
        curves = [_curve(record) for _, record in same_objective]
        done = curves[0][0]
        for curve in curves:
            axes.plot(*curve, color=color, linewidth=0.8, alpha=0.35)
        mean = _moving_mean(np.mean([np.interp(done, *curve) for curve in curves], axis=0))
        axes.plot(done, mean, color=color)
        steps = "" if is_matched else f"\n{same_objective[0][1].result['steps']:,} steps"
        ends[objective + steps] = (float(mean[-1]), color)
    axes.set(xlabel="share of the run (%)", ylabel="training loss (levels of 255)", xlim=(0, 100))
    label_ends(axes, ends, gap=0.08 if is_matched else 0.15)
    sources = tuple(source for same_objective in runs.values() for source, _ in same_objective)
    first = next(iter(runs.values()))[0][1].model
    equal = (
        f"with the same recipe of {training_length(first['recipe'])} but for the objective"
        if is_matched
        else "the longest run of each objective; budgets differ, so the ends are no comparison"
    )
    caption = (
        f"Training loss of {first['name']} x{first['scale']}, {equal}. Thin: as recorded; thick: "
        "the mean over seeds and five points. In expectation l_E is l1 with its hard pixels "
        "weighted 1.17, so its loss is the larger one at equal quality."
    )
    return Drawing(figure, caption, sources)


@style()
def draw_study(record_set: RecordSet) -> Drawing:
    """Draw the gain of each objective over l1 with its interval, a panel for each study."""
    studies = objective_studies(record_set)
    if not studies:
        raise DataError(
            f"no study among the records: it takes runs with equal steps of {REFERENCE} and another"
        )
    heights = [len(study.outcomes) - 1 for study in studies]
    figure = new_figure(1.0 + 0.45 * len(studies) + 0.42 * sum(heights))
    grid: Any = figure.subplots(len(studies), 1, squeeze=False, sharex=True, height_ratios=heights)
    for axes, study in zip(grid[:, 0], studies, strict=True):
        _draw_gains(axes, study.outcomes, study.sets)
        axes.set_title(study.title, loc="left")
    grid[0, 0].legend(loc="center left", bbox_to_anchor=(1, 0.5))
    scale_gains(grid[-1, 0])
    sources = [
        o.sources for study in studies for by in study.outcomes.values() for o in by.values()
    ]
    caption = (
        f"What an objective gains over {REFERENCE} at the same data, updates and seeds. Dots: the "
        "mean over images and seeds; bars: the 95 % interval, which counts both, of each bar by "
        "itself. Where a bar crosses the line, the sign is open. The axis is linear up to "
        f"{LINEAR} dB on either side and logarithmic beyond."
    )
    return Drawing(figure, caption, tuple(dict.fromkeys(chain.from_iterable(sources))))


def _runs_to_compare(record_set: RecordSet) -> tuple[Runs, bool]:
    """Return runs by objective: of the longest study, or else the longest run of each objective."""
    groups: dict[tuple[int, str], Runs] = {}
    networks: dict[str, Runs] = {}
    for source, record in record_set.records.items():
        recipe = record.model.get("recipe") or {}
        objective = recipe.get("objective", "")
        if objective.startswith(COMPARABLE) and len(record.result.get("loss_curve", ())) > 1:
            run, network = (source, record), f"{recipe['network']} x{recipe['scale']}"
            networks.setdefault(network, {}).setdefault(objective, []).append(run)
            if recipe.get("steps"):
                group = groups.setdefault((recipe["steps"], budget_key(recipe)), {})
                group.setdefault(objective, []).append(run)
    if not networks:
        raise DataError("no training record among the records has a loss curve")
    studies = [(steps, len(runs), runs) for (steps, _), runs in groups.items() if len(runs) > 1]
    if studies:
        _, _, matched = max(studies, key=lambda study: study[:2])
        return dict(sorted(matched.items(), key=_reference_first)), True
    longest = {
        objective: [max(same_objective, key=lambda run: run[1].result["loss_curve"][-1][0])]
        for objective, same_objective in max(networks.values(), key=len).items()
    }
    return dict(sorted(longest.items(), key=_reference_first)), False


def _curve(record: Record) -> tuple[Any, Any]:
    """Return the share of the run in per cent, and the loss in levels of 255."""
    # The first point is the mean over the warm-up, many times what follows.
    step, _, loss = np.array(record.result["loss_curve"][1:]).T
    return 100 * step / record.result["steps"], 255 * loss


def _reference_first(item: tuple[str, Any]) -> tuple[bool, str]:
    return item[0] != REFERENCE, item[0]


def _colors() -> "cycle[str]":
    return cycle((INK, *COLORS))


def _moving_mean(values: Any, reach: int = 2) -> Any:
    """Average each value with its neighbors, as far as there are any."""
    return np.array(
        [values[max(0, at - reach) : at + reach + 1].mean() for at in range(len(values))]
    )


def _draw_gains(
    axes: "Axes", outcomes: Mapping[str, Mapping[str, Outcome]], sets: tuple[str, ...]
) -> None:
    others = [objective for objective in outcomes if objective != REFERENCE]
    compared = {
        name for o in others for name, outcome in outcomes[o].items() if outcome.gain is not None
    }
    shown = [name for name in sets if name in compared]
    axes.axvline(0, color=QUIET, linewidth=1)
    for number, name in enumerate(shown):
        color = INK if name == ALL else COLORS[number % len(COLORS)]
        for row, objective in enumerate(others):
            outcome = outcomes[objective].get(name)
            if outcome is not None and outcome.gain is not None:
                y = row + 0.6 * ((number + 0.5) / len(shown) - 0.5)
                label = name if row == 0 else None
                ends = outcome.difference.interval()[1:] if outcome.difference else (nan, nan)
                axes.plot(ends, (y, y), color=color, linewidth=1.4, label=label)
                axes.plot(outcome.gain, y, "o", color=color, markersize=4)
    axes.set(yticks=range(len(others)), yticklabels=others, ylim=(len(others) - 0.5, -0.5))
    axes.tick_params("y", length=0, labelcolor=INK)
    axes.grid(visible=False, axis="y")


def scale_gains(axes: "Axes") -> None:
    """Make the horizontal axis one of gains: linear in its middle and logarithmic beyond."""
    axes.set_xscale("symlog", linthresh=LINEAR)
    ticks = _ticks_within(*axes.get_xlim())
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xlabel(f"PSNR gained over {REFERENCE} (dB)")


def _ticks_within(left: float, right: float) -> list[float]:
    """Return round numbers for an axis that is linear in its middle and logarithmic beyond."""
    sizes = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
    return [
        tick
        for tick in (*(-size for size in reversed(sizes)), 0.0, *sizes)
        if left <= tick <= right
    ]
