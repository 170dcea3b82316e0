"""Fill the tables and numbers of README and docs from the records.

``python -m studies.fill_documents studies/results FILE...`` brings files up to date: what
stands between ``<!-- table: NAME -->`` and ``<!-- end -->`` is replaced by that table.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from musigma.types import DataError
from studies.paper.measurements import load_records
from studies.paper.report import TABLE_NAMES, make_table
from studies.paper.tables import Table
from studies.result_tables import TABLES, markdown, read_records


def fill(text: str, results: Path) -> str:
    """Return a document with the tables that a folder of records gives."""

    def table(match: re.Match[str]) -> str:
        name = match[1].strip()
        return f"<!-- table: {name} -->\n{_table(name, results)}\n<!-- end -->"

    return re.sub(r"<!-- table: (.*?) -->\n.*?<!-- end -->", table, text, flags=re.DOTALL)


def _table(name: str, results: Path) -> str:
    if name in TABLES:
        return TABLES[name](read_records(results))
    if name in TABLE_NAMES:
        return _bare(make_table(name, load_records(results)))
    raise DataError(f"there is no table {name!r}; known: {', '.join((*TABLES, *TABLE_NAMES))}")


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
