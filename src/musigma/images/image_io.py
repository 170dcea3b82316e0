"""Read and write picture files; the one place that clamps and rounds values."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from musigma.functional.finite import is_finite
from musigma.images.decoding import decode
from musigma.images.encoding import Encoder, PillowEncoder, PngEncoder, Shape, TiffEncoder
from musigma.images.listing import SCIENCE_SUFFIXES, atomic_write, format_of, image_error
from musigma.images.metadata import Metadata
from musigma.types import ConfigError, ImageError

MAX_PIXELS = 500_000_000
"""A picture with more pixels is refused before it is decoded, unless the caller raises this."""

BAND = 64
"""Number of rows that are encoded at a time."""

_MAX_SIDE = {"JPEG": 65_500, "WEBP": 16_383}
_MAX_BYTES = 2**32 - 2**24  # TIFF and BMP have 32-bit offsets; the rest is for metadata


@dataclass(frozen=True, eq=False)
class ImageMeta:
    """What a picture file holds besides its colors; `write_image` puts it back.

    Attributes:
        format: ``PNG``, ``JPEG``, ``WEBP``, ``TIFF``, ``BMP``, ``GIF``, ``AVIF`` or ``HEIF``, by
            content.
        channels: 1 for gray, 3 for color; alpha is not counted.
        bits: 8 or 16 per sample; 16 also stands for floating point.
        alpha: Opacity, ``(1, 1, H, W)`` in ``[0, 1]``. Whoever enlarges the picture enlarges it
            too, and hands it over with `dataclasses.replace`.
        icc_profile: Color profile of the values.
        exif: EXIF block without the orientation, which is applied to the pixels.
        lossy: Whether the file that was read stores its pixels with loss (JPEG, lossy WebP).
        num_frames: Pages or frames of the file that was read.
        metadata: XMP, IPTC, DPI, comment, text entries, compression of a TIFF.
    """

    format: str = "PNG"
    channels: int = 3
    bits: Literal[8, 16] = 8
    alpha: Tensor | None = None
    icc_profile: bytes | None = None
    exif: bytes | None = None
    lossy: bool = False
    num_frames: int = 1
    metadata: Metadata = field(default_factory=Metadata)


def read_image(
    path: Path | str, *, max_pixels: int = MAX_PIXELS, frame: int | None = None
) -> tuple[Tensor, ImageMeta]:
    """Read a PNG, JPEG, WebP, TIFF, BMP, GIF or AVIF picture, known by its content, not its name.

    HEIC pictures, as iPhones take them, are read where the package pillow-heif is installed.

    The EXIF orientation is applied. Palettes become RGB, CMYK becomes sRGB (through its profile
    where it has a usable one), single bits become gray, and a floating-point TIFF must lie in
    ``[0, 1]``. All 16 bits of gray and of color are kept.

    Args:
        path: The file.
        max_pixels: A picture with more pixels is refused before it is decoded.
        frame: The page or frame to read, from 0. Without it a file with several is refused, since
            the others would be lost; of a GIF, AVIF or HEIC the first frame is read.

    Returns:
        The colors, ``(1, C, H, W)`` float32 in ``[0, 1]`` with C = 1 for gray and 3 for RGB, and
        what else the file holds.

    Raises:
        ImageError: If there is no readable picture; one line that names the file.
    """
    opened = open_image(path, max_pixels=max_pixels, frame=frame)
    alpha = None if opened.alpha is None else opened.alpha[:]
    return opened.colors[:], replace(opened.meta, alpha=alpha)


class Raster:
    """A decoded picture in host memory; indexing it gives float32 tensors.

    The whole picture is kept as 8-bit or 16-bit samples, which is a quarter or a half of the memory
    of the float32 image.
    """

    def __init__(self, samples: NDArray[Any], full_scale: int) -> None:
        self._planes = samples.transpose(2, 0, 1)[None]
        self._full_scale = full_scale

    @property
    def shape(self) -> tuple[int, ...]:
        """``(1, C, H, W)``."""
        return self._planes.shape

    @property
    def full_scale(self) -> int:
        """The sample that means white."""
        return self._full_scale

    @property
    def highest(self) -> float:
        """The largest sample."""
        return float(self._planes.max())

    @property
    def num_bytes(self) -> int:
        """Memory of the samples."""
        return self._planes.nbytes

    def __getitem__(self, part: Any) -> Tensor:
        """Return a part, which may be the whole, as float32 in ``[0, 1]``."""
        values = np.divide(self._planes[part], self._full_scale, dtype=np.float32, order="C")
        return torch.from_numpy(values)


class OpenedImage(NamedTuple):
    """A decoded picture with the samples of its file; alpha is here and not in `meta`."""

    colors: Raster
    alpha: Raster | None
    meta: ImageMeta


def open_image(
    path: Path | str,
    *,
    max_pixels: int = MAX_PIXELS,
    frame: int | None = None,
    memory: int | None = None,
) -> OpenedImage:
    """Read a picture as `read_image` does, but keep the integer samples of the file.

    The file is decoded completely, and the decoded samples stay in memory. A picture whose decoding
    would need more than `memory` bytes is refused before it is decoded.
    """
    decoded = decode(Path(path), max_pixels=max_pixels, frame=frame, memory=memory)
    samples, full_scale = decoded.samples, decoded.full_scale
    channels = 3 if samples.shape[2] >= 3 else 1
    has_alpha = samples.shape[2] > channels
    meta = ImageMeta(
        format=decoded.format,
        channels=channels,
        bits=8 if full_scale == 255 else 16,
        icc_profile=decoded.icc_profile,
        exif=decoded.exif,
        lossy=decoded.lossy,
        num_frames=decoded.num_frames,
        metadata=decoded.metadata,
    )
    alpha = Raster(samples[..., channels:], full_scale) if has_alpha else None
    return OpenedImage(Raster(samples[..., :channels], full_scale), alpha, meta)


def write_image(
    path: Path | str, image: Tensor, meta: ImageMeta | None = None, *, quality: int = 95
) -> None:
    """Write a picture whole or not at all, in the format that the suffix of its name asks for.

    Values are clamped and rounded, ``floor(255 clamp(x, 0, 1) + 1/2)``, or 65535 where `meta`
    says 16 bits and the format has them (PNG, TIFF). Alpha, color profile, EXIF block and other
    metadata of `meta` go back where the format has room for them; a profile for another number of
    channels does not. Missing folders are made.

    Args:
        path: The file, replaced if it exists.
        image: ``(1, C, H, W)`` with C = 1 for gray or 3 for RGB.
        meta: What `read_image` gave, with `alpha` in the size of `image`.
        quality: Of JPEG and WebP, 1 to 100; 100 makes a WebP lossless.

    Raises:
        ImageError: If the picture has values that are not finite, does not fit the format, or
            cannot be written; whatever was at `path` before is still there.
    """
    meta = meta or ImageMeta()
    if not isinstance(image, Tensor):
        raise ImageError(
            f"write_image takes a tensor, got {type(image).__name__}; give prediction.mean, or "
            "make one by torch.from_numpy"
        )
    shape = tuple(image.shape)
    with image_writer(path, shape, meta, alpha=meta.alpha is not None, quality=quality) as rows:
        rows.write(image, meta.alpha)


@contextmanager
def image_writer(
    path: Path | str,
    shape: tuple[int, ...],
    meta: ImageMeta,
    *,
    alpha: bool = False,
    quality: int = 95,
) -> Iterator["RowWriter"]:
    """Open a picture file as `write_image` does, for rows that come in several parts.

    PNG and TIFF are encoded in bands of `BAND` rows. JPEG, WebP and BMP need the whole picture:
    its 8-bit samples and the encoded file are in memory until the end.

    Args:
        path: The file, which appears when the block ends without an error.
        shape: Of the picture, ``(1, 1 or 3, H, W)``.
        meta: As for `write_image`; its alpha is ignored.
        alpha: Whether alpha will come with the colors.
        quality: Of JPEG and WebP.
    """
    path = Path(path)
    format_name = format_of(path)
    if format_name in SCIENCE_SUFFIXES.values():
        text = f"an ordinary picture cannot be written as {format_name}"
        raise image_error(path, f"{text}; write PNG or TIFF")
    if not 1 <= quality <= 100:
        raise ConfigError(f"quality must be from 1 to 100, got {quality}")
    bits = meta.bits if format_name in ("PNG", "TIFF") else 8
    _check_fits(path, format_name, bits, shape, alpha)
    # WebP has no gray, and Pillow cannot read a 16-bit TIFF of gray and alpha.
    color = format_name == "WEBP" or (format_name, bits, alpha) == ("TIFF", 16, True)
    num_colors = 3 if color else shape[1]
    size = (shape[2], shape[3], num_colors + alpha)
    meta = replace(meta, icc_profile=_fitting_profile(meta.icc_profile, num_colors))
    with atomic_write(path) as file:
        encoder = _encoder(file, format_name, size, bits, meta, quality)
        rows = RowWriter(path, encoder, size, bits=bits)
        yield rows
        rows.finish()


class RowWriter:
    """Rounds the rows of a picture to integers and gives them to an encoder in equal bands.

    So the bytes of a file do not depend on how many rows were written at a time.
    """

    def __init__(self, path: Path, encoder: Encoder, shape: Shape, *, bits: int) -> None:
        self._path, self._encoder = path, encoder
        self._full_scale = 2**bits - 1
        self._num_missing = shape[0]
        self._band = np.empty((BAND, *shape[1:]), np.uint8 if bits == 8 else np.uint16)
        self._filled = 0

    def write(self, image: Tensor, alpha: Tensor | None = None) -> None:
        """Append rows, ``(1, C, rows, W)`` in ``[0, 1]``.

        Raises:
            ImageError: If a value is not finite or the shape is not that of the picture.
        """
        if alpha is not None and alpha.shape != (1, 1, *image.shape[2:]):
            text = f"alpha must have the shape {(1, 1, *image.shape[2:])}, got {tuple(alpha.shape)}"
            raise image_error(self._path, f"{text}; enlarge it with the picture")
        top, height = 0, image.shape[2]
        while top < height:
            rows = slice(top, top + BAND - self._filled)
            self._add(image[0, :, rows], None if alpha is None else alpha[0, :, rows])
            top = rows.stop

    def stored(self, image: Tensor) -> Tensor:
        """Return what the file will hold for a band of at most `BAND` rows, rounded and with loss.

        Args:
            image: The colors of the band, ``(1, C, rows, W)``.
        """
        num_colors = 1 if self._band.shape[2] <= 2 else 3
        rows = np.empty((image.shape[2], image.shape[3], num_colors), self._band.dtype)
        rows[:] = self._integers(image[0])
        stored = self._encoder.stored(rows)[..., : image.shape[1]]
        values = np.divide(stored.transpose(2, 0, 1)[None], self._full_scale, dtype=np.float32)
        return torch.from_numpy(values)

    def finish(self) -> None:
        """Encode the last band and end the file."""
        if self._filled:
            self._encoder.add(self._band[: self._filled])
        assert self._num_missing == 0, f"{self._num_missing} rows of {self._path} are missing"
        self._encoder.finish()

    def _add(self, colors: Tensor, alpha: Tensor | None) -> None:
        num_rows = colors.shape[1]
        rows = self._band[self._filled : self._filled + num_rows]
        num_colors = rows.shape[2] - (alpha is not None)
        rows[..., :num_colors] = self._integers(colors)  # repeats gray in a format without gray
        if alpha is not None:
            rows[..., num_colors:] = self._integers(alpha)
        self._num_missing -= num_rows
        self._filled += num_rows
        if self._filled == BAND:
            self._encoder.add(self._band)
            self._filled = 0

    def _integers(self, values: Tensor) -> NDArray[Any]:
        values = values.detach().float().cpu()
        if not is_finite(values):
            text = "not written, as the picture holds NaN or infinite values"
            hint = "if it was computed in half precision, use float32"
            raise image_error(self._path, f"{text}; {hint}")
        # Turned first, since conversions of turned numbers are far slower. Halves are rounded
        # up, as in MATLAB.
        levels = values.permute(1, 2, 0).contiguous().clamp(0, 1).mul_(self._full_scale).add_(0.5)
        return levels.to(torch.int32).numpy()


def _check_fits(
    path: Path, format_name: str, bits: int, shape: tuple[int, ...], alpha: bool
) -> None:
    if len(shape) != 4 or shape[0] != 1 or shape[1] not in (1, 3) or 0 in shape:
        text = f"a picture must have the shape (1, 1 or 3, H, W), got {shape}"
        if len(shape) == 4 and shape[0] > 1:
            text += "; write the pictures of a batch one by one"
        raise image_error(path, text)
    height, width = shape[2:]
    if alpha and format_name in ("JPEG", "BMP"):
        text = f"{format_name} has no room for alpha"
        raise image_error(path, f"{text}; write PNG, WebP or TIFF, or drop the alpha")
    num_bytes = height * width * (shape[1] + alpha) * bits // 8
    too_long = max(height, width) > _MAX_SIDE.get(format_name, 2**31 - 1)
    if too_long or (format_name in ("TIFF", "BMP") and num_bytes > _MAX_BYTES):
        text = f"{width} x {height} pixels are more than {format_name} can hold"
        raise image_error(path, f"{text}; write PNG")


def _fitting_profile(profile: bytes | None, channels: int) -> bytes | None:
    space = b"GRAY" if channels == 1 else b"RGB "
    return profile if profile is not None and profile[16:20] == space else None


def _encoder(
    file: BinaryIO, format_name: str, shape: Shape, bits: int, meta: ImageMeta, quality: int
) -> Encoder:
    profile, exif = meta.icc_profile, meta.exif
    others = meta.metadata
    if format_name == "PNG":
        return PngEncoder(file, shape, bits=bits, icc_profile=profile, exif=exif, metadata=others)
    if format_name == "TIFF":
        return TiffEncoder(file, shape, bits=bits, icc_profile=profile, exif=exif, metadata=others)
    return PillowEncoder(
        file,
        format_name,
        shape,
        icc_profile=profile,
        exif=exif,
        metadata=others,
        quality=quality,
    )
