"""Which values of a scientific file are black and white for a network.

Weights may bring their normalisation in their metadata, in one of three forms: ``value_range`` with
two numbers for all channels, ``value_range`` with two numbers for each channel, or
``value_percentiles`` with two percentiles, which are measured in each plane of a file.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from musigma.images.listing import image_error
from musigma.images.science.image import ScienceImage, Values
from musigma.types import ConfigError, short_repr

_GRID, _SIDE = 8, 64  # windows along each axis that are looked at, and their side
SMALL_SHARE = 0.25
"""Values that fill less of their range are dark to a network; the user is told."""

STORED = "stored with the weights"


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
    """Values from windows all over a plane.

    Attributes:
        low: The lowest.
        high: The highest.
        median: The middle one.
        percentiles: The two that were asked for.
    """

    low: float
    high: float
    median: float
    percentiles: tuple[float, float] | None = None


class Normalisation(NamedTuple):
    """What weights say about the values that they expect; one of the two is `None`.

    Attributes:
        ranges: The values of black and white, once for all channels or once for each of them.
        percentiles: The percentiles of each plane that are black and white.
    """

    ranges: tuple[tuple[float, float], ...] | None = None
    percentiles: tuple[float, float] | None = None


def sample_plane(
    image: ScienceImage, plane: int, percentiles: tuple[float, float] | None = None
) -> Sampled | None:
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
    levels = None
    if percentiles is not None:
        low, high = np.percentile(values, percentiles).tolist()
        levels = (low, high)
    return Sampled(float(values.min()), float(values.max()), float(np.median(values)), levels)


def choose_ranges(
    image: ScienceImage,
    sampled: Mapping[int, Sampled | None],
    groups: Sequence[tuple[int, ...]],
    *,
    given: tuple[float, float] | None,
    of_weights: Normalisation | None = None,
) -> dict[int, ValueRange]:
    """Return the range of each plane: given, or that of the weights, the file, or what was seen.

    Args:
        image: The file.
        sampled: What was seen of each of its planes.
        groups: The planes that the network sees together, in the order of its channels.
        given: The range that the user gave.
        of_weights: What the weights say.

    Raises:
        ConfigError: If the weights have ranges for another number of channels.
        ImageError: If all values are equal, so that no range can be found.
    """
    if given is None and of_weights is not None:
        if of_weights.percentiles is not None:
            return _percentile_ranges(image, sampled, of_weights.percentiles)
        if of_weights.ranges is not None and len(of_weights.ranges) > 1:
            return _channel_ranges(groups, of_weights.ranges)
    samples = [sample for sample in sampled.values() if sample is not None]
    stored = of_weights.ranges[0] if of_weights is not None and of_weights.ranges else None
    common = choose_range(image, samples, given=given, of_weights=stored)
    return dict.fromkeys(sampled, common)


def _percentile_ranges(
    image: ScienceImage,
    sampled: Mapping[int, Sampled | None],
    percentiles: tuple[float, float],
) -> dict[int, ValueRange]:
    origin = "percentiles {:g} and {:g} of each plane, stored with the weights".format(*percentiles)
    ranges = {}
    for plane, sample in sampled.items():
        low, high = (0.0, 1.0) if sample is None else sample.percentiles or (0.0, 0.0)
        if not low < high:
            text = f"{image.names[plane]}: percentiles {percentiles[0]:g} and {percentiles[1]:g}"
            raise image_error(image.path, f"{text} are both {low:g}; give the range of values")
        ranges[plane] = ValueRange(low, high, origin)
    return ranges


def _channel_ranges(
    groups: Sequence[tuple[int, ...]], stored: tuple[tuple[float, float], ...]
) -> dict[int, ValueRange]:
    ranges = {}
    for group in groups:
        if len(group) != len(stored):
            raise ConfigError(
                f"the weights have ranges of values for {len(stored)} channels, and {len(group)} "
                "are restored together; give the range of values"
            )
        for plane, (low, high) in zip(group, stored, strict=True):
            ranges[plane] = ValueRange(low, high, STORED)
    return ranges


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
        return ValueRange(*of_weights, STORED)
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
    if value_range.origin == "given" or value_range.origin.endswith(STORED) or not samples:
        return []
    low, high = min(sample.low for sample in samples), max(sample.high for sample in samples)
    if value_range.origin == "measured in the file":
        return [
            f"The range of its values, {low:g} to {high:g}, was measured; give --range, so that "
            "all files are treated alike."
        ]
    if high - value_range.low < SMALL_SHARE * value_range.span:
        text = f"Its values lie between {low:g} and {high:g}, and the range is"
        return [f"{text} {value_range.low:g} to {value_range.high:g}; --range suits better."]
    for median in (sample.median for sample in samples):
        if max(median - value_range.high, value_range.low - median) > value_range.span:
            text = f"Values of a plane lie around {median:g}, and the network knows the range of"
            return [f"{text} {value_range.low:g} to {value_range.high:g}; --range suits better."]
    return []


def stored_normalisation(metadata: Mapping[str, Any]) -> Normalisation | None:
    """Return what the metadata of weights say about values; `None` where they say nothing.

    Example:
        >>> stored_normalisation({"value_range": [0, 10000]})
        Normalisation(ranges=((0.0, 10000.0),), percentiles=None)
        >>> stored_normalisation({"value_range": [[0, 100], [0, 1]]}).ranges
        ((0.0, 100.0), (0.0, 1.0))
        >>> stored_normalisation({"value_percentiles": [0.1, 99.9]}).percentiles
        (0.1, 99.9)
    """
    ranges, percentiles = metadata.get("value_range"), metadata.get("value_percentiles")
    if percentiles is not None:
        low, high = _two_numbers("value_percentiles", percentiles)
        if low < 0 or high > 100:
            got = short_repr(percentiles)
            raise ConfigError(f"value_percentiles of the weights must lie from 0 to 100, got {got}")
        return Normalisation(percentiles=(low, high))
    if ranges is None:
        return None
    is_nested = isinstance(ranges, list | tuple) and ranges and isinstance(ranges[0], list | tuple)
    pairs = ranges if is_nested else [ranges]
    return Normalisation(ranges=tuple(_two_numbers("value_range", pair) for pair in pairs))


def _two_numbers(name: str, stored: Any) -> tuple[float, float]:
    try:
        low, high = map(float, stored)
    except (TypeError, ValueError, OverflowError):
        low = high = 0.0
    if not low < high or not math.isfinite(high - low):
        got = short_repr(stored)
        raise ConfigError(f"{name} of the weights must be two numbers, the lower first, got {got}")
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
        raise ConfigError(f"expected --range LOW,HIGH with LOW below HIGH, got {short_repr(text)}")
    return low, high


def _starts(length: int) -> list[int]:
    last = max(0, length - _SIDE)
    return sorted({round(last * n / (_GRID - 1)) for n in range(_GRID)})
