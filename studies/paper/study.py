"""Objectives compared at equal data, updates and seeds: what the paper's tables do not hold.

Runs are of one study when their recipes differ in the objective and the seed alone, and in what an
objective brings along (the sigma branch, the teacher, a limit on the gradient). Every difference is
paired: the same image restored by two runs of the same seed. A seed that was run again, which on a
GPU gives slightly other weights, counts by the mean of its runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import torch

from studies.bootstrap import Interval, paired_bootstrap
from studies.paper.measurements import Book, Measurement
from studies.paper.tables import Cell, Row, Table, budget, patches, said, seed_means
from studies.readme_tables import SETS

TITLE = "Objectives at equal budget"
REFERENCE = "l1"
ALL = "all images"
METRICS = ("psnr_y", "psnr")
_FREE = {"objective", "seed", "sigma", "sigma_width", "teacher", "clip"}
_ASIDE = {"log_every", "validate_every", "save_every", "compile"}  # they do not change the result


@dataclass(frozen=True)
class Outcome:
    """An objective on one set.

    Attributes:
        seeds: The mean of each seed, in dB.
        gain: Over the reference, or `None` where the two share no image.
        sources: The records it comes from; none for all images, which come from all the sets'.
    """

    seeds: tuple[float, ...]
    gain: Interval | None
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
    """What came out: by objective, the reference first, and then by set."""

    title: str
    outcomes: Mapping[str, Mapping[str, Outcome]]

    @property
    def sets(self) -> tuple[str, ...]:
        """The sets in the order of the field's tables, then others, all images last."""
        names = {name for outcomes in self.outcomes.values() for name in outcomes}
        first = [name for name in SETS if name in names]
        return (*first, *sorted(names - {*SETS, ALL}), *({ALL} & names))


def find_studies(book: Book) -> list[Study]:
    """Return every study the records hold, the widest first; seconds are no equal budget."""
    found: dict[str, dict[tuple[object, ...], list[Measurement]]] = {}
    for one in book.measurements:
        if one.recipe.get("steps") and any(metric in one.result for metric in METRICS):
            known = found.setdefault(budget_key(one.recipe), {})
            same = known.setdefault((one.objective, one.seed, set_name(one)), [])
            # A training record tells of its validation without images, as a record of its own does
            # with them.
            if one.images:
                same[:] = [*(other for other in same if other.images), one]
            elif not same:
                same.append(one)
    groups = [[one for same in runs.values() for one in same] for runs in found.values()]
    studies = [
        Study(run_title(runs[0]), _outcomes(runs))
        for runs in groups
        if {REFERENCE} < {one.objective for one in runs}
    ]
    return sorted(studies, key=lambda study: (-len(study.outcomes), study.title))


def budget_key(recipe: Mapping[str, Any]) -> str:
    """Return what the runs of one study have in common, as a text to compare."""
    return said(recipe, without=_FREE | _ASIDE)


def study_table(book: Book) -> Table:
    """Return the table of all studies: PSNR of each objective and its gain over l1."""
    studies = find_studies(book)
    sets = tuple(dict.fromkeys(name for study in studies for name in study.sets))
    rows = [
        Row((study.title, objective), tuple(_cell(outcomes.get(name)) for name in sets))
        for study in studies
        for objective, outcomes in study.outcomes.items()
    ]
    notes = [
        "Mean and standard deviation over the seeds; in brackets the gain over l1 with its 95 % "
        "interval, from 10,000 resamples of images and seeds, paired by both. All images together "
        "come from the records of the row."
    ]
    if not rows:
        notes = [f"No records yet: it takes runs with equal steps of {REFERENCE} and another."]
    return Table(
        name="study",
        title=TITLE,
        caption="PSNR (dB): the same data, updates and seeds for every objective.",
        headings=("runs", "objective", *sets),
        rows=tuple(rows),
        notes=tuple(notes),
    )


def run_title(one: Measurement) -> str:
    """Say what was trained, for how long, and on what where that was not what it is now."""
    training = f"{budget(one.recipe)}, batch {one.recipe.get('batch')}{patches(one.recipe)}"
    return f"{one.network} x{one.scale}, {training}"


def _outcomes(runs: Sequence[Measurement]) -> dict[str, dict[str, Outcome]]:
    names = {one.objective: one.recipe["objective"] for one in runs}
    order = [REFERENCE, *sorted(names.keys() - {REFERENCE})]
    by_objective = {name: [one for one in runs if one.objective == name] for name in order}
    reference = by_objective[REFERENCE]
    return {names[o]: _by_set(some, reference) for o, some in by_objective.items()}


def _by_set(runs: Sequence[Measurement], reference: Sequence[Measurement]) -> dict[str, Outcome]:
    outcomes = {}
    for name in dict.fromkeys(map(set_name, runs)):
        here = [one for one in runs if set_name(one) == name]
        means = seed_means((one.seed, _mean(one)) for one in here)
        sources = tuple(one.source for one in here)
        outcomes[name] = Outcome(means, _gain(runs, reference, {name}), sources)
    scores = _scores(runs, set(outcomes))
    if len(outcomes) > 1 and scores:
        means = tuple(fmean(values.values()) for values in scores.values())
        outcomes[ALL] = Outcome(means, _gain(runs, reference, set(outcomes)), ())
    return outcomes


def set_name(one: Measurement) -> str:
    """Return the name of the set, with the level of the noise where there is any."""
    noise_std = one.protocol.get("noise_std")
    return f"{one.data} {noise_std:g}" if noise_std else one.data


def _mean(one: Measurement) -> float:
    return next(one.result[metric] for metric in METRICS if metric in one.result)


def _scores(runs: Sequence[Measurement], sets: set[str]) -> dict[int | None, dict[str, float]]:
    """Return the PSNR of every image of some sets, by seed."""
    scores: dict[int | None, dict[str, list[float]]] = {}
    for one in runs:
        if set_name(one) in sets:
            images: Mapping[str, float] = next(
                (one.images[metric] for metric in METRICS if metric in one.images), {}
            )
            known = scores.setdefault(one.seed, {})
            for image, value in images.items():
                known.setdefault(f"{set_name(one)}/{image}", []).append(value)
    return {
        seed: {image: fmean(values) for image, values in known.items()}
        for seed, known in scores.items()
        if known
    }


def _gain(
    runs: Sequence[Measurement], reference: Sequence[Measurement], sets: set[str]
) -> Interval | None:
    ours, theirs = _scores(runs, sets), _scores(reference, sets)
    seeds = sorted(seed for seed in ours.keys() & theirs.keys() if seed is not None)
    if runs is reference or not seeds:
        return None
    # Images that every run restored: a record may lack one whose PSNR was not finite.
    shared = set.intersection(*(set(values[s]) for values in (ours, theirs) for s in seeds))
    if not shared:
        return None
    pair = [
        torch.tensor(
            [[values[seed][image] for image in sorted(shared)] for seed in seeds],
            dtype=torch.float64,
        )
        for values in (ours, theirs)
    ]
    return paired_bootstrap(*pair, generator=torch.Generator().manual_seed(0))


def _cell(outcome: Outcome | None) -> Cell:
    if outcome is None:
        return Cell()
    text = f"{outcome.mean:.3f}"
    if outcome.spread is not None:
        text += f" ± {outcome.spread:.3f}"
    if outcome.gain is not None:
        mean, low, high = outcome.gain
        text += f" ({mean:+.3f}: {low:+.3f} to {high:+.3f})"
    return Cell(text, outcome.sources)
