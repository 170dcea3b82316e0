"""What a picture file says besides pixels, EXIF and profile: XMP, IPTC, DPI, comments, text."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

TiffCompression = Literal["none", "lzw", "deflate"]

MAX_JPEG_BLOCK = 65_000
"""Bytes that fit one segment of a JPEG; longer blocks are left out."""

_MAX_TEXT = 2**20
_XMP_KEYWORD = "XML:com.adobe.xmp"
# Entries that describe the old pixels, or repeat other metadata in a form that few programs read.
_LEFT_OUT = ("musigma:", "Raw profile type", _XMP_KEYWORD)
PHOTOSHOP = b"Photoshop 3.0\0"
_TIFF_IPTC, _TIFF_PHOTOSHOP, _TIFF_XMP = 33723, 34377, 700
_TIFF_COMPRESSIONS: dict[str, TiffCompression] = {"raw": "none", "tiff_lzw": "lzw"}


@dataclass(frozen=True, eq=False)
class Metadata:
    """Descriptions of a picture; each format keeps those that it has room for.

    Attributes:
        xmp: XMP packet, such as ratings and captions.
        iptc: IPTC block of a TIFF, or Photoshop block of a JPEG, which holds one.
        dpi: Pixels per inch, across and down.
        comment: Comment of a JPEG or GIF.
        text: Text entries of a PNG, by keyword.
        compression: How a TIFF is compressed without loss.
    """

    xmp: bytes | None = None
    iptc: bytes | None = None
    dpi: tuple[float, float] | None = None
    comment: bytes | None = None
    text: Mapping[str, str] = field(default_factory=dict)
    compression: TiffCompression = "deflate"


def read_metadata(image: "ImageFile", format_name: str) -> Metadata:
    """Return what an opened picture says; what cannot be understood is left out."""
    info = image.info
    compression = _TIFF_COMPRESSIONS.get(str(info.get("compression")), "deflate")
    return Metadata(
        xmp=_xmp(image),
        iptc=_iptc(image, format_name),
        dpi=_dpi(info.get("dpi")),
        comment=_bytes(info.get("comment")),
        text=_text(info) if format_name == "PNG" else {},
        compression=compression if format_name == "TIFF" else "deflate",
    )


def photoshop_segment(block: bytes | None) -> bytes:
    """Return the segment of a JPEG that holds a Photoshop block; nothing where there is none."""
    if block is None or not block.startswith(PHOTOSHOP) or len(block) > MAX_JPEG_BLOCK:
        return b""
    return b"\xff\xed" + (len(block) + 2).to_bytes(2, "big") + block


def _xmp(image: "ImageFile") -> bytes | None:
    tags: Any = getattr(image, "tag_v2", {})
    value = image.info.get("xmp", image.info.get(_XMP_KEYWORD, tags.get(_TIFF_XMP)))
    return value.encode() if isinstance(value, str) else _bytes(value)


def _iptc(image: "ImageFile", format_name: str) -> bytes | None:
    if format_name == "TIFF":
        tags: Any = getattr(image, "tag_v2", {})
        resources = _bytes(tags.get(_TIFF_PHOTOSHOP))
        return _bytes(tags.get(_TIFF_IPTC)) or (resources and PHOTOSHOP + resources)
    segments = getattr(image, "applist", ())
    blocks = (data for name, data in segments if name == "APP13" and data.startswith(PHOTOSHOP))
    return next(blocks, None)


def _dpi(value: Any) -> tuple[float, float] | None:
    try:
        across, down = (float(number) for number in value)
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    # Programs write 1 x 1 or 0 x 0 where they know nothing.
    return (across, down) if 1 < across < 1e6 and 1 < down < 1e6 else None


def _bytes(value: Any) -> bytes | None:
    if isinstance(value, tuple) and len(value) == 1:  # some tags of TIFF
        value = value[0]
    return value if isinstance(value, bytes) and value else None


def _text(info: Mapping[Any, Any]) -> dict[str, str]:
    entries = {
        str(key): str(value)
        for key, value in info.items()
        if isinstance(value, str) and not str(key).startswith(_LEFT_OUT)
    }
    return entries if sum(map(len, entries.values())) <= _MAX_TEXT else {}
