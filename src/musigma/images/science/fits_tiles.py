"""Checks of the tiles of a compressed FITS picture that astropy does not make.

A tile tells again how large it is, and the decoders believe it: one that unpacks to more than its
place fills the memory, or is written behind the end of it.
"""

import math
import re
import struct
import zlib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ITEM_BYTES = {"B": 1, "I": 2, "J": 4, "E": 4, "D": 8}
_FORMAT = re.compile(r"1?[PQ]([BIJED])")
_VALUE_BYTES = 8
_HCOMPRESS_START = struct.Struct(">2sii")


def bytes_to_unpack(hdu: Any) -> int:
    """Return what unpacking a picture needs: the picture, and its largest tile in two types."""
    tile = math.prod(min(int(side), length) for side, length in _sides(hdu))
    value_bytes = abs(int(hdu.header["BITPIX"])) // 8
    return math.prod(hdu.shape) * value_bytes + 2 * _VALUE_BYTES * tile


def check_tiles(path: Path, number: int, hdu: Any) -> None:
    """Refuse a picture of which a tile says that it is larger than its place.

    Args:
        path: The file.
        number: Of the part that holds the picture.
        hdu: The part, as a compressed picture.

    Raises:
        ValueError: If a tile is larger than its place, or lies outside of the part.
    """
    from astropy.io import fits

    with fits.open(path.absolute(), disable_image_compression=True, memmap=True) as file:
        table = file[number]
        start = table.fileinfo()["datLoc"] + table.header.get("THEAP", table.size - _heap(table))
        heap = np.memmap(path, np.uint8, "r", start)[: _heap(table)]
        for row, shape in enumerate(_shapes(hdu)):
            tile = _tile(table, heap, "COMPRESSED_DATA", row)
            if not len(tile) and "GZIP_COMPRESSED_DATA" in table.columns.names:
                _check_gzip(_tile(table, heap, "GZIP_COMPRESSED_DATA", row), shape)
            elif hdu.compression_type.startswith("GZIP"):
                _check_gzip(tile, shape)
            elif hdu.compression_type == "HCOMPRESS_1":
                _check_hcompress(tile, shape)


def _sides(hdu: Any) -> Iterator[tuple[Any, int]]:
    """Return the length of a tile and that of the picture, for each axis."""
    return zip(hdu.tile_shape, hdu.shape, strict=True)


def _shapes(hdu: Any) -> Iterator[tuple[int, ...]]:
    """Yield the shapes of all tiles in their order; those at the end of an axis may be shorter."""
    axes = [
        [min(int(side), length - start) for start in range(0, length, int(side))]
        for side, length in _sides(hdu)
    ]
    return product(*axes)


def _heap(table: Any) -> int:
    return int(table.header["PCOUNT"])


def _tile(table: Any, heap: NDArray[np.uint8], column: str, row: int) -> bytes:
    """Return the bytes of a tile."""
    letter = _FORMAT.match(table.columns[column].format)
    if letter is None:
        raise ValueError(f"its tiles have the format {table.columns[column].format}")
    num_items, start = map(int, table.data.view(np.ndarray)[column][row])
    end = start + num_items * _ITEM_BYTES[letter[1]]
    if num_items and not 0 <= start <= end <= len(heap):
        raise ValueError("a tile lies outside of its part of the file")
    return heap[start:end].tobytes()


def _check_gzip(data: bytes, shape: tuple[int, ...]) -> None:
    longest = math.prod(shape) * _VALUE_BYTES
    unpacker = zlib.decompressobj(wbits=31)  # with the header of a file of gzip
    num_bytes = len(unpacker.decompress(data, longest + 1))
    if num_bytes > longest or unpacker.unused_data.strip(b"\0"):
        raise ValueError("its compressed data are longer than its picture")


def _check_hcompress(data: bytes, shape: tuple[int, ...]) -> None:
    _, *sides = _HCOMPRESS_START.unpack_from(data.ljust(_HCOMPRESS_START.size, b"\0"))
    expected = [length for length in shape if length != 1]
    if sides != expected:
        raise ValueError(f"a tile of {expected} declares the sizes {sides}")
