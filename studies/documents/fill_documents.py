"""Fill the tables and numbers of README and docs from the records.

``python -m studies.documents.fill_documents studies/results FILE...`` brings files up to date. Two
marks are filled, both invisible in the rendered page:

- ``<!-- table: NAME -->`` ... ``<!-- end -->`` holds a table;
- ``<!--= RECORD; KEY; FORMAT -->37.96<!--/-->`` holds one number. RECORD is a path below the folder
  of records without ``.json``, KEY names a value of its result, with ``/`` for each step inside.
  Two records or keys joined by ``minus`` or ``over`` give a difference or a ratio.
  ``study; RUNS; OBJECTIVE; SET`` gives the gain over l1 with its interval from the study, and for
  all images its p-value, by itself and corrected for all comparisons. With ``; seeds 5 to 16`` at
  the end only these seeds count, and the p-value stands by itself.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from musigma.evaluation.record import load_record
from musigma.types import DataError
from studies.documents.result_tables import TABLES, markdown, number, read_records
from studies.paper.measurements import RecordSet, load_records
from studies.paper.report import TABLE_NAMES, make_table
from studies.paper.study import ALL, Study, corrected_p_values, objective_studies, p_text
from studies.paper.tables import Table

TABLE = re.compile(r"<!-- table: (.*?) -->\n.*?<!-- end -->", re.DOTALL)
VALUE = re.compile(r"<!--= (.*?) -->.*?<!--/-->", re.DOTALL)


def fill(text: str, results: Path) -> str:
    """Return a document with the tables and numbers that a folder of records gives."""

    def table(match: re.Match[str]) -> str:
        name = match[1].strip()
        return f"<!-- table: {name} -->\n{_table(name, results)}\n<!-- end -->"

    def value(match: re.Match[str]) -> str:
        return f"<!--= {match[1]} -->{_value(match[1], results)}<!--/-->"

    return VALUE.sub(value, TABLE.sub(table, text))


@cache
def _record_set(results: Path) -> RecordSet:
    return load_records(results)


@cache
def _studies(results: Path, seeds: str = "") -> tuple[Study, ...]:
    return tuple(objective_studies(_record_set(results), _seeds(seeds)))


def _seeds(text: str) -> range | None:
    """Return the seeds that ``seeds 5 to 16`` names; nothing for no text."""
    if not text:
        return None
    match = re.fullmatch(r"seeds (\d+) to (\d+)", text)
    if match is None:
        raise DataError(f"expected 'seeds FIRST to LAST', got {text!r}")
    return range(int(match[1]), int(match[2]) + 1)


@cache
def _table(name: str, results: Path) -> str:
    if name in TABLES:
        return TABLES[name](read_records(results))
    if name in TABLE_NAMES:
        return _bare(make_table(name, _record_set(results)))
    raise DataError(f"there is no table {name!r}; known: {', '.join((*TABLES, *TABLE_NAMES))}")


def _value(spec: str, results: Path) -> str:
    parts = [part.strip() for part in spec.split(";")]
    if parts[0] == "study" and len(parts) in (4, 5):
        return _gain(results, *parts[1:])
    if len(parts) != 3:
        raise DataError(f"expected 'RECORD; KEY; FORMAT', got {spec!r}")
    source, key, form = parts
    for word in (" minus ", " over "):
        if word in source or word in key:
            left, right = (
                _number(results, *pair)
                for pair in zip(_both(source, word), _both(key, word), strict=True)
            )
            return format(left - right if word == " minus " else left / right, form)
    return number(_number(results, source, key), form)


def _both(text: str, word: str) -> tuple[str, str]:
    """Return what stands on both sides of a word; the same text twice where it is absent."""
    left, separator, right = text.partition(word)
    return (left, right) if separator else (left, left)


def _number(results: Path, source: str, key: str) -> float:
    value: Any = _results_of(results / f"{source}.json")
    for step in key.split("/"):
        if not isinstance(value, Mapping) or step not in value:
            known = ", ".join(value) if isinstance(value, Mapping) else "no further keys"
            raise DataError(f"{source} has no result {key!r}; {step!r} is not among {known}")
        value = value[step]
    if not isinstance(value, int | float):
        raise DataError(f"{key!r} of {source} is no number: {value!r}")
    return value


@cache
def _results_of(path: Path) -> dict[str, Any]:
    return load_record(path).result


def _gain(results: Path, runs: str, objective: str, data: str, seeds: str = "") -> str:
    """Return the gain of an objective over l1 with its interval, as the study table has it."""
    for study in _studies(results, seeds):
        if study.title == runs and objective in study.outcomes:
            outcome = study.outcomes[objective].get(data)
            if outcome is not None and outcome.difference is not None:
                mean, low, high = outcome.difference.interval()
                p_values = _p_values(results, runs, objective) if data == ALL else ""
                if seeds:
                    p_values = f"; p {p_text(outcome.difference.p_value)}"
                return f"{mean:+.3f} dB ({low:+.3f} to {high:+.3f}{p_values})"
    raise DataError(f"the study has no gain of {objective!r} on {data!r} in {runs!r}")


def _p_values(results: Path, runs: str, objective: str) -> str:
    plain, corrected = map(p_text, corrected_p_values(_studies(results))[runs, objective])
    return f"; p {plain}, corrected {corrected}"


def _bare(table: Table) -> str:
    """Return the measured rows only; `python -m studies paper table` prints the rest, too."""
    rows = [
        [*row.names, *(cell.text for cell in row.cells)]
        for row in table.rows
        if any(cell.text for cell in row.cells)
    ]
    return markdown(table.headings, rows, num_text=table.num_names)


def main(arguments: Sequence[str]) -> None:
    """Bring files up to date with a folder of records."""
    results, *files = (Path(argument) for argument in arguments)
    for path in files:
        path.write_text(fill(path.read_text(), results))


if __name__ == "__main__":
    main(sys.argv[1:])
