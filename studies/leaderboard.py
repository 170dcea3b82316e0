"""The ways to an error bar side by side: the sigma branch and its baselines, calibrated alike."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, NamedTuple

from studies.paper.measurements import Book, Measurement
from studies.paper.study import budget_key, run_title, set_name
from studies.paper.tables import Cell, Row, Table, seed_means
from studies.readme_tables import SETS

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


def leaderboard_table(book: Book) -> Table:
    """Return the table of every set on which two methods or more were measured.

    Methods are compared that were trained for an equal budget and calibrated alike.
    """
    groups: dict[tuple[str, str, str], list[Entry]] = {}
    for one in _entries(book):
        found = one.measurement
        key = one.calibration + budget_key(_without_own(found.recipe))
        groups.setdefault((run_title(found), key, set_name(found)), []).append(one)
    rows: list[Row] = []
    for (title, _, name), entries in sorted(groups.items(), key=lambda item: _order(item[0])):
        if len({one.method for one in entries}) > 1:
            rows += [Row((title, name, *names), cells) for names, cells in _rows(entries)]
    notes = [
        "Every sigma is calibrated in the same way on the same held-out images: one factor of "
        "largest PLL for PLL and CRPS, one for intervals of the stated coverage. AUSE, the order "
        "alone, needs none. Coverage should be near what was asked for; then less width is better.",
        "Rows without numbers have not been measured yet.",
    ]
    if not rows:
        notes = ["No records yet: musigma evaluate --baseline tta --calibrate-on DIV2K_crops."]
    return Table(
        name="leaderboard",
        title=TITLE,
        caption="After calibration, images in [0, 1]: PLL in nats and higher is better, CRPS and "
        "AUSE lower; cost in forward passes.",
        headings=("runs", "set", "method", "trained with", *COLUMNS, "passes"),
        rows=tuple(rows),
        notes=tuple(notes),
    )


def _without_own(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the dropout, which one method brings along."""
    settings = {k: v for k, v in recipe.get("settings", {}).items() if k != "dropout"}
    return {**recipe, "settings": settings}


def _entries(book: Book) -> Iterator[Entry]:
    for one in (*book.measurements, *book.baselines):
        model = book.records[one.source].model
        # Older records do not say how they were calibrated, and could be compared with any.
        fit = model.get("calibration") or {}
        if "pll_calibrated" in one.result and fit.get("data"):
            calibration = f"{fit['method']} {fit['coverage']} {fit['data']['hash']}"
            yield Entry(_method(one), calibration, model.get("num_passes", 1), one)


def _method(one: Measurement) -> str:
    if one.baseline:
        return BASELINES[one.baseline]
    return next((name for term, name in HEADS.items() if term in one.objective), BRANCH)


def _rows(entries: Sequence[Entry]) -> Iterator[tuple[tuple[str, str], tuple[Cell, ...]]]:
    """Yield a row for each method, objective and cost, an empty one for a method without any."""
    for method in METHODS:
        runs: dict[tuple[str, int], list[Measurement]] = {}
        for one in entries:
            if one.method == method:
                found = one.measurement
                objective = found.recipe.get("objective", found.objective)
                runs.setdefault((objective, one.num_passes), []).append(found)
        for (objective, num_passes), some in sorted(runs.items(), key=lambda item: item[0]):
            cells = [_cell(some, *column) for column in COLUMNS.values()]
            yield (method, objective), (*cells, Cell(str(num_passes)))
        if not runs:
            yield (method, ""), (Cell(),) * (len(COLUMNS) + 1)


def _cell(found: Sequence[Measurement], metrics: Sequence[str], decimals: int) -> Cell:
    """Average over the seeds, and say how far they are apart."""
    told = [(one, one.result[m]) for one in found for m in metrics if m in one.result]
    values = seed_means((one.seed, value) for one, value in told)
    if not values:
        return Cell()
    spread = f" ± {stdev(values):.{decimals}f}" if len(values) > 1 else ""
    return Cell(f"{fmean(values):.{decimals}f}{spread}", tuple(one.source for one, _ in told))


def _order(key: tuple[str, str, str]) -> tuple[str, str, int, str]:
    title, equal, name = key
    return title, equal, SETS.index(name) if name in SETS else len(SETS), name
