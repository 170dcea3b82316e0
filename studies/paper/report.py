"""All tables and figures: as files, and on one page that needs no other file."""

import base64
import os
import re
from collections.abc import Callable, Mapping
from html import escape
from importlib.resources import files
from pathlib import Path

from musigma.atomic import write_atomically
from musigma.evaluation.record import Record
from musigma.restoration.figures import write_picture
from musigma.types import ConfigError, DataError, nearest
from studies.documents.leaderboard import leaderboard_table
from studies.paper.figures import FIGURES, Drawing, draw
from studies.paper.measurements import RecordSet
from studies.paper.printed import TABLES
from studies.paper.real import real_coverage_table, real_table
from studies.paper.study import study_table
from studies.paper.tables import Table, paper_table
from studies.paper.zoo import zoo_table
from studies.paper.zoo_summary import summary_table

OWN_TABLES: dict[str, Callable[[RecordSet], Table]] = {
    "study": study_table,
    "zoo": zoo_table,
    "zoo-summary": summary_table,
    "real": real_table,
    "real-coverage": real_coverage_table,
    "leaderboard": leaderboard_table,
}
"""Tables that the paper does not have."""

TABLE_NAMES = (*TABLES, *OWN_TABLES)

Progress = Callable[[int, int, str], None]


def make_table(name: str, record_set: RecordSet) -> Table:
    """Return any table by its name: one of the paper's, or one of our own."""
    if name not in TABLE_NAMES:
        raise ConfigError(f"there is no table {name!r}; {nearest(name, TABLE_NAMES)}")
    return OWN_TABLES[name](record_set) if name in OWN_TABLES else paper_table(name, record_set)


def write_table(path: Path, table: Table) -> None:
    """Write a table as Markdown or as an HTML page, as the suffix asks."""
    if path.suffix.lower() not in (".md", ".html"):
        raise ConfigError(f"a table is written as .md or .html, not as {path.name!r}")
    is_page = path.suffix.lower() == ".html"
    text = _page(table.title, table.as_html()) if is_page else table.as_markdown()
    write_atomically(path, text.encode())


def write_report(
    folder: Path, record_set: RecordSet, *, progress: Progress | None = None
) -> list[Path]:
    """Write all tables and figures and the page ``index.html`` that holds them.

    A figure for which there are no records yet is left out, and the page says why.

    Args:
        folder: Folder for the files.
        record_set: The records.
        progress: Called before each part with number, count and name.

    Returns:
        The files, the page first.
    """
    tables, drawings, missing, written = [], {}, {}, []
    parts = [*TABLE_NAMES, *FIGURES]
    for number, name in enumerate(TABLE_NAMES):
        if progress:
            progress(number, len(parts), f"table {name}")
        tables.append(make_table(name, record_set))
        for suffix in (".md", ".html"):
            written.append(folder / "tables" / f"{name}{suffix}")
            write_table(written[-1], tables[-1])
    for number, name in enumerate(FIGURES, len(TABLE_NAMES)):
        if progress:
            progress(number, len(parts), f"figure {name}")
        try:
            drawings[name] = draw(name, record_set)
        except DataError as error:
            missing[name] = str(error)
            continue
        for suffix in (".png", ".svg"):
            written.append(folder / "figures" / f"{name}{suffix}")
            write_picture(written[-1], drawings[name].figure)
    page = folder / "index.html"
    body = _body(tables, drawings, missing, record_set, folder)
    write_atomically(
        page, _page("Revisiting l1 loss in super-resolution, measured again", body).encode()
    )
    return [page, *written]


def _body(
    tables: list[Table],
    drawings: Mapping[str, Drawing],
    missing: Mapping[str, str],
    record_set: RecordSet,
    folder: Path,
) -> str:
    used = [source for table in tables for source in table.sources]
    used += [source for drawing in drawings.values() for source in drawing.sources]
    numbers = {source: number for number, source in enumerate(dict.fromkeys(used), 1)}
    links = [(f"table-{table.name}", table.title) for table in tables]
    links += [(f"figure-{name}", figure.title) for name, figure in FIGURES.items()]
    contents = "".join(f'<li><a href="#{to}">{escape(text)}</a></li>' for to, text in links)
    parts = [f'<nav><ul>{contents}<li><a href="#records">Records</a></li></ul></nav>']
    parts += [table.as_html(numbers) for table in tables]
    for name, figure in FIGURES.items():
        inside = (
            _figure(folder / "figures" / f"{name}.svg", drawings[name], numbers)
            if name in drawings
            else f"<p>{escape(missing[name])}</p>"
        )
        parts.append(
            f'<section id="figure-{name}"><h2>{escape(figure.title)}</h2>{inside}</section>'
        )
    rows = "".join(
        _record_row(
            number, source, record_set.records[source], _link(record_set.folder / source, folder)
        )
        for source, number in numbers.items()
    )
    headings = ("", "record", "model", "data", "protocol", "weights", "commit", "device", "date")
    head = "".join(f'<th scope="col">{heading}</th>' for heading in headings)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    parts.append(f'<section id="records"><h2>Records</h2><div class="wide">{table}</div></section>')
    return "".join(parts)


def _figure(path: Path, drawing: Drawing, numbers: Mapping[str, int]) -> str:
    image = base64.b64encode(path.read_bytes()).decode()
    marks = ", ".join(f'<a href="#record-{numbers[s]}">{numbers[s]}</a>' for s in drawing.sources)
    caption = escape(drawing.caption) + (f" Records: {marks}." if marks else "")
    return (
        f'<figure><img alt="{escape(drawing.caption)}" src="data:image/svg+xml;base64,{image}">'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _record_row(number: int, source: str, record: Record, link: str) -> str:
    scale = record.model["scale"]
    made = record.provenance
    cells = (
        f"{record.model['name']} x{scale}" if scale > 1 else record.model["name"],
        record.data["name"],
        record.protocol["name"],
        record.model["digest"][:12],
        made["commit"][:12],
        made["device"],
        made["date"],
    )
    inside = "".join(f"<td>{escape(str(cell))}</td>" for cell in cells)
    name = f'<a href="{escape(link)}">{escape(source)}</a>'
    return f'<tr id="record-{number}"><td>{number}</td><th scope="row">{name}</th>{inside}</tr>'


def _link(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


def _page(title: str, body: str) -> str:
    template = files("studies.paper").joinpath("report.html").read_text(encoding="utf-8")
    parts = {"title": escape(title), "body": body}
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)
