"""Values in memory, such as a layer of a viewer, as planes that can be restored."""

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from musigma.images.science.image import FormatName, Reader, Role, ScienceImage, Values
from musigma.images.science.recognise import science_format
from musigma.images.science.samples import declared_range_of
from musigma.types import ImageError

NUM_COLORS = 3
Index = tuple[int, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class ArraySource:
    """An array of pictures, with what is known about it.

    Attributes:
        name: What it is called.
        data: Its values: an array, or what can be indexed like one. The last two axes are rows and
            columns, before a last axis of three colors, or of these and opacity, if `rgb`. All
            axes before them, such as time, depth and channel, count planes.
        rgb: Whether the last axis holds colors.
        shown: Which plane is shown: an index for each axis before rows and columns.
        path: The file that it was read from, if it is known.

    Example:
        >>> stack = ArraySource(name="cells", data=np.zeros((2, 3, 8, 9)), rgb=False, shown=(0, 1))
        >>> stack.size, stack.leading, len(stack.planes(all_planes=True))
        ((8, 9), (2, 3), 6)
    """

    name: str
    data: Any
    rgb: bool
    shown: Index = ()
    path: Path | None = None

    def __post_init__(self) -> None:
        """Refuse what is no image of numbers."""
        shape, kind = tuple(self.data.shape), self.dtype.kind
        if kind not in "buif":
            raise ImageError(f"{self.name}: its values are {self.dtype}; expected real numbers")
        if len(shape) < 2 + self.rgb or 0 in shape:
            raise ImageError(f"{self.name}: expected rows and columns of pixels, got shape {shape}")
        if self.rgb and shape[-1] not in (NUM_COLORS, NUM_COLORS + 1):
            raise ImageError(f"{self.name}: expected 3 or 4 values per pixel, got {shape[-1]}")

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of its values."""
        return np.dtype(self.data.dtype)

    @property
    def num_samples(self) -> int:
        """Values of a pixel: 1, or 3 or 4 with colors."""
        return int(self.data.shape[-1]) if self.rgb else 1

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        height, width = self.data.shape[len(self.leading) :][:2]
        return int(height), int(width)

    @property
    def leading(self) -> Index:
        """Lengths of the axes before rows and columns."""
        return tuple(int(length) for length in self.data.shape[: -2 - self.rgb])

    def planes(self, *, all_planes: bool) -> list[Index]:
        """Return the indices of all planes, that which is shown first, or of this one alone.

        What can be said about noise and the like is told from the first plane.
        """
        shown = self.shown or (0,) * len(self.leading)
        others = product(*map(range, self.leading)) if all_planes else ()
        return [shown, *(index for index in others if index != shown)]


def result_type(source: ArraySource) -> np.dtype[Any]:
    """Return the type of the restored values: that of the array for colors, else floating point.

    Viewers take floating-point colors from 0 to 1, so that restored integers have to stay such.

    Example:
        >>> gray = np.zeros((8, 8), np.uint16)
        >>> result_type(ArraySource(name="a", data=gray, rgb=False))
        dtype('float32')
    """
    if source.rgb and source.dtype.kind in "iu":
        return source.dtype
    return np.result_type(source.dtype, np.float32)


def planes_of(
    source: ArraySource, indices: list[Index], *, value_range: tuple[float, float] | None = None
) -> ScienceImage:
    """Return planes of an array; the colors of one plane follow each other.

    Args:
        source: The array.
        indices: The planes.
        value_range: Values that are black and white, where the user gives them.
    """
    num_samples, num_planes = source.num_samples, len(indices)
    firsts = range(0, num_samples * num_planes, num_samples)
    is_color = num_samples >= NUM_COLORS
    color_roles: tuple[Role, ...] = ("values", "values", "values", "opacity")
    samples = ("red", "green", "blue", "opacity")[:num_samples] if is_color else ("",)
    return ScienceImage(
        path=Path(source.name),
        format=_format_of(source, value_range),
        shape=(num_samples * num_planes, *source.size),
        dtypes=(result_type(source),) * (num_samples * num_planes),
        names=tuple(_plane_name(index, name) for index in indices for name in samples),
        roles=color_roles[:num_samples] * num_planes,
        joint=tuple((n, n + 1, n + 2) for n in firsts) if is_color else (),
        declared_range=(0.0, 1.0) if _is_float_color(source) else declared_range_of(source.dtype),
        read=_reader(source, indices),
        close=lambda: None,
        metadata=None,
    )


def _is_float_color(source: ArraySource) -> bool:
    return source.rgb and source.dtype.kind == "f"


def _format_of(source: ArraySource, value_range: tuple[float, float] | None) -> FormatName:
    """Return the format of the file, or whether the values are those of a photograph."""
    of_file = science_format(source.path) if source.path is not None else None
    if of_file is not None:
        return of_file
    return "picture" if source.rgb and value_range is None else "array"


def _plane_name(index: Index, sample: str) -> str:
    return " ".join(filter(None, [",".join(map(str, index)), sample]))


def _reader(source: ArraySource, indices: list[Index]) -> Reader:
    """Return what reads a part; a plane is fetched once, as it may be computed or be on a disk."""

    @lru_cache(maxsize=1)
    def fetch(number: int) -> NDArray[Any]:
        plane = np.asarray(source.data[indices[number]])
        return plane if source.rgb else plane[..., None]

    def read(plane: int, rows: slice, columns: slice) -> Values:
        number, sample = divmod(plane, source.num_samples)
        return fetch(number)[rows, columns, sample].astype(np.float64)

    return read


def num_bytes(source: ArraySource, num_planes: int, *, zoom: int, num_arrays: int) -> int:
    """Return the memory of arrays of the size of the result.

    Example:
        >>> stack = ArraySource(name="cells", data=np.zeros((5, 8, 8), np.uint8), rgb=False)
        >>> num_bytes(stack, 5, zoom=2, num_arrays=4)
        20480
    """
    num_values = num_planes * source.num_samples * math.prod(source.size) * zoom**2
    return num_values * num_arrays * max(4, result_type(source).itemsize)
