"""From values in the units of a file to its samples, and raw planes inside a file."""

from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from musigma.images.science.image import Values


def as_values(samples: NDArray[Any]) -> Values:
    """Return samples as values; bits that are no number, of whatever kind, become NaN."""
    with np.errstate(invalid="ignore"):  # of a NaN that should raise an alarm
        return samples.astype(np.float64)


def encode(
    values: Values,
    dtype: np.dtype[Any],
    *,
    missing: float | None = None,
    bits: int | None = None,
) -> NDArray[Any]:
    """Return values as samples: integers are rounded and limited to the range of their type.

    Args:
        values: With NaN where a value is missing.
        dtype: Type of the samples.
        missing: The sample that stands for a missing value. A value that would be stored as this
            sample is moved to its neighbour. Without it, a missing integer becomes 0.
        bits: Number of bits that are used, where these are fewer than the type has.

    Example:
        >>> encode(np.array([-3.0, 0.2, 99.6, np.nan]), np.dtype("uint8"), missing=0)
        array([  1,   1, 100,   0], dtype=uint8)
    """
    is_missing = np.isnan(values)
    if dtype.kind == "f":
        largest = float(np.finfo(dtype).max)
        samples = np.clip(values, -largest, largest).astype(dtype)
        if missing is not None:
            samples[samples == missing] = np.nextafter(dtype.type(missing), dtype.type(largest))
            samples[is_missing] = missing
        return samples
    low, high = integer_range(dtype, bits)
    levels = np.clip(np.rint(np.where(is_missing, 0.0, values)), low, high)
    if missing is not None:
        levels[levels == missing] = missing + 1 if missing + 1 <= high else missing - 1
        levels[is_missing] = missing
    return levels.astype(dtype)


def integer_range(dtype: np.dtype[Any], bits: int | None = None) -> tuple[int, int]:
    """Return the smallest and the largest integer of a type, or of its lower bits.

    Example:
        >>> integer_range(np.dtype("uint16"), 12), integer_range(np.dtype("int16"))
        ((0, 4095), (-32768, 32767))
    """
    limits = np.iinfo(dtype)
    high = int(limits.max) if bits is None else min(int(limits.max), 2**bits - 1)
    return int(limits.min), high


def declared_range_of(dtype: np.dtype[Any], bits: int | None = None) -> tuple[float, float] | None:
    """Return 0 and the largest value of an integer type; `None` for floating point.

    Example:
        >>> declared_range_of(np.dtype("uint16"), 12), declared_range_of(np.dtype("float32"))
        ((0.0, 4095.0), None)
    """
    return (0.0, float(integer_range(dtype, bits)[1])) if dtype.kind in "iu" else None


def unusable_samples(dtype: np.dtype[Any]) -> str:
    """Say why samples of a type are refused.

    Example:
        >>> unusable_samples(np.dtype("int64"))
        'its samples are int64; store them as 32-bit integers or as floating point'
    """
    return f"its samples are {dtype}; store them as 32-bit integers or as floating point"


class RawPlanes:
    """Planes that lie one after the other in a file, without compression.

    Args:
        file: Open for writing.
        offset: Where the first plane begins.
        dtype: Type of the samples with the byte order of the file.
        size: Height and width of a plane.
    """

    def __init__(
        self, file: BinaryIO, offset: int, dtype: np.dtype[Any], size: tuple[int, int]
    ) -> None:
        self.file, self.offset, self.dtype = file, offset, dtype
        self.height, self.width = size

    def write(self, plane: int, top: int, samples: NDArray[Any]) -> None:
        """Write rows of a plane."""
        row = plane * self.height + top
        self.file.seek(self.offset + row * self.width * self.dtype.itemsize)
        self.file.write(np.ascontiguousarray(samples, self.dtype).tobytes())
