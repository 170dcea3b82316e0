"""Rows of the tables of damaged pictures, from the records of `damage_rates`."""

from collections.abc import Iterable, Iterator, Mapping

from musigma.evaluation.record import Record

MODELS = ("photo x1", "photo x2", "photo x4", "edsr-baseline x2")
HEADINGS = ("picture", *MODELS, "held or told, before", "held or told, now")


def rows(records: Iterable[Record], marks: Mapping[str, str]) -> Iterator[list[str]]:
    """Yield a row for each kind of damage.

    Args:
        records: Of any kind.
        marks: The parts of the records that are wanted, and what is put after the names of each.
    """
    for record in records:
        if record.protocol["name"] != "damage-rates":
            continue
        for part, mark in marks.items():
            for name, rates in record.result.get(part, {}).items():
                cells = [_cell(rates.get(model)) for model in MODELS]
                shares = [
                    sum(values[key] for values in rates.values()) / len(rates)
                    for key in ("inside_or_warned_before", "inside_or_warned")
                ]
                yield [name + mark, *cells, *(f"{share:.0%}" for share in shares)]


def _cell(rates: Mapping[str, float] | None) -> str:
    return "" if rates is None else f"{rates['inside']:.0%} / {rates['speaks']:.0%}"
