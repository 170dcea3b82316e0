"""A scientific picture: planes of values in the units of its file, read in parts."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from musigma.images.listing import image_error
from musigma.types import ImageError, first_line

Values = NDArray[np.float64]
Reader = Callable[[int, slice, slice], Values]
Check = Callable[[int, int], None]
"""Refuses a file before its pixels are read, by the pixels of a plane and the bytes that reading
needs at once."""

Role = Literal["values", "opacity", "labels"]
FormatName = Literal["GeoTIFF", "OME-TIFF", "FITS", "EXR", "picture", "array"]
"""Formats of files; of values in memory, those of a photograph, and all others."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ScienceImage:
    """What a scientific file holds; its planes are read when they are needed.

    Attributes:
        path: The file, or the name of what lies in memory.
        format: ``GeoTIFF``, ``OME-TIFF``, ``FITS`` or ``EXR``; of values in memory that no such
            file holds, ``picture`` for a photograph and ``array`` for all others.
        shape: Number of planes, height and width. A plane is a band, or one picture of a stack.
        dtypes: Type of the samples of each plane.
        names: Name of each plane.
        roles: What each plane is: ``values`` are restored, ``opacity`` is enlarged bicubically,
            and the pixels of ``labels`` are repeated.
        joint: Triples of planes that are red, green and blue of one picture.
        declared_range: Values that the file says are black and white; `None` where it says nothing.
        read: Returns a part of a plane, given its number, rows and columns, as float64 in the units
            of the file. Values that are missing are NaN.
        close: Closes the file.
        metadata: What the writer of the format needs to know.
        left_out: Parts of the file that are neither read nor written.
        channel_sets: For a stack, the planes of all channels at one place and time, in the order of
            the channels; one such set for each place and time. Empty where there is no stack: then
            all planes belong to one picture.
    """

    path: Path
    format: FormatName
    shape: tuple[int, int, int]
    dtypes: tuple[np.dtype[Any], ...]
    names: tuple[str, ...]
    roles: tuple[Role, ...]
    joint: tuple[tuple[int, ...], ...]
    declared_range: tuple[float, float] | None
    read: Reader
    close: Callable[[], None]
    metadata: Any
    left_out: tuple[str, ...] = ()
    channel_sets: tuple[tuple[int, ...], ...] = ()

    @property
    def value_planes(self) -> tuple[int, ...]:
        """Numbers of the planes that are restored; these get an error plane."""
        return tuple(plane for plane, role in enumerate(self.roles) if role == "values")


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a writer is told about the result.

    Attributes:
        scale: Zoom factor.
        has_errors: Whether every plane of values has an error plane.
        notes: What the file says about the result, as short texts by name.
    """

    scale: int
    has_errors: bool
    notes: dict[str, str]

    def size_of(self, image: ScienceImage) -> tuple[int, int]:
        """Return height and width of the result."""
        return image.shape[1] * self.scale, image.shape[2] * self.scale


class PlaneWriter(Protocol):
    """Takes the rows of each plane from top to bottom; planes may take turns."""

    def write(self, plane: int, top: int, values: Values, errors: Values | None) -> None:
        """Write rows in the units of the file.

        Args:
            plane: Number of the plane.
            top: The first row.
            values: ``(rows, width)``; NaN where a value is missing.
            errors: The same for the error plane; `None` for a plane without one.
        """
        ...


def unreadable(path: Path, format_name: str, error: Exception) -> ImageError:
    """Return the error of a file that its library cannot read."""
    return image_error(path, f"cannot be read as {format_name} ({first_line(error)})")


@contextmanager
def closed_if_unreadable(path: Path, format_name: str, file: Any) -> Iterator[None]:
    """Close an open file if the block fails, and say in one sentence why.

    For a damaged file the libraries of the formats raise errors of many types.
    """
    try:
        yield
    except Exception as error:
        file.close()
        if isinstance(error, ImageError | MemoryError):
            raise
        raise unreadable(path, format_name, error) from error
