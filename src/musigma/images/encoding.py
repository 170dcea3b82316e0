"""Encode pictures in bands of rows, so that the float image is never in memory as a whole.

PNG and TIFF are written band by band. They are written here and not by Pillow, since Pillow needs
the whole picture and cannot write color with 16 bits per sample.
"""

import io
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from musigma.images.exif import write_exif
from musigma.images.metadata import MAX_JPEG_BLOCK, PHOTOSHOP, Metadata, photoshop_segment

Rows = NDArray[Any]
"""Rows of a picture, ``(rows, W, C)``: 1 gray, 2 gray and alpha, 3 RGB, 4 RGB and alpha."""

Shape = tuple[int, int, int]
"""Height, width and channels, alpha counted."""

# zlib's level. On photographs the files are as small as Pillow's in two thirds of the time. Level 6
# takes five times as long and saves 5 %.
_ZLIB_LEVEL = 2
_PILLOW_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


class Encoder(Protocol):
    """Writes a picture of 8 or 16 bits per sample from top to bottom.

    All bands but the last must have the same number of rows.
    """

    def add(self, rows: Rows) -> None:
        """Add the next band."""
        ...

    def finish(self) -> None:
        """Write what follows the pixels."""
        ...

    def stored(self, rows: Rows) -> Rows:
        """Return what a decoder will find instead of a band, which is the same without loss."""
        ...


class PngEncoder:
    """Encodes PNG; needs the memory of one band.

    Args:
        file: Receives the bytes.
        shape: Shape of the picture.
        bits: 8 or 16 per sample.
        icc_profile: Color profile.
        exif: EXIF block.
        text: Text entries; the keywords are Latin-1.
        metadata: DPI, XMP and further text entries.
    """

    def __init__(
        self,
        file: BinaryIO,
        shape: Shape,
        *,
        bits: int,
        icc_profile: bytes | None = None,
        exif: bytes | None = None,
        text: Mapping[str, str] | None = None,
        metadata: Metadata | None = None,
    ) -> None:
        height, width, channels = shape
        color_type = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
        self.file = file
        self.sample = np.dtype(np.uint8 if bits == 8 else ">u2")
        self.step = channels * self.sample.itemsize
        self.above = np.zeros((1, width * self.step), np.uint8)
        self.packer = zlib.compressobj(_ZLIB_LEVEL)
        file.write(b"\x89PNG\r\n\x1a\n")
        self._chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, color_type, 0, 0, 0))
        if icc_profile:
            self._chunk(b"iCCP", b"ICC profile\0\0" + zlib.compress(icc_profile))
        if exif:
            self._chunk(b"eXIf", exif.removeprefix(b"Exif\0\0"))
        self._metadata(metadata or Metadata(), text or {})

    def add(self, rows: Rows) -> None:
        """Encode the next band."""
        lines = rows.astype(self.sample, order="C").view(np.uint8).reshape(len(rows), -1)
        filtered = _paeth(lines, np.concatenate([self.above, lines[:-1]]), self.step)
        self._chunk(b"IDAT", self.packer.compress(filtered.tobytes()))
        self.above = lines[-1:].copy()

    def finish(self) -> None:
        """Write what follows the pixels."""
        self._chunk(b"IDAT", self.packer.flush())
        self._chunk(b"IEND", b"")

    def stored(self, rows: Rows) -> Rows:
        """Return the rows themselves."""
        return rows

    def _metadata(self, metadata: Metadata, text: Mapping[str, str]) -> None:
        if metadata.dpi is not None:
            per_meter = (round(number / 0.0254) for number in metadata.dpi)
            self._chunk(b"pHYs", struct.pack(">IIB", *per_meter, 1))
        if metadata.xmp is not None:
            self._text("XML:com.adobe.xmp", metadata.xmp)
        if metadata.comment is not None:
            text = {"Comment": metadata.comment.decode("utf-8", "replace"), **text}
        for keyword, value in {**metadata.text, **text}.items():
            self._text(keyword, value.encode("utf-8", "replace"))

    def _text(self, keyword: str, value: bytes) -> None:
        # International text: not compressed, no language, no translated keyword, UTF-8.
        name = keyword.encode("latin-1", "replace")[:79]
        self._chunk(b"iTXt", name + bytes(5) + value)

    def _chunk(self, name: bytes, data: bytes) -> None:
        checksum = zlib.crc32(data, zlib.crc32(name))
        self.file.write(struct.pack(">I", len(data)) + name + data + struct.pack(">I", checksum))


def _paeth(rows: NDArray[np.uint8], above: NDArray[np.uint8], step: int) -> NDArray[np.uint8]:
    """Replace each byte by its difference from the best of three neighbors (PNG filter 4)."""
    up = above.astype(np.int16)
    left, up_left = np.zeros_like(up), np.zeros_like(up)
    left[:, step:], up_left[:, step:] = rows[:, :-step], up[:, :-step]
    from_left, from_up = np.abs(up - up_left), np.abs(left - up_left)
    from_up_left = np.abs(left + up - 2 * up_left)
    best = np.where(from_up <= from_up_left, up, up_left)
    best = np.where((from_left <= from_up) & (from_left <= from_up_left), left, best)
    difference = (rows - best).astype(np.uint8)  # modulo 256, as the format wants it
    return np.insert(difference, 0, 4, axis=1)


class TiffEncoder:
    """Encodes TIFF with one strip per band; needs the memory of one band.

    Args:
        file: Receives the bytes.
        shape: Shape of the picture.
        bits: 8 or 16 per sample.
        icc_profile: Color profile.
        exif: EXIF block.
        metadata: Compression, DPI, XMP and IPTC.
    """

    def __init__(
        self,
        file: BinaryIO,
        shape: Shape,
        *,
        bits: int,
        icc_profile: bytes | None = None,
        exif: bytes | None = None,
        metadata: Metadata | None = None,
    ) -> None:
        self.file, self.shape, self.bits = file, shape, bits
        self.icc_profile, self.exif = icc_profile, exif
        self.metadata = metadata or Metadata()
        self.sample = np.dtype(np.uint8 if bits == 8 else "<u2")
        self.offsets: list[int] = []
        self.sizes: list[int] = []
        self.rows_per_strip = 0
        file.write(b"II*\0\0\0\0\0")

    def add(self, rows: Rows) -> None:
        """Encode the next band."""
        self.rows_per_strip = max(self.rows_per_strip, len(rows))
        strip = self._compressed(rows)
        self.offsets.append(self.file.tell())
        self.sizes.append(len(strip))
        self.file.write(strip)

    def finish(self) -> None:
        """Write what follows the pixels."""
        height, width, channels = self.shape
        tags: dict[int, tuple[str, Sequence[int]]] = {
            256: ("I", [width]),
            257: ("I", [height]),
            258: ("H", [self.bits] * channels),
            259: ("H", [{"none": 1, "lzw": 5, "deflate": 8}[self.metadata.compression]]),
            262: ("H", [2 if channels >= 3 else 1]),  # RGB, or black is zero
            273: ("I", self.offsets),
            277: ("H", [channels]),
            278: ("I", [self.rows_per_strip]),
            279: ("I", self.sizes),
            284: ("H", [1]),  # the samples of a pixel lie together
        }
        if self.metadata.compression != "none":
            tags[317] = ("H", [2])  # each sample less the one to its left
        if channels in (2, 4):
            tags[338] = ("H", [2])  # the last sample is alpha, not multiplied in
        tags |= self._other_tags() | write_exif(self.file, self.exif)
        self._directory(dict(sorted(tags.items())))

    def stored(self, rows: Rows) -> Rows:
        """Return the rows themselves."""
        return rows

    def _compressed(self, rows: Rows) -> bytes:
        if self.metadata.compression == "none":
            return rows.astype(self.sample).tobytes()
        difference = np.diff(rows, axis=1, prepend=rows.dtype.type(0)).astype(self.sample)
        if self.metadata.compression == "deflate":
            return zlib.compress(difference.tobytes(), _ZLIB_LEVEL)
        return _lzw(difference.view(np.uint8).reshape(len(rows), -1))

    def _other_tags(self) -> dict[int, tuple[str, Sequence[int]]]:
        tags: dict[int, tuple[str, Sequence[int]]] = {}
        if self.icc_profile:
            tags[34675] = ("B", self.icc_profile)
        if self.metadata.xmp is not None:
            tags[700] = ("B", self.metadata.xmp)
        if (block := self.metadata.iptc) is not None:
            is_photoshop = block.startswith(PHOTOSHOP)
            tags[34377 if is_photoshop else 33723] = ("B", block.removeprefix(PHOTOSHOP))
        if self.metadata.dpi is not None:
            across, down = (round(number * 1000) for number in self.metadata.dpi)
            tags |= {282: ("R", [across, 1000]), 283: ("R", [down, 1000]), 296: ("H", [2])}
        return tags

    def _directory(self, tags: Mapping[int, tuple[str, Sequence[int]]]) -> None:
        file, entries = self.file, b""
        for tag, (type_code, values) in tags.items():
            plain_code = {"R": "I", "A": "B"}.get(type_code, type_code)
            data = struct.pack(f"<{len(values)}{plain_code}", *values)
            if len(data) > 4:
                file.write(b"\0" * (file.tell() % 2))  # values begin on even offsets
                field = struct.pack("<I", file.tell())
                file.write(data)
            else:
                field = data.ljust(4, b"\0")
            number = {"A": 2, "H": 3, "I": 4, "R": 5, "B": 7}[type_code]
            count = len(values) // 2 if type_code == "R" else len(values)  # of fractions
            entries += struct.pack("<HHI", tag, number, count) + field
        file.write(b"\0" * (file.tell() % 2))
        start = file.tell()
        file.write(struct.pack("<H", len(tags)) + entries + b"\0\0\0\0")
        file.seek(4)
        file.write(struct.pack("<I", start))


def _lzw(lines: NDArray[np.uint8]) -> bytes:
    """Compress bytes as TIFF's LZW does: Pillow writes them as a gray picture of one strip."""
    from PIL import Image

    buffer = io.BytesIO()
    gray = Image.fromarray(np.ascontiguousarray(lines))
    gray.save(buffer, "TIFF", compression="tiff_lzw", strip_size=lines.nbytes)
    with Image.open(buffer) as picture:
        tags: Any = picture.tag_v2  # type: ignore[attr-defined]
        (offset,), (size,) = tags[273], tags[279]
    return buffer.getvalue()[offset : offset + size]


class PillowEncoder:
    """Encodes JPEG, WebP and BMP with Pillow, which needs the whole picture in 8 bits.

    Args:
        file: Receives the bytes.
        format_name: ``JPEG``, ``WEBP`` or ``BMP``.
        shape: Shape of the picture.
        icc_profile: Color profile.
        exif: EXIF block; omitted where the format has no room for it.
        metadata: DPI, XMP, IPTC and comment; likewise.
        quality: Quality of JPEG and WebP, 1 to 100; 100 makes a WebP lossless.
    """

    def __init__(
        self,
        file: BinaryIO,
        format_name: str,
        shape: Shape,
        *,
        icc_profile: bytes | None = None,
        exif: bytes | None = None,
        metadata: Metadata | None = None,
        quality: int = 95,
    ) -> None:
        self.file, self.format_name = file, format_name
        self.samples = np.empty(shape, np.uint8)
        self.filled = 0
        self.is_lossless = format_name == "BMP" or (format_name, quality) == ("WEBP", 100)
        options: dict[str, dict[str, Any]] = {
            "JPEG": {"quality": quality, "subsampling": 0},
            "WEBP": {"quality": quality, "lossless": quality == 100, "exact": True},
            "BMP": {},
        }
        self.options = options[format_name] | ({"icc_profile": icc_profile} if icc_profile else {})
        if exif and format_name != "BMP" and len(exif) < MAX_JPEG_BLOCK:
            self.options["exif"] = exif
        self.extras = _pillow_extras(metadata or Metadata(), format_name)

    def add(self, rows: Rows) -> None:
        """Keep the next band until the end."""
        self.samples[self.filled : self.filled + len(rows)] = rows
        self.filled += len(rows)

    def finish(self) -> None:
        """Write the picture."""
        # Through memory: a plain write reports a full disk more clearly than an encoder does.
        self.file.write(self._encode(self.samples, **self.extras).getbuffer())

    def stored(self, rows: Rows) -> Rows:
        """Return what a decoder will find instead of a band.

        For JPEG this is exact where the band begins at a multiple of 8 rows, since blocks are
        coded one by one. WebP predicts from the rows above, so that it is an estimate.
        """
        from PIL import Image

        if self.is_lossless:
            return rows
        with Image.open(self._encode(rows)) as picture:
            return np.asarray(picture.convert(_PILLOW_MODES[rows.shape[2]])).reshape(rows.shape)

    def _encode(self, samples: Rows, **extras: Any) -> io.BytesIO:
        from PIL import Image

        picture = Image.fromarray(samples[..., 0] if samples.shape[2] == 1 else samples)
        buffer = io.BytesIO()
        picture.save(buffer, self.format_name, **self.options, **extras)
        return buffer


def _pillow_extras(metadata: Metadata, format_name: str) -> dict[str, Any]:
    extras: dict[str, Any] = {}
    if metadata.dpi is not None and format_name in ("JPEG", "BMP"):
        extras["dpi"] = tuple(round(number) for number in metadata.dpi)
    has_room = metadata.xmp is not None and len(metadata.xmp) < MAX_JPEG_BLOCK
    if has_room and format_name in ("JPEG", "WEBP"):
        extras["xmp"] = metadata.xmp
    if format_name == "JPEG":
        if metadata.comment is not None and len(metadata.comment) < MAX_JPEG_BLOCK:
            extras["comment"] = metadata.comment
        extras["extra"] = photoshop_segment(metadata.iptc)
    return extras
