"""Objectives compared at equal data, updates and seeds. The paper's tables do not show this.

Runs belong to one study when their recipes differ only in the objective, the seed, and what an
objective needs (the sigma branch, the teacher, a limit on the gradient). Every difference is
paired: the same image, restored by two runs with the same seed. Running a seed again on a GPU gives
slightly different weights, so a repeated seed counts once, by the mean of its runs.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, NamedTuple

import torch

from studies.documents.result_tables import SETS
from studies.paper.measurements import Measurement, RecordSet
from studies.paper.tables import (
    Cell,
    Row,
    Table,
    patch_note,
    recipe_key,
    seed_means,
    settings_note,
    training_length,
)
from studies.paper.two_level import MeanDifference, holm, mean_difference

TITLE = "Objectives at equal budget"
REFERENCE = "l1"
ALL = "all images"
METRICS = ("psnr_y", "psnr")
SEPARATE = ("zoo-", "realsr-")
"""What the names of records begin with that have tables of their own: all networks, real pairs."""
_FREE = {"objective", "seed", "sigma", "sigma_width", "teacher", "clip"}
_WITHOUT_EFFECT = {"log_every", "validate_every", "save_every", "compile"}


@dataclass(frozen=True)
class Outcome:
    """An objective on one set.

    Attributes:
        seeds: The mean of each seed, in dB.
        gain: Over the reference, or `None` where the two share no image.
        difference: The gain with its variances, or `None` where there are too few seeds or images.
        sources: The records it comes from; none for all images, which come from all the sets'.
    """

    seeds: tuple[float, ...]
    gain: float | None
    difference: MeanDifference | None
    sources: tuple[str, ...]

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return fmean(self.seeds)

    @property
    def spread(self) -> float | None:
        """Standard deviation over the seeds."""
        return stdev(self.seeds) if len(self.seeds) > 1 else None


@dataclass(frozen=True)
class Study:
    """What came out: by objective, the reference first, and then by set.

    Attributes:
        title: What was trained and for how long.
        outcomes: By objective and set.
        recipe: Of one of the runs; all agree in what `budget_key` looks at.
    """

    title: str
    outcomes: Mapping[str, Mapping[str, Outcome]]
    recipe: Mapping[str, Any]

    @property
    def sets(self) -> tuple[str, ...]:
        """The sets in the order of the field's tables, then others, all images last."""
        names = {name for outcomes in self.outcomes.values() for name in outcomes}
        first = [name for name in SETS if name in names]
        return (*first, *sorted(names - {*SETS, ALL}), *({ALL} & names))


def find_studies(record_set: RecordSet, seeds: Container[int | None] | None = None) -> list[Study]:
    """Return every study in the records, largest first. Runs limited by seconds are left out.

    Args:
        record_set: The records.
        seeds: Only runs with these seeds count: a question that was asked after some runs were
            seen is answered by the runs that came later.
    """
    by_budget: dict[str, dict[tuple[object, ...], list[Measurement]]] = {}
    for measurement in record_set.measurements:
        if not measurement.recipe.get("steps") or (seeds and measurement.seed not in seeds):
            continue
        if any(metric in measurement.result for metric in METRICS):
            known = by_budget.setdefault(budget_key(measurement.recipe), {})
            same = known.setdefault(
                (measurement.objective, measurement.seed, set_name(measurement)), []
            )
            # A training record has the validation mean only. The evaluation record of the same
            # run also has the value of each image, so it replaces the training record.
            if measurement.images:
                same[:] = [*(other for other in same if other.images), measurement]
            elif not same:
                same.append(measurement)
    groups = [
        [measurement for same in runs.values() for measurement in same]
        for runs in by_budget.values()
    ]
    studies = [
        Study(run_title(runs[0]) + settings_note(runs[0].recipe), _outcomes(runs), runs[0].recipe)
        for runs in groups
        if {REFERENCE} < {measurement.objective for measurement in runs}
    ]
    return sorted(studies, key=lambda study: (-len(study.outcomes), study.title))


def objective_studies(
    record_set: RecordSet, seeds: Container[int | None] | None = None
) -> list[Study]:
    """Return the studies of objectives: all but those over all networks and on real pairs.

    The latter are one comparison each, and have tables of their own.
    """
    return [study for study in find_studies(record_set, seeds) if not _is_separate(study)]


def _is_separate(study: Study) -> bool:
    sources = [
        source
        for outcomes in study.outcomes.values()
        for outcome in outcomes.values()
        for source in outcome.sources
    ]
    return all(source.rpartition("/")[2].startswith(SEPARATE) for source in sources)


def budget_key(recipe: Mapping[str, Any]) -> str:
    """Return the settings that all runs of one study share, as text that can be compared."""
    return recipe_key(recipe, without=_FREE | _WITHOUT_EFFECT)


class PValues(NamedTuple):
    """The p-value of a gain on all images, by itself and corrected for all comparisons."""

    plain: float
    corrected: float


def corrected_p_values(studies: Sequence[Study]) -> dict[tuple[str, str], PValues]:
    """Return the p-values of all gains on all images, by the title of the study and objective.

    All comparisons of all studies are one family: a reader sees them side by side.
    """
    plain = {
        (study.title, objective): difference.p_value
        for study in studies
        for objective, outcomes in study.outcomes.items()
        if (difference := outcomes[ALL].difference if ALL in outcomes else None) is not None
    }
    return dict(zip(plain, map(PValues, plain.values(), holm(list(plain.values()))), strict=True))


def p_text(value: float) -> str:
    """Write a p-value with two digits.

    Example:
        >>> p_text(0.01312), p_text(0.5), p_text(3e-7), p_text(1.0)
        ('0.013', '0.50', '< 0.001', '1')
    """
    if value >= 0.995:
        return "1"
    return "< 0.001" if value < 0.001 else f"{value:.{2 if value >= 0.095 else 3}f}"


def study_table(record_set: RecordSet) -> Table:
    """Return the table of all studies: PSNR of each objective and its gain over l1."""
    studies = objective_studies(record_set)
    sets = tuple(dict.fromkeys(name for study in studies for name in study.sets))
    p_values = corrected_p_values(studies)
    rows = [
        Row(
            (study.title, objective),
            (
                *(_cell(outcomes.get(name)) for name in sets),
                *_p_cells(p_values.get((study.title, objective))),
            ),
        )
        for study in studies
        for objective, outcomes in study.outcomes.items()
    ]
    notes = [
        "Mean and standard deviation over the seeds; in brackets the gain over l1 with its 95 % "
        "interval, which counts seeds and images, paired by both. All images together come from "
        f"the records of the row. p is for them; the last column is corrected for all "
        f"{len(p_values)} comparisons by Holm's method."
    ]
    if not rows:
        notes = [f"No records yet: it takes runs with equal steps of {REFERENCE} and another."]
    return Table(
        name="study",
        title=TITLE,
        caption="PSNR (dB): the same data, updates and seeds for every objective.",
        headings=("runs", "objective", *sets, "p", "p, corrected"),
        rows=tuple(rows),
        notes=tuple(notes),
    )


def run_title(measurement: Measurement) -> str:
    """Return what was trained and for how long, with a note on old patch sampling."""
    recipe = measurement.recipe
    training = f"{training_length(recipe)}, batch {recipe.get('batch')}{patch_note(recipe)}"
    scale = f" x{measurement.scale}" if measurement.scale > 1 else ""
    return f"{measurement.network}{scale}, {training}"


def _outcomes(runs: Sequence[Measurement]) -> dict[str, dict[str, Outcome]]:
    names = {measurement.objective: measurement.recipe["objective"] for measurement in runs}
    order = [REFERENCE, *sorted(names.keys() - {REFERENCE})]
    by_objective = {
        name: [measurement for measurement in runs if measurement.objective == name]
        for name in order
    }
    reference = by_objective[REFERENCE]
    return {names[o]: _by_set(of_objective, reference) for o, of_objective in by_objective.items()}


def _by_set(runs: Sequence[Measurement], reference: Sequence[Measurement]) -> dict[str, Outcome]:
    outcomes = {}
    for name in dict.fromkeys(map(set_name, runs)):
        of_set = [measurement for measurement in runs if set_name(measurement) == name]
        means = seed_means((measurement.seed, _mean(measurement)) for measurement in of_set)
        sources = tuple(measurement.source for measurement in of_set)
        outcomes[name] = Outcome(means, *_gain(runs, reference, {name}), sources)
    scores = _scores(runs, set(outcomes))
    if len(outcomes) > 1 and scores:
        means = tuple(fmean(values.values()) for values in scores.values())
        outcomes[ALL] = Outcome(means, *_gain(runs, reference, set(outcomes)), ())
    return outcomes


def set_name(measurement: Measurement) -> str:
    """Return the name of the set, with the level of the noise where there is any."""
    noise_std = measurement.protocol.get("noise_std")
    return f"{measurement.data} {noise_std:g}" if noise_std else measurement.data


def _mean(measurement: Measurement) -> float:
    return next(measurement.result[metric] for metric in METRICS if metric in measurement.result)


def _scores(runs: Sequence[Measurement], sets: set[str]) -> dict[int | None, dict[str, float]]:
    """Return the PSNR of every image of the given sets, by seed."""
    scores: dict[int | None, dict[str, list[float]]] = {}
    for measurement in runs:
        if set_name(measurement) in sets:
            images: Mapping[str, float] = next(
                (measurement.images[metric] for metric in METRICS if metric in measurement.images),
                {},
            )
            known = scores.setdefault(measurement.seed, {})
            for image, value in images.items():
                known.setdefault(f"{set_name(measurement)}/{image}", []).append(value)
    return {
        seed: {image: fmean(values) for image, values in known.items()}
        for seed, known in scores.items()
        if known
    }


def _gain(
    runs: Sequence[Measurement], reference: Sequence[Measurement], sets: set[str]
) -> tuple[float | None, MeanDifference | None]:
    ours, theirs = _scores(runs, sets), _scores(reference, sets)
    seeds = sorted(seed for seed in ours.keys() & theirs.keys() if seed is not None)
    if runs is reference or not seeds:
        return None, None
    # Images that every run restored: a record may lack one whose PSNR was not finite.
    shared = set.intersection(*(set(values[s]) for values in (ours, theirs) for s in seeds))
    if not shared:
        return None, None
    pair = [
        torch.tensor(
            [[values[seed][image] for image in sorted(shared)] for seed in seeds],
            dtype=torch.float64,
        )
        for values in (ours, theirs)
    ]
    difference = mean_difference(*pair) if min(pair[0].shape) > 1 else None
    return float((pair[0] - pair[1]).mean()), difference


def _p_cells(p_values: PValues | None) -> tuple[Cell, Cell]:
    if p_values is None:
        return Cell(), Cell()
    return Cell(p_text(p_values.plain)), Cell(p_text(p_values.corrected))


def _cell(outcome: Outcome | None) -> Cell:
    if outcome is None:
        return Cell()
    text = f"{outcome.mean:.3f}"
    if outcome.spread is not None:
        text += f" ± {outcome.spread:.3f}"
    if outcome.difference is not None:
        mean, low, high = outcome.difference.interval()
        text += f" ({mean:+.3f}: {low:+.3f} to {high:+.3f})"
    elif outcome.gain is not None:
        text += f" ({outcome.gain:+.3f})"
    return Cell(text, outcome.sources)
