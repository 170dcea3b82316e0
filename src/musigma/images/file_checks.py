"""Checks of picture files that Pillow does not make: data that end early, and too many parts.

Pillow reads a file whose compressed data end early without a word, and what is missing is black or
gray. And files may hold so many small parts that reading them takes minutes.
"""

import io
import math
import mmap
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

MAX_SCANS = 100
"""Scans of a progressive JPEG; usual files have about ten. Each takes the time of a decoding."""

MAX_PARTS = 10_000
"""Chunks or segments of a file besides those with pixels; usual files have less than a hundred."""

MAX_PIXEL_CHUNKS = 500_000
"""Chunks with pixels of a PNG; usual files have one for every 8 KiB."""

_PIECE = 2**20
_ROWS = 256
_ADAM7 = [(8, 8, 0, 0), (8, 8, 0, 4), (8, 4, 4, 0), (4, 4, 0, 2), (4, 2, 2, 0), (2, 2, 0, 1)]
_ADAM7 += [(2, 1, 1, 0)]  # step down, step right, top, left
_PNG_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
# In the compressed data 0xFF is followed by 0, or by the number of a restart marker.
_JPEG_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
_JPEG_SCAN, _JPEG_END = 0xDA, 0xD9
_JPEG_PROGRESSIVE = (0xC2, 0xCA)
_JPEG_FRAMES = (0xC0, 0xC1, 0xC9, *_JPEG_PROGRESSIVE)
_MAX_SEGMENT = 1024  # bytes of a frame or of a scan's header; it has at most 255 colors of 3 bytes
_JPEG_FILL = b"\x5a\xa5\x33\xcc" * 64
_JPEG_MISSING = (127, 128)  # the level of blocks without data


def check_png_parts(file: BinaryIO) -> None:
    """Refuse a PNG of too many chunks."""
    num_pixel_chunks = num_others = 0
    for name, size in _png_chunks(file):
        if name in (b"IDAT", b"fdAT"):
            num_pixel_chunks += 1
        else:
            num_others += 1
        if num_others > MAX_PARTS or num_pixel_chunks > MAX_PIXEL_CHUNKS:
            raise ValueError("it has more chunks than any usual file")
        file.seek(size + 4, 1)


def check_png_data(file: BinaryIO) -> None:
    """Refuse a PNG whose compressed pixels end before the last row."""
    file.seek(16)
    width, height, bits, color_type, _, _, interlaced = struct.unpack(">IIBBBBB", file.read(13))
    bits *= _PNG_CHANNELS.get(color_type, 4)
    passes = _ADAM7 if interlaced else [(1, 1, 0, 0)]
    needed = 0
    for down, right, top, left in passes:
        columns = max(0, math.ceil((width - left) / right))
        rows = max(0, math.ceil((height - top) / down))
        needed += rows * (1 + math.ceil(columns * bits / 8)) if columns else 0
    there = _inflated_length(file, needed)
    if there < needed:
        raise ValueError(f"the pixel data end early: {there:,} bytes of {needed:,} are there")


def check_jpeg_parts(file: BinaryIO) -> int | None:
    """Refuse a JPEG of too many segments or scans, or of too few; return where the picture ends."""
    file.seek(0)
    missing = _MissingScans()
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        num_scans, position = 0, 2
        for _ in range(MAX_PARTS):
            marker = _JPEG_MARKER.search(data, position)
            if marker is None:
                return None
            code, position = data[marker.start() + 1], marker.end()
            if code == _JPEG_END:
                missing.check()
                return marker.start()
            num_scans += code == _JPEG_SCAN
            if num_scans > MAX_SCANS:
                raise ValueError(f"it has more than {MAX_SCANS} scans")
            if code != 0x01:  # the one marker here that has no length
                start = position + 2
                position += int.from_bytes(data[position:start], "big")
                missing.note(code, data[start : min(position, start + _MAX_SEGMENT)])
    raise ValueError(f"it has more than {MAX_PARTS:,} segments")


class _MissingScans:
    """What the scans of a JPEG do not tell: for each color, the numbers of its frequencies.

    A file that was cut and ended properly may lack whole scans. The decoder takes what is missing
    for zero: the picture is blurred, or has no color.
    """

    def __init__(self) -> None:
        self.is_progressive = False
        self.missing: dict[int, set[int]] = {}

    def note(self, code: int, segment: bytes) -> None:
        """Read the segment of a frame, which names the colors, or of a scan."""
        if code in _JPEG_FRAMES and len(segment) > 5:
            self.is_progressive = code in _JPEG_PROGRESSIVE
            self.missing = {color: set(range(64)) for color in segment[6 : 6 + 3 * segment[5] : 3]}
        elif code == _JPEG_SCAN and segment:
            end = 1 + 2 * segment[0]
            first, last, bits = segment[end : end + 3].ljust(3, b"\0")
            if not self.is_progressive:
                first, last, bits = 0, 63, 0  # some programs write other numbers
            for color in segment[1:end:2]:
                if bits & 15 == 0:  # otherwise a further scan tells the lowest bits
                    self.missing.get(color, set()).difference_update(range(first, last + 1))

    def check(self) -> None:
        """Refuse a picture of which something is missing."""
        if any(self.missing.values()):
            raise ValueError("the pixel data end early: scans are missing")


def check_jpeg_data(
    file: BinaryIO, end: int | None, samples: NDArray[Any], opener: "Callable[[Any], ImageFile]"
) -> None:
    """Refuse a JPEG whose compressed data end before the last block.

    The decoder makes such blocks gray. Where a corner of the picture is of that gray, the picture
    is decoded again with further data: these change it only if data were missing.

    Args:
        file: The file.
        end: Where the picture ends, from `check_jpeg_parts`.
        samples: The decoded picture, in any orientation.
        opener: Opens a file as JPEG.
    """
    corners = [samples[rows, columns] for rows in _ENDS for columns in _ENDS]
    if end is None or not any(np.isin(corner, _JPEG_MISSING).all() for corner in corners):
        return
    file.seek(0)
    data = file.read()
    first, second = opener(file), opener(io.BytesIO(data[:end] + _JPEG_FILL + data[end:]))
    if not _are_equal(first, second):
        raise ValueError("the pixel data end early")


_ENDS = (slice(0, 8), slice(-8, None))


def check_tiff_parts(file: BinaryIO) -> None:
    """Refuse a TIFF of too many pages: finding their number takes the square of it."""
    file.seek(0)
    start = file.read(16)
    sign = "<" if start[:2] == b"II" else ">"
    is_big = b"+" in start[2:4]
    count, offset = (struct.Struct(sign + kind) for kind in (("Q", "Q") if is_big else ("H", "I")))
    try:
        (position,) = offset.unpack_from(start, 8 if is_big else 4)
        for _ in range(MAX_PARTS):
            if not position:
                return
            file.seek(position)
            (num_tags,) = count.unpack(file.read(count.size))
            file.seek((20 if is_big else 12) * num_tags, 1)
            (position,) = offset.unpack(file.read(offset.size))
    except (struct.error, OSError, OverflowError):  # the list ends early; the decoder finds out
        return
    raise ValueError(f"it has more than {MAX_PARTS:,} pages")


def check_tiff_data(image: "ImageFile") -> None:
    """Refuse a TIFF with fewer strips or tiles than its size needs."""
    tags: Any = image.tag_v2  # type: ignore[attr-defined]
    # Pillow has turned its own size where the file says so.
    width, height = tags.get(256, image.width), tags.get(257, image.height)
    if 324 in tags:  # tiles
        across, down = tags.get(322, width), tags.get(323, height)
        needed = math.ceil(width / max(1, across)) * math.ceil(height / max(1, down))
        offsets, sizes = tags.get(324), tags.get(325)
    else:
        needed = math.ceil(height / max(1, min(height, tags.get(278, height))))
        offsets, sizes = tags.get(273), tags.get(279)
    if tags.get(284) == 2:  # one plane for each channel
        needed *= tags.get(277, 1)
    there = min(len(list_of(offsets)), sum(size > 0 for size in list_of(sizes, offsets)))
    if there < needed:
        raise ValueError(f"the pixel data end early: {there} strips or tiles of {needed} are there")


def list_of(values: Any, default: Any = None) -> tuple[Any, ...]:
    """Return the values of a TIFF tag, which may be one or many; `default` where it is missing."""
    values = default if values is None else values
    if values is None:
        return ()
    return values if isinstance(values, tuple) else (values,)


def _png_chunks(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Yield name and length of each chunk; the caller moves on to the end of the chunk."""
    file.seek(8)
    while len(header := file.read(8)) == 8:
        yield header[4:], int.from_bytes(header[:4], "big")


def _inflated_length(file: BinaryIO, limit: int) -> int:
    """Return the length of the decompressed pixel data, at most about `limit`."""
    unpacker, length = zlib.decompressobj(), 0
    for name, size in _png_chunks(file):
        if name != b"IDAT":
            file.seek(size + 4, 1)
            continue
        while size and length < limit:
            piece = file.read(min(size, _PIECE))
            if not piece:
                return length
            size -= len(piece)
            while piece and not unpacker.eof and length < limit:
                length += len(unpacker.decompress(piece, _PIECE))
                piece = unpacker.unconsumed_tail
        if length >= limit or unpacker.eof:
            break
        file.seek(4, 1)
    return length + len(unpacker.flush())


def _are_equal(first: "Image", second: "Image") -> bool:
    width, height = first.size
    for top in range(0, height, _ROWS):
        box = (0, top, width, min(top + _ROWS, height))
        if first.crop(box).tobytes() != second.crop(box).tobytes():
            return False
    return True
