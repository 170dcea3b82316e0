"""The scientific formats: which library reads them, and how to open and write a file."""

import math
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any

from musigma.images.decoding import MAX_PIXELS_PER_BYTE, SMALL_PICTURE
from musigma.images.image_io import MAX_PIXELS
from musigma.images.listing import image_error
from musigma.images.science.geotiff import BLOCK
from musigma.images.science.image import FormatName, PlaneWriter, Result, ScienceImage
from musigma.types import ConfigError

_MODULES: dict[FormatName, str] = {
    "GeoTIFF": "geotiff",
    "OME-TIFF": "ome_tiff",
    "FITS": "fits",
    "EXR": "exr",
}
LIBRARIES: dict[FormatName, str] = {
    "GeoTIFF": "rasterio",
    "OME-TIFF": "tifffile",
    "FITS": "astropy",
    "EXR": "OpenEXR",
}
"""The package that reads and writes each format."""

READ_IN_PARTS: tuple[FormatName, ...] = ("GeoTIFF", "FITS")
"""Formats whose planes need not fit into memory."""

COLLECTED_ROWS = 2 * BLOCK
"""Rows of a plane that a writer may hold, while it joins them to blocks."""


def open_science(
    path: Path,
    format_name: FormatName,
    *,
    max_pixels: int | None = None,
    memory: int | None = None,
) -> ScienceImage:
    """Open a scientific file.

    Args:
        path: The file.
        format_name: Its format, from `musigma.images.science.recognise.science_format`.
        max_pixels: A file whose planes have more pixels is refused before they are read. By default
            there is no limit for formats that are read in parts, and `MAX_PIXELS` for the others.
        memory: Bytes that reading may need. A file that needs more is refused before it is read.

    Raises:
        ImageError: If the file cannot be read or is too large, or the package for it is not
            installed.
    """
    limit = max_pixels or (math.inf if format_name in READ_IN_PARTS else MAX_PIXELS)

    def check(num_pixels: int, num_bytes: int) -> None:
        _check_size(path, num_pixels, limit)
        _check_memory(path, num_bytes, memory)

    try:
        image: ScienceImage = _module(format_name).read(path, check)
    except ImportError as error:
        raise _not_installed(path, format_name) from error
    return image


def _check_size(path: Path, num_pixels: int, max_pixels: float) -> None:
    """Refuse planes that are too large; a file may leave parts out and declare any size."""
    if num_pixels > max_pixels:
        text = f"its planes of {num_pixels:,} pixels are more than the limit of {max_pixels:,}"
        raise image_error(path, f"{text}; if you trust the file, raise `max_pixels`")
    num_bytes = path.stat().st_size
    if num_pixels > max(SMALL_PICTURE, MAX_PIXELS_PER_BYTE * num_bytes):
        text = f"declares planes of {num_pixels:,} pixels, and has {num_bytes:,} bytes"
        raise image_error(path, f"{text}; it holds next to nothing, cut out the part with data")


def _check_memory(path: Path, num_bytes: int, memory: int | None) -> None:
    """Refuse what cannot be read in parts that are small enough."""
    if memory is not None and num_bytes > memory:
        needed, allowed = (math.ceil(size / 2**20) for size in (num_bytes, memory))
        text = f"reading it needs {needed} MiB at once, and {allowed} are allowed"
        raise image_error(path, f"{text}; set `memory` to more, or store it in smaller parts")


def science_writer(
    path: Path, image: ScienceImage, result: Result
) -> AbstractContextManager[PlaneWriter]:
    """Open a file for the result in the format of its source.

    It appears when the block ends without an error.
    """
    if result.scale < 1:
        raise ConfigError(f"the zoom factor must be 1 or more, got {result.scale}")
    writer: AbstractContextManager[PlaneWriter] = _module(image.format).writer(path, image, result)
    return writer


def _module(format_name: FormatName) -> Any:
    return import_module(f"musigma.images.science.{_MODULES[format_name]}")


def _not_installed(path: Path, format_name: FormatName) -> Exception:
    library = LIBRARIES[format_name]
    text = f"is a {format_name} file, and {library} is not installed to read it"
    return image_error(path, f"{text}; pip install 'musigma[science]'")
