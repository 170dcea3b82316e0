"""Pictures in and out: the one place that knows file formats, clamps and rounds."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from musigma.images.decoding import decode
from musigma.images.encoding import Encoder, PillowEncoder, PngEncoder, Shape, TiffEncoder
from musigma.images.listing import atomic_write, format_of, image_error
from musigma.types import ConfigError

MAX_PIXELS = 500_000_000
"""A larger picture is refused before it is decoded, unless the caller says otherwise."""

BAND = 64
"""Rows of a picture that are written at a time."""

_MAX_SIDE = {"JPEG": 65_500, "WEBP": 16_383}
_MAX_BYTES = 2**32 - 2**24  # of TIFF and BMP, whose offsets have 32 bits; some room for the rest


@dataclass(frozen=True, eq=False)
class ImageMeta:
    """What a picture file holds besides its colours; `write_image` puts it back.

    Attributes:
        format: ``PNG``, ``JPEG``, ``WEBP``, ``TIFF`` or ``BMP``, by content.
        channels: 1 for grey, 3 for colour; alpha is not counted.
        bits: 8 or 16 per sample; 16 also stands for floating point.
        alpha: Opacity, ``(1, 1, H, W)`` in ``[0, 1]``. Whoever enlarges the picture enlarges it
            too, and hands it over with `dataclasses.replace`.
        icc_profile: Colour profile of the values.
        exif: EXIF block without the orientation, which is applied to the pixels.
    """

    format: str = "PNG"
    channels: int = 3
    bits: Literal[8, 16] = 8
    alpha: Tensor | None = None
    icc_profile: bytes | None = None
    exif: bytes | None = None


def read_image(
    path: Path | str, *, max_pixels: int = MAX_PIXELS, frame: int | None = None
) -> tuple[Tensor, ImageMeta]:
    """Read a PNG, JPEG, WebP, TIFF or BMP picture, known by its content and not by its name.

    The EXIF orientation is applied. Palettes become RGB, CMYK becomes sRGB (through its profile
    where it has a usable one), single bits become grey, and a floating-point TIFF must lie in
    ``[0, 1]``. All 16 bits of grey and of colour are kept.

    Args:
        path: The file.
        max_pixels: A larger picture is refused before its pixels are decoded.
        frame: Which page or frame of a file with several. Without it such a file is refused, since
            all but one would be lost.

    Returns:
        The colours, ``(1, C, H, W)`` float32 in ``[0, 1]`` with C = 1 for grey and 3 for RGB, and
        what else the file holds.

    Raises:
        ImageError: If there is no readable picture; one line that names the file.
    """
    opened = open_image(path, max_pixels=max_pixels, frame=frame)
    alpha = None if opened.alpha is None else opened.alpha[:]
    return opened.colours[:], replace(opened.meta, alpha=alpha)


class Raster:
    """A decoded picture in host memory, of which parts become tensors when they are looked at.

    As 8-bit or 16-bit samples it takes a quarter or half of the memory of the float32 image whose
    shape it has and whose parts its parts are.
    """

    def __init__(self, samples: NDArray[Any], full_scale: int) -> None:
        self._planes = samples.transpose(2, 0, 1)[None]
        self._full_scale = full_scale

    @property
    def shape(self) -> tuple[int, ...]:
        """``(1, C, H, W)``."""
        return self._planes.shape

    def __getitem__(self, part: Any) -> Tensor:
        """Return a part, which may be the whole, as float32 in ``[0, 1]``."""
        values = np.divide(self._planes[part], self._full_scale, dtype=np.float32, order="C")
        return torch.from_numpy(values)


class OpenedImage(NamedTuple):
    """A picture whose values are still those of the file; alpha is here and not in `meta`."""

    colours: Raster
    alpha: Raster | None
    meta: ImageMeta


def open_image(
    path: Path | str, *, max_pixels: int = MAX_PIXELS, frame: int | None = None
) -> OpenedImage:
    """Read a picture as `read_image` does, but for the conversion to float32."""
    found = decode(Path(path), max_pixels=max_pixels, frame=frame)
    channels = 3 if found.samples.shape[2] >= 3 else 1
    has_alpha = found.samples.shape[2] > channels
    meta = ImageMeta(
        format=found.format,
        channels=channels,
        bits=8 if found.full_scale == 255 else 16,
        icc_profile=found.icc_profile,
        exif=found.exif,
    )
    alpha = Raster(found.samples[..., channels:], found.full_scale) if has_alpha else None
    return OpenedImage(Raster(found.samples[..., :channels], found.full_scale), alpha, meta)


def write_image(
    path: Path | str, image: Tensor, meta: ImageMeta | None = None, *, quality: int = 95
) -> None:
    """Write a picture whole or not at all, in the format that the suffix of its name asks for.

    Values are clamped and rounded, ``floor(255 clamp(x, 0, 1) + 1/2)``, or 65535 where `meta`
    says 16 bits and the format has them (PNG, TIFF). Alpha, colour profile and EXIF block of
    `meta` go back where the format has room for them; a profile for another number of channels
    does not. Missing folders are made.

    Args:
        path: The file, replaced if it exists.
        image: ``(1, C, H, W)`` with C = 1 for grey or 3 for RGB.
        meta: What `read_image` gave, with `alpha` in the size of `image`.
        quality: Of JPEG and WebP, 1 to 100; 100 makes a WebP lossless.

    Raises:
        ImageError: If the picture has values that are not finite, does not fit the format, or
            cannot be written; whatever was at `path` before is still there.
    """
    meta = meta or ImageMeta()
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
    """Open a picture file for what `write_image` does, of which the rows come little by little.

    Args:
        path: The file, which appears when the block ends without an error.
        shape: Of the picture, ``(1, 1 or 3, H, W)``.
        meta: As for `write_image`; its alpha is not looked at.
        alpha: Whether alpha will come with the colours.
        quality: Of JPEG and WebP.
    """
    path = Path(path)
    kind = format_of(path)
    if not 1 <= quality <= 100:
        raise ConfigError(f"quality must be from 1 to 100, got {quality}")
    bits = meta.bits if kind in ("PNG", "TIFF") else 8
    _check_fits(path, kind, bits, shape, alpha)
    # WebP has no grey, and Pillow reads no 16-bit TIFF of grey and alpha.
    colour = kind == "WEBP" or (kind, bits, alpha) == ("TIFF", 16, True)
    num_colours = 3 if colour else shape[1]
    size = (shape[2], shape[3], num_colours + alpha)
    meta = replace(meta, icc_profile=_fitting_profile(meta.icc_profile, num_colours))
    with atomic_write(path) as file:
        rows = RowWriter(path, _encoder(file, kind, size, bits, meta, quality), size, bits=bits)
        yield rows
        rows.finish()


class RowWriter:
    """Rounds the rows of a picture to integers and hands them to an encoder in bands of one height.

    So the bytes of a file do not depend on how many rows came at a time.
    """

    def __init__(self, path: Path, encoder: Encoder, shape: Shape, *, bits: int) -> None:
        self._path, self._encoder = path, encoder
        self._full_scale = 2**bits - 1
        self._left = shape[0]
        self._band = np.empty((BAND, *shape[1:]), np.uint8 if bits == 8 else np.uint16)
        self._filled = 0

    def write(self, image: Tensor, alpha: Tensor | None = None) -> None:
        """Add rows below those that are there, ``(1, C, rows, W)`` in ``[0, 1]``.

        Raises:
            ImageError: If a value is not finite or the shape is not that of the picture.
        """
        if alpha is not None and alpha.shape != (1, 1, *image.shape[2:]):
            text = f"alpha must have the shape {(1, 1, *image.shape[2:])}, got {tuple(alpha.shape)}"
            raise image_error(self._path, f"{text}; enlarge it with the picture")
        top, height = 0, image.shape[2]
        while top < height:
            some = slice(top, top + BAND - self._filled)
            self._add(image[0, :, some], None if alpha is None else alpha[0, :, some])
            top = some.stop

    def finish(self) -> None:
        """Write what is left."""
        if self._filled:
            self._encoder.add(self._band[: self._filled])
        assert self._left == 0, f"{self._left} rows of {self._path} are missing"
        self._encoder.finish()

    def _add(self, colours: Tensor, alpha: Tensor | None) -> None:
        num_rows = colours.shape[1]
        here = self._band[self._filled : self._filled + num_rows]
        num_colours = here.shape[2] - (alpha is not None)
        here[..., :num_colours] = self._integers(colours)  # repeats grey where colour is written
        if alpha is not None:
            here[..., num_colours:] = self._integers(alpha)
        self._left -= num_rows
        self._filled += num_rows
        if self._filled == BAND:
            self._encoder.add(self._band)
            self._filled = 0

    def _integers(self, values: Tensor) -> NDArray[Any]:
        values = values.detach().float().cpu()
        if not bool(values.isfinite().all()):
            text = "not written, as the picture holds NaN or infinite values"
            hint = "if it was computed in half precision, use float32"
            raise image_error(self._path, f"{text}; {hint}")
        # Halves go up, as everywhere here and in MATLAB.
        levels = (values.clamp(0, 1) * self._full_scale + 0.5).to(torch.int32)
        return levels.permute(1, 2, 0).numpy()


def _check_fits(path: Path, kind: str, bits: int, shape: tuple[int, ...], alpha: bool) -> None:
    if len(shape) != 4 or shape[0] != 1 or shape[1] not in (1, 3) or 0 in shape:
        text = f"a picture must have the shape (1, 1 or 3, H, W), got {shape}"
        raise image_error(path, text)
    height, width = shape[2:]
    if alpha and kind in ("JPEG", "BMP"):
        text = f"{kind} has no room for alpha"
        raise image_error(path, f"{text}; write PNG, WebP or TIFF, or drop the alpha")
    num_bytes = height * width * (shape[1] + alpha) * bits // 8
    too_long = max(height, width) > _MAX_SIDE.get(kind, 2**31 - 1)
    if too_long or (kind in ("TIFF", "BMP") and num_bytes > _MAX_BYTES):
        text = f"{width} x {height} pixels are more than {kind} can hold"
        raise image_error(path, f"{text}; write PNG")


def _fitting_profile(profile: bytes | None, channels: int) -> bytes | None:
    space = b"GRAY" if channels == 1 else b"RGB "
    return profile if profile is not None and profile[16:20] == space else None


def _encoder(
    file: BinaryIO, kind: str, shape: Shape, bits: int, meta: ImageMeta, quality: int
) -> Encoder:
    profile, exif = meta.icc_profile, meta.exif
    if kind == "PNG":
        return PngEncoder(file, shape, bits=bits, icc_profile=profile, exif=exif)
    if kind == "TIFF":
        return TiffEncoder(file, shape, bits=bits, icc_profile=profile)
    return PillowEncoder(file, kind, shape, icc_profile=profile, exif=exif, quality=quality)
