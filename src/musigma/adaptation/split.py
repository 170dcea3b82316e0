"""Which pictures train, validate, calibrate and measure: whole pictures, by name and seed."""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Literal, NamedTuple, get_args

from musigma.datasets.catalog import Item
from musigma.types import DataError

Part = Literal["training", "validation", "calibration", "held-back"]
PARTS: tuple[Part, ...] = get_args(Part)


class Share(NamedTuple):
    """How many of the pictures a part gets: one in `every`, within limits."""

    every: int
    least: int
    most: int


SHARES: dict[Part, Share] = {
    "validation": Share(every=6, least=3, most=20),
    "calibration": Share(every=3, least=9, most=100),
    "held-back": Share(every=5, least=4, most=50),
}
"""All parts but training, which gets the other pictures.

Nine pictures are the least with which a coverage of 0.9 means anything: of ten pictures, one may be
missed. The pictures for validation decide whether the start was improved. More pictures than the
most would cost time that training needs.
"""

LEAST_FOR_PROMISE = 36
"""Calibration pictures from which on intervals come with a promise.

Conformal risk control counts one more picture as missed altogether. With 36 pictures its intervals
of 0.9 are made to hold 0.925, with 10 it would be 0.99: they would be far too wide to be of use.
"""

PICTURES_FOR_PROMISE = LEAST_FOR_PROMISE * SHARES["calibration"].every
"""Pictures from which on that many are for calibration."""

LEAST_TRAINING = 4
LEAST_PICTURES = LEAST_TRAINING + sum(share.least for share in SHARES.values())
"""With fewer pictures there is nothing to adapt to."""


def count_parts(num_pictures: int) -> dict[Part, int]:
    """Return how many pictures each part gets.

    Raises:
        DataError: There are too few pictures; it says how many are needed.

    Example:
        >>> count_parts(30)
        {'training': 9, 'validation': 5, 'calibration': 10, 'held-back': 6}
    """
    if num_pictures < LEAST_PICTURES:
        least: dict[Part, int] = {"training": LEAST_TRAINING}
        least |= {part: share.least for part, share in SHARES.items()}
        raise DataError(
            f"{num_pictures} pictures are too few: at least {LEAST_PICTURES} are needed "
            f"({in_words(least)}); add {LEAST_PICTURES - num_pictures} more, "
            "of other scenes"
        )
    others = {
        part: min(max(num_pictures // share.every, share.least), share.most)
        for part, share in SHARES.items()
    }
    return {"training": num_pictures - sum(others.values()), **others}


def in_words(counts: Mapping[Part, int]) -> str:
    """Say how many pictures each part has.

    Example:
        >>> in_words({"training": 4, "validation": 3, "calibration": 9, "held-back": 4})
        '4 for training, 3 for validation, 9 for calibration, 4 held back'
    """
    texts = {"held-back": "held back"}
    return ", ".join(f"{count} {texts.get(part, f'for {part}')}" for part, count in counts.items())


def split(items: Iterable[Item], *, seed: int = 0) -> dict[Part, tuple[Item, ...]]:
    """Divide pictures among the parts; every picture is in one of them.

    The order follows from a hash of seed and name, so that it is the same on every machine.

    Args:
        items: The pictures.
        seed: Another seed gives another division.
    """
    ordered = sorted(items, key=lambda item: blake2b(f"{seed}/{item.name}".encode()).digest())
    parts: dict[Part, tuple[Item, ...]] = {}
    start = 0
    for part, count in count_parts(len(ordered)).items():
        chosen = ordered[start : start + count]
        parts[part] = tuple(sorted(chosen, key=lambda item: item.name))
        start += count
    return parts
