"""The paper's tables: each printed row, and below it what our records measured."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache
from html import escape
from statistics import fmean, stdev
from typing import Any

from musigma.networks import macs, num_params
from musigma.networks.model_card import HR_SIZE, on_meta
from musigma.training.recipe import default_values
from studies.documents.result_tables import markdown
from studies.paper.measurements import RELEASED, Measurement, RecordSet
from studies.paper.printed import PrintedRow, PrintedTable, matches, printed_table

_NUMBER = ' class="number"'
OURS = "ours"
SHORT = (
    "Rows of ours were trained here, on our own images and for the stated number of steps or "
    "seconds, which is far less than the paper's training: they compare objectives at equal "
    "budget and do not reproduce the printed numbers."
)
"""Said below tables with networks that were trained here."""

# Runs that differ only in these keys share a row: seeds, and scales where scales are columns.
_SHARED_ROW = {"seed", "scale", "start_from"}


@dataclass(frozen=True)
class Cell:
    """The text of a cell, and the records it comes from."""

    text: str = ""
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """A row: its names, its numbers, and whether the paper printed it."""

    names: tuple[str, ...]
    cells: tuple[Cell, ...]
    printed: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table that is ready to be shown.

    Attributes:
        name: By which it is asked for.
        title: What it is about.
        caption: What the numbers are.
        headings: Of the names and of the cells.
        rows: From top to bottom.
        notes: What a reader has to know.
    """

    name: str
    title: str
    caption: str
    headings: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """The records behind the table, each once, in the order of their first use."""
        cells = (cell for row in self.rows for cell in row.cells)
        return tuple(dict.fromkeys(source for cell in cells for source in cell.sources))

    @property
    def num_names(self) -> int:
        """How many columns hold names."""
        return len(self.headings) - (len(self.rows[0].cells) if self.rows else 0)

    def as_json(self) -> dict[str, Any]:
        """Return the table as plain values, every cell with its records."""
        names, columns = self.headings[: self.num_names], self.headings[self.num_names :]
        rows = [
            dict(zip(names, row.names, strict=True))
            | {
                heading: {"text": cell.text, "records": list(cell.sources)}
                for heading, cell in zip(columns, row.cells, strict=True)
                if cell.text
            }
            for row in self.rows
        ]
        return {
            "name": self.name,
            "title": self.title,
            "caption": self.caption,
            "rows": rows,
            "notes": list(self.notes),
        }

    def as_markdown(self) -> str:
        """Return title, table, notes and the numbered records."""
        numbers = {source: number for number, source in enumerate(self.sources, 1)}
        rows = [
            [*names, *(_marked(cell, numbers) for cell in row.cells)]
            for row, names in zip(self.rows, self._names_once(), strict=True)
        ]
        parts = [f"## {self.title}", self.caption]
        if rows:
            parts.append(markdown(self.headings, rows, num_text=self.num_names))
        if self.notes:
            parts.append("\n".join(f"- {note}" for note in self.notes))
        if numbers:
            parts.append("\n".join(f"{n}. `{source}`" for source, n in numbers.items()))
        return "\n\n".join(parts) + "\n"

    def as_html(self, numbers: Mapping[str, int] | None = None) -> str:
        """Return an HTML section; `numbers` gives the number of each record on a larger page."""
        own = numbers is None
        numbers = numbers or {source: number for number, source in enumerate(self.sources, 1)}
        parts = [f"<h2>{escape(self.title)}</h2>", f"<p>{escape(self.caption)}</p>"]
        if self.rows:
            parts.append(f'<div class="wide"><table>{self._html_rows(numbers)}</table></div>')
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        parts.append(f'<ul class="notes">{notes}</ul>' if notes else "")
        if own and numbers:
            items = (f'<li id="record-{n}">{escape(s)}</li>' for s, n in numbers.items())
            parts.append(f'<ol class="records">{"".join(items)}</ol>')
        return f'<section id="table-{escape(self.name)}">{"".join(parts)}</section>'

    def _html_rows(self, numbers: Mapping[str, int]) -> str:
        headings = "".join(
            f'<th scope="col"{"" if column < self.num_names else _NUMBER}>{escape(text)}</th>'
            for column, text in enumerate(self.headings)
        )
        lines = [f"<thead><tr>{headings}</tr></thead><tbody>"]
        for row, texts in zip(self.rows, self._names_once(), strict=True):
            row_class = "printed" if row.printed else "measured"
            names = "".join(f'<th scope="row">{escape(name)}</th>' for name in texts)
            cells = "".join(f"<td>{_linked(cell, numbers)}</td>" for cell in row.cells)
            lines.append(f'<tr class="{row_class}">{names}{cells}</tr>')
        return "".join(lines) + "</tbody>"

    def _names_once(self) -> Iterator[list[str]]:
        """Yield the names of each row; names that repeat the row above are left empty."""
        above: tuple[str, ...] = ()
        for row in self.rows:
            shared = len(os.path.commonprefix([above, row.names]))
            yield [""] * shared + list(row.names[shared:])
            above = row.names


def paper_table(name: str, record_set: RecordSet) -> Table:
    """Return a table of the paper, with our measurements below each printed row."""
    printed = printed_table(name)
    first = 0 if printed.names[0] else 1  # a single block needs no name
    rows: list[Row] = []
    num_answered = 0
    for row in printed.rows:
        texts = (*row.properties, *row.cells)
        names = (row.block, row.name)[first:]
        rows.append(Row((*names, "paper"), tuple(map(Cell, texts)), printed=True))
        answers = _measured_cells(row, printed, (*record_set.measurements, *record_set.baselines))
        measured = [Row((*names, label), cells) for label, cells in answers]
        rows += measured
        num_answered += _num_answered(row, measured)
    num_cells = sum(bool(text) for row in printed.rows for text in row.cells)
    answered = f"{num_answered} of the {num_cells} printed cells have a measured one below them."
    trained_here = any(row.names[-1].startswith((f"{OURS}, ", f"{OURS} (")) for row in rows)
    notes = (*printed.notes, *([SHORT] if trained_here else []), answered)
    columns = (heading for heading, _ in printed.columns)
    return Table(
        name=name,
        title=printed.title,
        caption=f"{printed.caption} ({printed.label})",
        headings=(*printed.names[first:], "from", *printed.properties, *columns),
        rows=tuple(rows),
        notes=notes,
    )


def _measured_cells(
    row: PrintedRow, printed: PrintedTable, measurements: Iterable[Measurement]
) -> list[tuple[str, tuple[Cell, ...]]]:
    """Return name and cells of every run that matches a printed row."""
    if row.conditions is None:
        return []
    runs: dict[tuple[str, str], list[Measurement]] = {}
    for measurement in measurements:
        if matches(measurement, {"baseline": "", **row.conditions}):
            key = (_label(measurement, row), recipe_key(measurement.recipe, without=_SHARED_ROW))
            runs.setdefault(key, []).append(measurement)
    answers = []
    for (label, _), run in sorted(runs.items()):
        cells = [
            _cell(
                [measurement for measurement in run if matches(measurement, conditions)],
                printed,
                images=conditions.get("images", ""),
            )
            for _, conditions in printed.columns
        ]
        if any(cell.text for cell in cells):
            properties = [Cell(_property(heading, run)) for heading in printed.properties]
            answers.append((label, (*properties, *cells)))
    return answers


def _label(measurement: Measurement, row: PrintedRow) -> str:
    assert row.conditions is not None
    network = f" ({measurement.network})" if len(row.conditions["networks"]) > 1 else ""
    if measurement.objective == RELEASED:
        return f"released weights{network}"
    if not measurement.recipe:
        return f"{OURS}{network}"
    recipe = measurement.recipe
    training = f"{training_length(recipe)}{patch_note(recipe)}{settings_note(recipe)}"
    trained = {*row.conditions["objectives"]} - {RELEASED}
    objective = f", {recipe['objective']}" if len(trained) > 1 else ""
    return f"{OURS}{network}{objective}, {training}"


def settings_note(recipe: Mapping[str, Any]) -> str:
    """Return the settings by which a network differs from the usual one of its name.

    Example:
        >>> settings_note({"settings": {"num_groups": 5}}), settings_note({})
        (', num_groups 5', '')
    """
    return "".join(f", {key} {value}" for key, value in recipe.get("settings", {}).items())


def training_length(recipe: Mapping[str, Any]) -> str:
    """Return how long a recipe trains, as text.

    Example:
        >>> training_length({"steps": 12000, "seconds": None}), training_length({"seconds": 400.0})
        ('12,000 steps', '400 s')
    """
    steps, seconds = recipe.get("steps"), recipe.get("seconds")
    return f"{steps:,} steps" if steps else f"{seconds:.0f} s" if seconds else "length unknown"


def recipe_key(recipe: Mapping[str, Any], *, without: AbstractSet[str]) -> str:
    """Return the settings of a recipe as text that can be compared.

    Keys equal to their defaults are dropped, so that old records compare equal to new ones. The
    exception is `swap_channels`: its absence marks the old patch sampling (see `patch_note`).

    Example:
        >>> recipe_key({"scale": 2, "seed": 1, "keep_mean": False}, without={"seed"})
        '{"scale": 2}'
    """
    usual = json.loads(json.dumps(default_values())) | {"swap_channels": None}
    kept = {
        key: value
        for key, value in recipe.items()
        if key not in without and not (key in usual and value == usual[key])
    }
    return json.dumps(kept, sort_keys=True)


def patch_note(recipe: Mapping[str, Any]) -> str:
    """Return a note for recipes that sampled patches in the old way.

    Recipes without the key `swap_channels` are old: whole images were downscaled once, and patches
    were cut from the result, so all patches lie on one grid.

    Example:
        >>> patch_note({"scale": 2, "swap_channels": False}), patch_note({"scale": 2})
        ('', ', one grid')
    """
    now = "swap_channels" in recipe or recipe.get("scale") in (None, 1)
    return "" if now else ", one grid"


def _cell(measured: Sequence[Measurement], printed: PrintedTable, *, images: str = "") -> Cell:
    """Average over the seeds, and add the standard deviation of the first metric.

    Args:
        measured: The measurements of the cell.
        printed: Has the metrics and their decimals.
        images: Only images whose names begin so count.
    """
    measured = [measurement for measurement in measured if printed.metrics[0] in measurement.result]
    texts: list[str] = []
    for metric, decimals in zip(printed.metrics, printed.decimals, strict=True):
        values = seed_means(
            (measurement.seed, measurement.mean_of(metric, images))
            for measurement in measured
            if metric in measurement.result
        )
        if values:
            spread = f" ± {stdev(values):.{decimals}f}" if len(values) > 1 and not texts else ""
            texts.append(f"{fmean(values):.{decimals}f}{spread}")
    return Cell(" / ".join(texts), tuple(measurement.source for measurement in measured))


def seed_means(values: Iterable[tuple[int | None, float]]) -> tuple[float, ...]:
    """Return one value for each seed; a seed that was run again counts by its mean.

    Example:
        >>> seed_means([(0, 37.0), (1, 36.5), (0, 37.5)])
        (37.25, 36.5)
    """
    by_seed: dict[int | None, list[float]] = {}
    for seed, value in values:
        by_seed.setdefault(seed, []).append(value)
    return tuple(map(fmean, by_seed.values()))


def _num_answered(row: PrintedRow, measured: Sequence[Row]) -> int:
    first = len(row.properties)
    return sum(
        bool(text) and any(other.cells[first + column].text for other in measured)
        for column, text in enumerate(row.cells)
    )


def _property(heading: str, run: Sequence[Measurement]) -> str:
    """Return parameters or MACs, which can be counted; run times of other machines cannot."""
    networks = {
        (measurement.network, measurement.scale, json.dumps(measurement.recipe.get("settings", {})))
        for measurement in run
    }
    if heading not in ("parameters", "MACs") or len(networks) > 1 or not run[0].objective:
        return ""
    params, giga_macs = _counted(*networks.pop())
    if heading == "MACs":
        return f"{giga_macs:.1f}G"
    return f"{params / 1e3:.0f}K" if params < 5e6 else f"{params / 1e6:.2f}M"


@cache
def _counted(name: str, scale: int, settings: str) -> tuple[int, float]:
    network = on_meta(name, scale=scale, **json.loads(settings))
    height, width = (side // scale for side in HR_SIZE)
    return num_params(network), macs(network, height=height, width=width) / 1e9


def _marked(cell: Cell, numbers: Mapping[str, int]) -> str:
    marks = ",".join(str(numbers[source]) for source in cell.sources)
    return f"{cell.text} [{marks}]" if marks else cell.text


def _linked(cell: Cell, numbers: Mapping[str, int]) -> str:
    links = ",".join(f'<a href="#record-{numbers[s]}">{numbers[s]}</a>' for s in cell.sources)
    return escape(cell.text) + (f"<sup>{links}</sup>" if links else "")
