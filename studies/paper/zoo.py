"""The study over all networks of the paper's tables: what l_E gives each of them.

Networks come from the campaign, results from the records. Networks without records share a row for
each task, which says that they were not run yet.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from musigma.evaluation.record import Record
from studies.paper.measurements import RecordSet, without_spaces
from studies.paper.study import ALL, Outcome, PValues, Study, budget_key, find_studies, p_text
from studies.paper.tables import Cell, Row, Table, settings_note
from studies.paper.two_level import Interval, MeanDifference, holm
from studies.training_runs.campaign import Plan
from studies.training_runs.study_recipes import load_study_recipe
from studies.training_runs.zoo import FULL, REFERENCE, zoo_plans

TITLE = "All networks: what l_E gives each of them"
NOT_RUN = "not yet run"
COVERED_ON = ("B100", "CBSD68", "BSD68")
"""Sets whose coverage is shown, the first that was measured."""

COLOR, GRAY = "denoising, color", "denoising, gray"
TASKS = ("x2", "x3", "x4", COLOR, GRAY)
"""Tasks of networks, in the order of tables and figures."""

MIDDLE, END = (0.4, 0.6), 0.9
"""Parts of a run whose losses are compared: the middle, and from `END` on."""


@dataclass(frozen=True)
class Entry:
    """A network with one budget.

    Attributes:
        recipe: Of its runs.
        study: What was measured; `None` for a network that was not run yet.
        records: The training records of its runs with l1 and the full objective.
        coverage: Share of the values inside their calibrated 90 % intervals, and the set.
    """

    recipe: Mapping[str, Any]
    study: Study | None = None
    records: tuple[Record, ...] = ()
    coverage: tuple[float, str] | None = None

    @property
    def name(self) -> str:
        """The network, with its settings where they are not the usual ones."""
        return f"{self.recipe['network']}{settings_note(self.recipe)}"

    @property
    def task(self) -> str:
        """What the network does."""
        if self.recipe["scale"] > 1:
            return f"x{self.recipe['scale']}"
        return GRAY if self.recipe["channels"] == 1 else COLOR

    @property
    def outcome(self) -> Outcome | None:
        """The full objective on all images."""
        return self._outcomes(FULL).get(ALL)

    @property
    def difference(self) -> MeanDifference | None:
        """The gain over l1 on all images, with its variances."""
        return self.outcome.difference if self.outcome else None

    @property
    def reference(self) -> Outcome | None:
        """The outcome of l1 on all images."""
        return self._outcomes(REFERENCE).get(ALL)

    @cached_property
    def seconds(self) -> float | None:
        """Mean length of a run."""
        return fmean(r.result["seconds"] for r in self.records) if self.records else None

    @cached_property
    def loss_fall(self) -> float | None:
        """By what share the loss of l1 still fell from the middle of the run to its end.

        It tells how far a network was from its end when the run was over: the schedule is the same
        for all, and the loss of a network that has learned all it can does not fall any more.
        """
        falls = [
            _fall(record.result["loss_curve"])
            for record in self.records
            if record.model["recipe"]["objective"] == REFERENCE
        ]
        known = [fall for fall in falls if fall is not None]
        return fmean(known) if known else None

    def _outcomes(self, objective: str) -> Mapping[str, Outcome]:
        return self.study.outcomes.get(objective, {}) if self.study else {}


def _fall(curve: Sequence[tuple[int, float, float]]) -> float | None:
    """Return by what share the loss fell; nothing if too few losses were logged to say so."""
    last = curve[-1][0]
    first, second = (share * last for share in MIDDLE)
    middle = [loss for step, _, loss in curve if first <= step <= second]
    end = [loss for step, _, loss in curve if step >= END * last]
    return fmean(middle) / fmean(end) - 1 if middle else None


def find_entries(record_set: RecordSet, plans: Sequence[Plan] | None = None) -> list[Entry]:
    """Return the networks of the study, by default those of the campaign.

    Those that were run come first within a task, so that a table or a figure has no gaps.
    """
    studies = {budget_key(study.recipe): study for study in find_studies(record_set)}
    entries = []
    for plan in zoo_plans() if plans is None else plans:
        recipe = load_study_recipe(plan.recipe, plan.changes).published()
        recipe = json.loads(json.dumps(recipe))  # as records have it
        study = studies.get(budget_key(recipe))
        complete = study is not None and _is_complete(study, plan)
        entries.append(_measured(study, record_set) if study and complete else Entry(recipe))
    return sorted(entries, key=lambda entry: (TASKS.index(entry.task), entry.study is None))


def _is_complete(study: Study, plan: Plan) -> bool:
    """Tell whether both objectives have all seeds of the plan; a part of them says too little."""
    return FULL in study.outcomes and all(
        len(outcome.seeds) >= len(plan.seeds)
        for objective in (REFERENCE, FULL)
        for outcome in study.outcomes[objective].values()
    )


def longer_entries(entries: Sequence[Entry], record_set: RecordSet) -> list[Entry]:
    """Return the same networks with other numbers of updates, where there are records of them."""
    known = {_key_without_length(entry.recipe): entry.recipe["steps"] for entry in entries}
    others = [
        study
        for study in find_studies(record_set)
        if known.get(_key_without_length(study.recipe), study.recipe["steps"])
        != study.recipe["steps"]
    ]
    measured = [_measured(study, record_set) for study in others]
    return [entry for entry in measured if entry.difference is not None]


def _key_without_length(recipe: Mapping[str, Any]) -> str:
    return budget_key({**recipe, "steps": None, "ema": None})


def _measured(study: Study, record_set: RecordSet) -> Entry:
    key, objectives = budget_key(study.recipe), {*map(without_spaces, (REFERENCE, FULL))}
    runs = [
        measurement
        for measurement in record_set.measurements
        if measurement.objective in objectives and budget_key(measurement.recipe) == key
    ]
    records = {run.source: record_set.records[run.source] for run in runs}
    coverages = {
        name: [
            run.result["coverage"]
            for run in runs
            if run.data == name and "pll_calibrated" in run.result
        ]
        for name in COVERED_ON
    }
    coverage = next(((fmean(values), name) for name, values in coverages.items() if values), None)
    training = tuple(record for record in records.values() if record.kind == "training")
    return Entry(study.recipe, study, training, coverage)


def corrected(entries: Sequence[Entry]) -> dict[str, PValues]:
    """Return the p-values by themselves and corrected for the number of networks, by name.

    Networks that were not run yet count as well, as if nothing had been found for them: the number
    of comparisons was stated before the runs, and what is certain now stays so.
    """
    plain = {e.name: e.difference.p_value for e in entries if e.difference is not None}
    for_all = holm([*plain.values(), *[1.0] * (len(entries) - len(plain))])
    return dict(zip(plain, map(PValues, plain.values(), for_all), strict=False))


def joint_interval(difference: MeanDifference, num_networks: int) -> Interval:
    """Return the interval for which all networks together hold with 95 % (Bonferroni)."""
    return difference.interval(1 - 0.05 / num_networks)


def zoo_table(record_set: RecordSet) -> Table:
    """Return the table of all networks: budget, l1, gain, p-values and coverage."""
    entries = find_entries(record_set)
    p_values = corrected(entries)
    rows = [
        Row((entry.task, entry.name), _cells(entry, p_values[entry.name]))
        for entry in entries
        if entry.difference is not None
    ]
    num_run = len(p_values)
    return Table(
        name="zoo",
        title=TITLE,
        caption="The paper's full objective against l1 at equal updates, data and seeds; PSNR (dB) "
        "over all images of the test sets and the validation set.",
        headings=("task", "network", *_HEADINGS),
        rows=(*rows, *_rows_of_missing(entries)),
        notes=(
            f"{num_run} of {len(entries)} networks were run. In brackets: the 95 % interval of one "
            "gain by itself, which counts seeds and images. The corrected p counts all networks, "
            "those that were not run yet included (Holm).",
            "Seconds are those of one run on a card that several runs shared.",
            "Loss still fell: by how much the loss of l1 fell from the middle of the run to its "
            "last tenth, which tells how far the network was from its end.",
        ),
    )


_HEADINGS = ("updates", "seconds", "l1", "gain", "p", "p, corrected", "loss still fell", "inside")


def _rows_of_missing(entries: Sequence[Entry]) -> Iterator[Row]:
    """Yield a row for each task with the networks that were not run yet."""
    missing: dict[str, list[str]] = {}
    for entry in entries:
        if entry.difference is None:
            missing.setdefault(entry.task, []).append(entry.name)
    empty = (Cell(),) * (len(_HEADINGS) - 1)
    for task, names in missing.items():
        yield Row((task, "; ".join(names)), (Cell(NOT_RUN), *empty))


def _cells(entry: Entry, p_values: PValues) -> tuple[Cell, ...]:
    assert entry.difference is not None
    assert entry.reference is not None
    updates = f"{entry.recipe['steps']:,}"
    mean, low, high = entry.difference.interval()
    coverage = "{:.1%} ({})".format(*entry.coverage) if entry.coverage else ""
    return (
        Cell(updates),
        Cell(f"{entry.seconds:.0f}" if entry.seconds is not None else ""),
        Cell(f"{entry.reference.mean:.3f}"),
        Cell(f"{mean:+.3f} ({low:+.3f} to {high:+.3f})", sources_of(entry)),
        Cell(p_text(p_values.plain)),
        Cell(p_text(p_values.corrected)),
        Cell(f"{entry.loss_fall:.1%}" if entry.loss_fall is not None else ""),
        Cell(coverage),
    )


def sources_of(entry: Entry) -> tuple[str, ...]:
    """Return the records behind a gain: those of all sets with l1 and with the full objective."""
    assert entry.study is not None
    return tuple(
        source
        for objective in (REFERENCE, FULL)
        for outcome in entry.study.outcomes[objective].values()
        for source in outcome.sources
    )
