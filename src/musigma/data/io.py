"""Pictures in and out: the one place that knows file formats, clamps and rounds."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from musigma.data.decode import decode
from musigma.data.deep import write_png, write_tiff
from musigma.data.files import atomic_write, format_of, image_error
from musigma.types import ConfigError

MAX_PIXELS = 500_000_000
"""A larger picture is refused before it is decoded, unless the caller says otherwise."""

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
    found = decode(Path(path), max_pixels=max_pixels, frame=frame)
    values = to_tensor(found.samples, found.full_scale)
    channels = 3 if values.shape[1] >= 3 else 1
    meta = ImageMeta(
        format=found.format,
        channels=channels,
        bits=8 if found.full_scale == 255 else 16,
        alpha=values[:, channels:] if values.shape[1] > channels else None,
        icc_profile=found.icc_profile,
        exif=found.exif,
    )
    return values[:, :channels], meta


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
    path, meta = Path(path), meta or ImageMeta()
    kind = format_of(path)
    if not 1 <= quality <= 100:
        raise ConfigError(f"quality must be from 1 to 100, got {quality}")
    bits = meta.bits if kind in ("PNG", "TIFF") else 8
    _check_fits(path, kind, bits, image, meta.alpha)
    if kind == "WEBP" or (kind, bits, meta.alpha is None) == ("TIFF", 16, False):
        # WebP has no grey, and Pillow reads no 16-bit TIFF of grey and alpha.
        image = image.expand(-1, 3, -1, -1)
    planes = [image] if meta.alpha is None else [image, meta.alpha]
    height, width = image.shape[2:]
    shape = (height, width, sum(plane.shape[1] for plane in planes))
    bands = row_bands(path, planes, bits)
    profile = _fitting_profile(meta.icc_profile, image.shape[1])
    with atomic_write(path) as file:
        if bits == 8:
            file.write(_encode(kind, shape, bands, profile, meta.exif, quality).getbuffer())
        elif kind == "PNG":
            write_png(file, shape, bands, icc_profile=profile, exif=meta.exif)
        else:
            write_tiff(file, shape, bands, icc_profile=profile)


def to_tensor(samples: NDArray[Any], full_scale: int) -> Tensor:
    """Turn ``(H, W, C)`` samples into a ``(1, C, H, W)`` float32 tensor in ``[0, 1]``."""
    planes = samples.transpose(2, 0, 1)
    return torch.from_numpy(np.divide(planes, full_scale, dtype=np.float32, order="C"))[None]


def row_bands(
    path: Path, planes: Sequence[Tensor], bits: int, *, rows: int = 64
) -> Iterator[NDArray[Any]]:
    """Yield a picture as integers, ``(rows, W, C)`` at a time, clamped and rounded.

    Args:
        path: Only named in the error.
        planes: Tensors ``(1, C, H, W)`` in ``[0, 1]`` whose channels are put together.
        bits: 8 or 16 per sample.
        rows: Height of all bands but the last.

    Raises:
        ImageError: On the first band with a value that is not finite.
    """
    full_scale = 2**bits - 1
    for top in range(0, planes[0].shape[-2], rows):
        band = torch.cat([plane[0, :, top : top + rows].detach().float().cpu() for plane in planes])
        if not bool(torch.isfinite(band).all()):
            text = "not written, as the picture holds NaN or infinite values"
            raise image_error(path, f"{text}; if it was computed in half precision, use float32")
        # Halves go up, as everywhere here and in MATLAB.
        band = (band.clamp(0, 1) * full_scale + 0.5).to(torch.int32)
        yield band.permute(1, 2, 0).numpy().astype(np.uint8 if bits == 8 else np.uint16)


def _check_fits(path: Path, kind: str, bits: int, image: Tensor, alpha: Tensor | None) -> None:
    if image.ndim != 4 or image.shape[0] != 1 or image.shape[1] not in (1, 3) or not image.numel():
        text = f"a picture must have the shape (1, 1 or 3, H, W), got {tuple(image.shape)}"
        raise image_error(path, text)
    height, width = image.shape[2:]
    if alpha is not None and alpha.shape != (1, 1, height, width):
        text = f"alpha must have the shape {(1, 1, height, width)}, got {tuple(alpha.shape)}"
        raise image_error(path, f"{text}; enlarge it with the picture")
    if alpha is not None and kind in ("JPEG", "BMP"):
        text = f"{kind} has no room for alpha"
        raise image_error(path, f"{text}; write PNG, WebP or TIFF, or drop the alpha")
    num_bytes = height * width * (image.shape[1] + (alpha is not None)) * bits // 8
    too_long = max(height, width) > _MAX_SIDE.get(kind, 2**31 - 1)
    if too_long or (kind in ("TIFF", "BMP") and num_bytes > _MAX_BYTES):
        text = f"{width} x {height} pixels are more than {kind} can hold"
        raise image_error(path, f"{text}; write PNG")


def _fitting_profile(profile: bytes | None, channels: int) -> bytes | None:
    space = b"GRAY" if channels == 1 else b"RGB "
    return profile if profile is not None and profile[16:20] == space else None


def _encode(
    kind: str,
    shape: tuple[int, int, int],
    bands: Iterator[NDArray[Any]],
    profile: bytes | None,
    exif: bytes | None,
    quality: int,
) -> io.BytesIO:
    from PIL import Image

    samples = np.empty(shape, np.uint8)
    top = 0
    for band in bands:
        samples[top : top + len(band)] = band
        top += len(band)
    # PNG: on photographs level 3 gives files as small as the usual 6, in 40 % of the time.
    options: dict[str, dict[str, Any]] = {
        "PNG": {"compress_level": 3},
        "JPEG": {"quality": quality, "subsampling": 0},
        "WEBP": {"quality": quality, "lossless": quality == 100, "exact": True},
        "TIFF": {"compression": "tiff_adobe_deflate"},
        "BMP": {},
    }
    extra: dict[str, Any] = {"icc_profile": profile} if profile else {}
    if exif and kind in ("PNG", "JPEG", "WEBP") and len(exif) < 65_000:  # JPEG allows no more
        extra["exif"] = exif
    buffer = io.BytesIO()
    picture = Image.fromarray(samples[..., 0] if shape[2] == 1 else samples)
    picture.save(buffer, kind, **options[kind], **extra)
    return buffer
