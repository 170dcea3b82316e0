"""Tables made from records: what README and docs print is generated, never typed.

``python -m musigma.evaluation.tables benchmarks/results FILE...`` brings files up to date.
"""

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from musigma.evaluation.records import Record, load_record
from musigma.types import DataError

SETS = ("Set5", "Set14", "B100", "Urban100")
Rows = list[list[str]]


def read_records(folder: Path) -> list[Record]:
    """Read every record below a folder, sorted by path."""
    return [load_record(path) for path in sorted(folder.rglob("*.json"))]


def markdown(headings: Sequence[str], rows: Rows) -> str:
    """Format a table; the first column is text, the others are numbers.

    Example:
        >>> print(markdown(["set", "PSNR"], [["Set5", "37.99"]]))
        | set | PSNR |
        | --- | ---: |
        | Set5 | 37.99 |
    """
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def fidelity_table(records: Iterable[Record]) -> str:
    """PSNR and SSIM on Y of each model on each set."""
    return _by_set(records, lambda r: f"{r['psnr_y']:.2f} / {r['ssim_y']:.4f}", needs="psnr_y")


def uncertainty_table(records: Iterable[Record]) -> str:
    """Calibrated PLL, sigma-residual PSNR and coverage of each model on each set."""

    def cell(result: dict[str, float]) -> str:
        pll, sigma_psnr, inside = (
            result[key] for key in ("pll_calibrated", "sigma_psnr", "coverage")
        )
        return f"{pll:.2f} / {sigma_psnr:.2f} / {inside:.1%}"

    return _by_set(records, cell, needs="pll_calibrated")


def speed_table(records: Iterable[Record]) -> str:
    """Milliseconds of a training step, ours beside the plain loops."""
    newest = [record for record in records if record.protocol["name"] == "train-step"]
    if not newest:
        return ""
    record = max(newest, key=lambda one: one.provenance["date"])
    rows = [
        [name, f"{t['median_ms']:.2f}", f"{t['patches_per_second']:.0f}", f"{t['tflops']:.0f}"]
        for name, t in record.result["timings"].items()
    ]
    headings = [f"step on one {record.provenance['device']}", "ms", "patches/s", "TFLOP/s"]
    return markdown(headings, rows)


def runs_table(records: Iterable[Record]) -> str:
    """Validation PSNR of every training run, the best first within a scale."""
    found = []
    for record in records:
        if record.kind == "training":
            recipe, result = record.model["recipe"], record.result
            scale, score = record.model["scale"], result["validation"]["psnr_y"]
            cells = [recipe["objective"], recipe["optimiser"], str(recipe["batch"])]
            cells += [f"{recipe['learning_rate']:g}", f"{result['seconds']:.0f}"]
            cells += [str(result["steps"]), f"{score:.2f}"]
            found.append((scale, -score, [f"{record.model['name']} x{scale}", *cells]))
    headings = ["network", "objective", "optimiser", "batch", "rate", "seconds", "steps", "dB"]
    return markdown(headings, [row for _, _, row in sorted(found)])


TABLES: dict[str, Callable[[Iterable[Record]], str]] = {
    "fidelity": fidelity_table,
    "uncertainty": uncertainty_table,
    "training speed": speed_table,
    "training runs": runs_table,
}


def fill(text: str, records: list[Record]) -> str:
    """Replace what stands between ``<!-- table: NAME -->`` and ``<!-- end -->`` by the table."""

    def table(match: re.Match[str]) -> str:
        name = match[1].strip()
        if name not in TABLES:
            raise DataError(f"there is no table {name!r}; known: {', '.join(TABLES)}")
        return f"<!-- table: {name} -->\n{TABLES[name](records)}\n<!-- end -->"

    return re.sub(r"<!-- table: (.*?) -->\n.*?<!-- end -->", table, text, flags=re.DOTALL)


def _by_set(
    records: Iterable[Record], cell: Callable[[dict[str, float]], str], *, needs: str
) -> str:
    cells: dict[tuple[int, str], dict[str, str]] = {}
    for record in records:
        if record.kind == "evaluation" and needs in record.result:
            key = (record.model["scale"], _label(record.model))
            cells.setdefault(key, {})[record.data["name"]] = cell(record.result)
    rows = [
        [name, *(found.get(one, "") for one in SETS)] for (_, name), found in sorted(cells.items())
    ]
    return markdown(["model", *SETS], rows)


def _label(model: dict[str, Any]) -> str:
    label = f"{model['name']} x{model['scale']}"
    if not model["digest"]:
        return label
    # Weights of ours say how they were trained; released files of others do not.
    training = model.get("training")
    if not training:
        return f"{label} (released weights)"
    return f"{label}, {training['recipe']['objective']}, {training['seconds']:.0f} s"


def main(arguments: Sequence[str]) -> None:
    """Bring the tables of files up to date with a folder of records."""
    folder, *files = (Path(argument) for argument in arguments)
    records = read_records(folder)
    for path in files:
        path.write_text(fill(path.read_text(), records))


if __name__ == "__main__":
    main(sys.argv[1:])
