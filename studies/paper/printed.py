"""The numbers as the paper prints them, with the conditions under which a record answers them.

``printed/NAME.toml`` holds one table. Every cell is the text of the paper; where the paper
contradicts itself the text stays and a note says so. What a row, a block of rows or a column stands
for is written as conditions on a measurement: ``networks``, ``objectives``, ``protocols`` (any of a
list), ``scale``, ``data``, ``noise_std``, ``channels``, ``baseline`` (equal). A column with
``images`` is about those images of its set whose names begin so.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from musigma.types import ConfigError, nearest
from studies.paper.measurements import Measurement, without_spaces

TABLES = (
    "ablation",
    "beta",
    "lightweight",
    "loss-comparison",
    "realsr",
    "heavy",
    "denoise-grey",
    "denoise-colour",
    "uncertainty",
)
"""In the order of the paper."""

Conditions = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class PrintedRow:
    """One row.

    Attributes:
        block: What it shares with its neighbors, such as a scale.
        name: Its own name.
        properties: What the paper says of the network.
        cells: The text of each column.
        conditions: What a measurement of this row fulfils; `None` where no network of ours can.
    """

    block: str
    name: str
    properties: tuple[str, ...]
    cells: tuple[str, ...]
    conditions: Conditions | None


@dataclass(frozen=True, kw_only=True)
class PrintedTable:
    """One table.

    Attributes:
        name: By which it is asked for.
        title: What it is about.
        label: Its label in the source of the paper.
        caption: What the numbers are.
        names: Headings of block and row; the first is empty where there is one block.
        properties: Headings of the properties.
        columns: Headings of the columns, and what a measurement fulfils.
        metrics: What a cell holds, in order.
        decimals: Of each metric.
        notes: What a reader has to know before believing it.
        rows: From top to bottom.
    """

    name: str
    title: str
    label: str
    caption: str
    names: tuple[str, str]
    properties: tuple[str, ...]
    columns: tuple[tuple[str, Conditions], ...]
    metrics: tuple[str, ...]
    decimals: tuple[int, ...]
    notes: tuple[str, ...]
    rows: tuple[PrintedRow, ...]


@cache
def printed_table(name: str) -> PrintedTable:
    """Return a table of the paper by its name.

    Example:
        >>> printed_table("beta").rows[2].cells
        ('33.707 / 0.9185',)
    """
    if name not in TABLES:
        raise ConfigError(f"the paper has no table {name!r}; {nearest(name, TABLES)}")
    text = files("studies.paper").joinpath(f"printed/{name}.toml").read_text(encoding="utf-8")
    values = tomllib.loads(text)
    shared, methods, blocks = (values.pop(key) for key in ("conditions", "methods", "blocks"))
    properties = tuple(values.pop("properties"))
    rows = []
    for block in blocks:
        for method, *texts in block["rows"]:
            own = methods.get(method)
            rows.append(
                PrintedRow(
                    block=block["name"],
                    name=method,
                    properties=tuple(texts[: len(properties)]),
                    cells=tuple(texts[len(properties) :]),
                    conditions=None if own is None else {**shared, **block["conditions"], **own},
                )
            )
    columns = tuple((column.pop("name"), column) for column in values.pop("columns"))
    lists = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
    return PrintedTable(
        name=name, properties=properties, columns=columns, rows=tuple(rows), **{**values, **lists}
    )


def matches(measurement: Measurement, conditions: Conditions) -> bool:
    """Say whether a measurement fulfils every condition."""
    actual = {
        "networks": measurement.network,
        "objectives": measurement.objective,
        "protocols": measurement.protocol.get("name"),
        "baseline": measurement.baseline,
        "scale": measurement.scale,
        "data": measurement.data,
        "noise_std": measurement.protocol.get("noise_std"),
        "channels": measurement.protocol.get("channels"),
    }
    for key, wanted in conditions.items():
        if key == "images":  # it says which images count, not whether the measurement does
            continue
        if key == "objectives":
            wanted = [without_spaces(text) for text in wanted]
        if actual[key] not in wanted if isinstance(wanted, list) else actual[key] != wanted:
            return False
    return True
