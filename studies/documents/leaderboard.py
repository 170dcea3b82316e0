"""The ways to an error bar side by side: the sigma branch and its baselines, calibrated alike."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, NamedTuple

from studies.documents.result_tables import SETS
from studies.paper.measurements import Measurement, RecordSet
from studies.paper.study import budget_key, run_title, set_name
from studies.paper.tables import Cell, Row, Table, seed_means

TITLE = "Error bars: the sigma branch and its baselines"

COLUMNS: Mapping[str, tuple[tuple[str, ...], int]] = {
    "PSNR (dB)": (("psnr_y", "psnr"), 2),
    "PLL": (("pll_calibrated",), 3),
    "CRPS": (("crps_calibrated",), 5),
    "AUSE": (("ause",), 4),
    "coverage": (("coverage",), 4),
    "width": (("width",), 4),
}
"""Headings, the metrics of which a protocol measures one, and decimals."""

HEADS = {
    "gaussian_nll": "Gaussian NLL head",
    "beta_nll": "beta-NLL head",
    "laplace_nll": "Laplace NLL head",
    "sigma_quantile": "quantile head",
}
BASELINES = {
    "self-ensemble": "sigma branch, self-ensemble",
    "constant": "constant sigma",
    "tta": "test-time augmentation",
    "mc-dropout": "MC dropout",
    "ensemble": "deep ensemble",
}
BRANCH = "sigma branch"
METHODS = (BRANCH, *HEADS.values(), *BASELINES.values())


class Entry(NamedTuple):
    """One method on one set, measured once.

    Attributes:
        method: One of `METHODS`.
        calibration: On what it was calibrated, and how: a text to compare.
        num_passes: Forward passes.
        measurement: The numbers.
    """

    method: str
    calibration: str
    num_passes: int
    measurement: Measurement


def leaderboard_table(record_set: RecordSet) -> Table:
    """Return the table of every set on which two methods or more were measured.

    Methods are compared that were trained for an equal budget and calibrated alike.
    """
    groups: dict[tuple[str, str, str], list[Entry]] = {}
    for entry in _entries(record_set):
        measurement = entry.measurement
        key = entry.calibration + budget_key(_without_dropout(measurement.recipe))
        group = run_title(measurement), key, set_name(measurement)
        groups.setdefault(group, []).append(entry)
    rows: list[Row] = []
    for (title, _, name), entries in sorted(groups.items(), key=lambda item: _order(item[0])):
        if len({entry.method for entry in entries}) > 1:
            rows += [Row((title, name, *names), cells) for names, cells in _rows(entries)]
    notes = [
        "Every sigma is calibrated in the same way on the same held-out images: one factor of "
        "largest PLL for PLL and CRPS, one for intervals of the stated coverage. AUSE, the order "
        "alone, needs none. Coverage should be near what was asked for; then less width is better.",
        "Rows without numbers have not been measured yet.",
    ]
    if not rows:
        command = "musigma evaluate --baseline tta --calibrate-on DIV2K_crops --record FILE"
        notes = [f"No records yet: `{command}` makes one."]
    return Table(
        name="leaderboard",
        title=TITLE,
        caption="After calibration, images in [0, 1]: PLL in nats and higher is better, CRPS and "
        "AUSE lower; cost in forward passes.",
        headings=("runs", "set", "method", "trained with", *COLUMNS, "passes"),
        rows=tuple(rows),
        notes=tuple(notes),
    )


def _without_dropout(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the dropout, which one method brings along."""
    settings = {k: v for k, v in recipe.get("settings", {}).items() if k != "dropout"}
    return {**recipe, "settings": settings}


def _entries(record_set: RecordSet) -> Iterator[Entry]:
    for measurement in (*record_set.measurements, *record_set.baselines):
        model = record_set.records[measurement.source].model
        # Older records do not say how they were calibrated, and could be compared with any.
        fit = model.get("calibration") or {}
        if "pll_calibrated" in measurement.result and fit.get("data"):
            calibration = f"{fit['method']} {fit['coverage']} {fit['data']['hash']}"
            yield Entry(_method(measurement), calibration, model.get("num_passes", 1), measurement)


def _method(measurement: Measurement) -> str:
    if measurement.baseline:
        return BASELINES[measurement.baseline]
    return next((name for term, name in HEADS.items() if term in measurement.objective), BRANCH)


def _rows(entries: Sequence[Entry]) -> Iterator[tuple[tuple[str, str], tuple[Cell, ...]]]:
    """Yield a row for each method, objective and cost, an empty one for a method without any."""
    for method in METHODS:
        runs: dict[tuple[str, int], list[Measurement]] = {}
        for entry in entries:
            if entry.method == method:
                measurement = entry.measurement
                objective = measurement.recipe.get("objective", measurement.objective)
                runs.setdefault((objective, entry.num_passes), []).append(measurement)
        for (objective, num_passes), measured in sorted(runs.items(), key=lambda item: item[0]):
            cells = [_cell(measured, *column) for column in COLUMNS.values()]
            yield (method, objective), (*cells, Cell(str(num_passes)))
        if not runs:
            yield (method, ""), (Cell(),) * (len(COLUMNS) + 1)


def _cell(measured: Sequence[Measurement], metrics: Sequence[str], decimals: int) -> Cell:
    """Average over the seeds, and say how far they are apart."""
    values = [(run, run.result[m]) for run in measured for m in metrics if m in run.result]
    means = seed_means((run.seed, value) for run, value in values)
    if not means:
        return Cell()
    spread = f" ± {stdev(means):.{decimals}f}" if len(means) > 1 else ""
    return Cell(f"{fmean(means):.{decimals}f}{spread}", tuple(run.source for run, _ in values))


def _order(key: tuple[str, str, str]) -> tuple[str, str, int, str]:
    title, equal, name = key
    return title, equal, SETS.index(name) if name in SETS else len(SETS), name
