"""Which values of a scientific file are black and white for a network."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from musigma.images.listing import image_error
from musigma.images.science.image import ScienceImage, Values
from musigma.types import ConfigError

_GRID, _SIDE = 8, 64  # windows along each axis that are looked at, and their side
_SMALL_SHARE = 0.25


class ValueRange(NamedTuple):
    """The values that a network sees as 0 and 1; values beyond them are not clipped.

    Attributes:
        low: The value of black.
        high: The value of white.
        origin: Where the two come from, in words.
    """

    low: float
    high: float
    origin: str

    @property
    def span(self) -> float:
        """The difference of the two."""
        return self.high - self.low

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g} ({self.origin})"


class Sampled(NamedTuple):
    """Values from windows all over a plane: the lowest, the highest, and the middle one."""

    low: float
    high: float
    median: float


def sample_plane(image: ScienceImage, plane: int) -> Sampled | None:
    """Look at windows all over a plane; return `None` where all values are missing."""
    _, height, width = image.shape
    parts = [
        image.read(
            plane, slice(top, min(top + _SIDE, height)), slice(left, min(left + _SIDE, width))
        )
        for top in _starts(height)
        for left in _starts(width)
    ]
    values: Values = np.concatenate([part[np.isfinite(part)] for part in parts])
    if not values.size:
        return None
    return Sampled(float(values.min()), float(values.max()), float(np.median(values)))


def choose_range(
    image: ScienceImage,
    samples: list[Sampled],
    *,
    given: tuple[float, float] | None,
    of_weights: tuple[float, float] | None = None,
) -> ValueRange:
    """Return the range that was given, or that of the weights, of the file, or of what was seen.

    Args:
        image: The file.
        samples: What was seen of its planes.
        given: The range that the user gave.
        of_weights: The range that is stored with the weights.

    Raises:
        ImageError: If all values are equal, so that no range can be found.
    """
    if given is not None:
        return ValueRange(*given, "given")
    if of_weights is not None:
        return ValueRange(*of_weights, "stored with the weights")
    if image.declared_range is not None:
        return ValueRange(*image.declared_range, "declared by the file")
    low = min((sample.low for sample in samples), default=0.0)
    high = max((sample.high for sample in samples), default=0.0)
    if low >= 0 and high <= 1:
        return ValueRange(0.0, 1.0, "all values that were looked at lie between 0 and 1")
    if not low < high or not math.isfinite(high - low):
        text = f"its values are all {low:g}" if low == high else "its values have no usable range"
        raise image_error(image.path, f"{text}; give the range of values")
    return ValueRange(low, high, "measured in the file")


def range_warnings(value_range: ValueRange, samples: list[Sampled]) -> list[str]:
    """Say where another range would suit the values better.

    Example:
        >>> seen = [Sampled(300.0, 9000.0, 1200.0)]
        >>> range_warnings(ValueRange(0.0, 65535.0, "declared by the file"), seen)
        ['Its values lie between 300 and 9000, and the range is 0 to 65535; --range suits better.']
    """
    if value_range.origin in ("given", "stored with the weights") or not samples:
        return []
    low, high = min(sample.low for sample in samples), max(sample.high for sample in samples)
    if value_range.origin == "measured in the file":
        return [
            f"The range of its values, {low:g} to {high:g}, was measured; give --range, so that "
            "all files are treated alike."
        ]
    if high - value_range.low < _SMALL_SHARE * value_range.span:
        text = f"Its values lie between {low:g} and {high:g}, and the range is"
        return [f"{text} {value_range.low:g} to {value_range.high:g}; --range suits better."]
    return []


def stored_range(metadata: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return the range in the metadata of weights, under ``value_range``; `None` where none is.

    Example:
        >>> stored_range({"value_range": [0, 10000]}), stored_range({})
        ((0.0, 10000.0), None)
    """
    stored = metadata.get("value_range")
    if stored is None:
        return None
    try:
        low, high = map(float, stored)
    except (TypeError, ValueError):
        low = high = 0.0
    if not low < high or not math.isfinite(high - low):
        raise ConfigError(
            f"`value_range` of the weights must be two numbers, the lower first, got {stored!r}"
        )
    return low, high


def parse_range(text: str | None) -> tuple[float, float] | None:
    """Read two numbers with a comma between them.

    Example:
        >>> parse_range("0,4095"), parse_range(None)
        ((0.0, 4095.0), None)
    """
    if text is None:
        return None
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        low = high = 0.0
    if not low < high or not math.isfinite(high - low):
        raise ConfigError(f"expected --range LOW,HIGH with LOW below HIGH, got {text!r}")
    return low, high


def _starts(length: int) -> list[int]:
    last = max(0, length - _SIDE)
    return sorted({round(last * n / (_GRID - 1)) for n in range(_GRID)})
