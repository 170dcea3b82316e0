"""Which files are scientific ones: told by their first bytes and their TIFF tags."""

import struct
from pathlib import Path
from typing import BinaryIO, Literal

from musigma.images.science.image import FormatName

GEO_TAGS = frozenset({33550, 33922, 34264, 34735, 42112, 42113, 50844})
"""Pixel scale, tie points, transformation and keys of GeoTIFF; metadata and nodata of GDAL; RPC."""

WORLD_FILES = (".tfw", ".tifw", ".tiffw", ".wld")
"""Suffixes of the small text files that say where a TIFF beside them lies on the ground."""

PICTURE_SAMPLES = 4
"""A TIFF with more samples for each pixel is no photograph."""

_DESCRIPTION, _SAMPLES_PER_PIXEL = 270, 277
_MAX_TAGS = 4096
_Order = Literal["little", "big"]
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 16: 8}


def science_format(path: Path) -> FormatName | None:
    """Return the format of a scientific file, or `None` for an ordinary picture.

    A TIFF is scientific if it has tags of GeoTIFF or GDAL, a world file beside it, a description in
    OME-XML, or more than four samples for each pixel. A file that cannot be read is taken for an
    ordinary one; reading it will say what is wrong. So is what is no regular file: to open a pipe
    would wait for a writer.
    """
    if not path.is_file():
        return None
    try:
        with path.open("rb") as file:
            start = file.read(16)
            if start.startswith(b"SIMPLE  ="):
                return "FITS"
            if start.startswith(b"\x76\x2f\x31\x01"):
                return "EXR"
            return (_tiff_format(file, start) or _placed(path)) if is_tiff(start) else None
    except (OSError, ValueError, struct.error):
        return None


def is_tiff(start: bytes) -> bool:
    r"""Return whether a file that starts with these bytes is a TIFF.

    Example:
        >>> is_tiff(b"II*\0"), is_tiff(b"\x89PNG")
        (True, False)
    """
    return start[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def _tiff_format(file: BinaryIO, start: bytes) -> FormatName | None:
    tags = _first_tags(file, start)
    description = tags.get(_DESCRIPTION, b"")
    if b"<OME" in description or b":OME" in description:
        return "OME-TIFF"
    samples = int.from_bytes(tags.get(_SAMPLES_PER_PIXEL, b"\1"), _order(start))
    if GEO_TAGS & tags.keys() or samples > PICTURE_SAMPLES:
        return "GeoTIFF"
    return None


def _placed(path: Path) -> FormatName | None:
    """Return the format of a TIFF that has a world file beside it."""
    is_placed = any(path.with_suffix(suffix).is_file() for suffix in WORLD_FILES)
    return "GeoTIFF" if is_placed else None


def _first_tags(file: BinaryIO, start: bytes) -> dict[int, bytes]:
    """Return the tags of the first picture; of a long value only its first bytes."""
    sign = "<" if start[:2] == b"II" else ">"
    is_big = start[2:4] in (b"+\0", b"\0+")
    (directory,) = struct.unpack_from(f"{sign}{'Q' if is_big else 'I'}", start, 8 if is_big else 4)
    file.seek(directory)
    size, entry = (
        (8, struct.Struct(f"{sign}HHQ8s")) if is_big else (2, struct.Struct(f"{sign}HHI4s"))
    )
    count = min(int.from_bytes(file.read(size), _order(start)), _MAX_TAGS)
    entries = list(entry.iter_unpack(file.read(count * entry.size)))
    return {tag: _value(file, entry, _order(start)) for tag, *entry in entries}


def _value(file: BinaryIO, entry: list[int | bytes], order: _Order) -> bytes:
    field_type, count, inline = entry
    assert isinstance(field_type, int)
    assert isinstance(count, int)
    assert isinstance(inline, bytes)
    num_bytes = _SIZES.get(field_type, 8) * count
    if num_bytes <= len(inline):
        return inline[:num_bytes]
    file.seek(int.from_bytes(inline, order))
    return file.read(min(num_bytes, 4096))


def _order(start: bytes) -> _Order:
    return "little" if start[:2] == b"II" else "big"
