"""Checks of an OME-TIFF that tifffile does not make.

The description of such a file may name other files, which tifffile would open, and numbers that it
would make lists of. And compressed parts may become far longer than their picture.
"""

import lzma
import math
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from musigma.images.listing import image_error
from musigma.types import short_repr

_UNPACKERS: dict[int, Callable[[], Any]] = {
    8: zlib.decompressobj,
    32946: zlib.decompressobj,
    34925: lzma.LZMADecompressor,
}
"""For the compressions whose data tifffile unpacks without a limit."""


def check_stack(path: Path, root: ElementTree.Element, *, num_pages: int, num_samples: int) -> None:
    """Refuse a stack whose pictures lie in other files, or that has more pictures than its file.

    Args:
        path: The file.
        root: Its description.
        num_pages: Number of pictures in the file.
        num_samples: Of a pixel.
    """
    own = root.get("UUID")
    for element in root.iter():
        name = element.tag.rpartition("}")[2]
        if name.endswith("UUID") and element.text != own and element.get("FileName") != path.name:
            other = short_repr(element.get("FileName"))
            text = f"pictures of its stack are in another file, {other}, which is not opened"
            raise image_error(path, f"{text}; write the whole stack into one file")
        if _num_pictures(name, element, num_samples) > num_pages:
            text = f"pictures of the stack are missing: there are {num_pages}"
            raise image_error(path, f"{text}; write the whole stack")


def _num_pictures(name: str, element: ElementTree.Element, num_samples: int) -> float:
    """Return how many pictures a part of the description speaks of."""
    if name.endswith("Pixels"):
        sizes = [int(element.get(f"Size{axis}", 1)) for axis in "CZT"]
        if min(sizes) < 1:
            raise ValueError(f"its stack has the sizes {short_repr(sizes)}")
        return math.prod(sizes) / num_samples
    if name.endswith("TiffData"):
        return max(int(element.get(key, 0)) for key in ("NumPlanes", "PlaneCount"))
    if name[:-1].endswith("Along") and "Start" in element.attrib:
        first, last, step = (float(element.get(key, 1)) for key in ("Start", "End", "Step"))
        return (last - first) / step
    return 0


def check_page(page: Any) -> None:
    """Refuse a picture of which a compressed part becomes longer than it should."""
    unpacker = _UNPACKERS.get(int(page.compression))
    if unpacker is None:
        return
    longest = max(page.nbytes, chunk_bytes(page))
    file = page.parent.filehandle
    for offset, size in zip(page.dataoffsets, page.databytecounts, strict=False):
        file.seek(offset)
        if len(unpacker().decompress(file.read(size), longest + 1)) > longest:
            raise ValueError("its compressed data are longer than its pictures")


def chunk_bytes(page: Any) -> int:
    """Return the size of one strip or tile of a page."""
    return int(math.prod(page.chunks) * page.dtype.itemsize)
