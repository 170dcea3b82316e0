"""Decode picture files into integer samples with Pillow, without losing bits."""

import ctypes
import io
import math
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from musigma.images.exif import read_exif
from musigma.images.file_checks import (
    check_jpeg_data,
    check_jpeg_parts,
    check_png_data,
    check_png_parts,
    check_tiff_data,
    check_tiff_parts,
    list_of,
)
from musigma.images.listing import image_error, missing_reason
from musigma.images.metadata import Metadata, read_metadata
from musigma.images.pillow_array import to_array
from musigma.images.sixteen_bit import FULL_SCALE, raw_mode, read_sixteen_bit
from musigma.types import ImageError

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"\xff\xd8\xff": "JPEG",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
    b"II+\0": "TIFF",
    b"MM\0+": "TIFF",
    b"BM": "BMP",
    b"GIF8": "GIF",
}
# Pillow stretches gray of 1, 2 or 4 bits to 8 bits, but not the one gray that a PNG declares
# transparent.
_TRANSPARENT_GRAY_FACTOR = {"1": 255, "L;2": 85, "L;4": 17}
# Bytes for each pixel that decoding takes for a while, measured as the growth of the process and
# rounded up. Formats whose decoder keeps the picture several times come first.
_DECODING_BYTES = {"WEBP": 18, "AVIF": 18, "HEIF": 18}
_DECODING_BYTES |= {"1": 4, "L": 4, "I;16": 6, "I;16B": 6, "F": 11}
_DECODING_BYTES |= {"RGB": 12, "RGBA": 12, "LA": 12, "P": 12}
_SAMPLE_BYTES = {"1": 1, "L": 1, "LA": 2, "I;16": 2, "I;16B": 2, "RGB": 3}
MAX_PIXELS_PER_BYTE = 20_000
"""A file of more than `SMALL_PICTURE` pixels that has more of them per byte is refused.

No photograph comes near: the blank page of a fax has 12,000 pixels per byte, and a single color as
PNG 8,000.
"""
SMALL_PICTURE = 16_000_000
_BMP_RUNS = (1, 2)  # the compressions of a BMP by runs
_TIFF_BITS = 258
_TIFF_PHOTOMETRIC = 262
_TIFF_PLANES = 284
_TIFF_COMPRESSION = 259
_TIFF_JPEG = (6, 7, 34892)  # the compressions that lose information
_PLUGINS = {
    "PNG": ("PIL.PngImagePlugin", "PngImageFile"),
    "JPEG": ("PIL.JpegImagePlugin", "JpegImageFile"),
    "WEBP": ("PIL.WebPImagePlugin", "WebPImageFile"),
    "TIFF": ("PIL.TiffImagePlugin", "TiffImageFile"),
    "BMP": ("PIL.BmpImagePlugin", "BmpImageFile"),
    "GIF": ("PIL.GifImagePlugin", "GifImageFile"),
    "AVIF": ("PIL.AvifImagePlugin", "AvifImageFile"),
    "HEIF": ("pillow_heif", "HeifImageFile"),
}
_HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
# Of these the first frame, or the main one, is read where no other is asked for.
_FIRST_FRAME = ("GIF", "AVIF", "HEIF")
_WEBP_LOSSY = b"VP8 "


class Decoded(NamedTuple):
    """The contents of a picture file.

    Attributes:
        format: ``PNG``, ``JPEG``, ``WEBP``, ``TIFF``, ``BMP``, ``GIF``, ``AVIF`` or ``HEIF``.
        samples: ``(H, W, C)``, upright: 1 gray, 2 gray and alpha, 3 RGB, 4 RGB and alpha.
        full_scale: The sample that means white, or opaque.
        icc_profile: Color profile of the samples.
        exif: EXIF block without the orientation.
        text: The text entries of a PNG, by keyword.
        lossy: Whether the file stores the picture with loss: JPEG, lossy WebP, AVIF, HEIF, JPEG
            inside TIFF.
        num_frames: Pages or frames of the file.
        metadata: What else the file says.
    """

    format: str
    samples: NDArray[Any]
    full_scale: int
    icc_profile: bytes | None
    exif: bytes | None
    text: dict[str, str]
    lossy: bool
    num_frames: int
    metadata: Metadata


class Limits(NamedTuple):
    """What a picture may take; more is refused before it is decoded.

    Attributes:
        max_pixels: Number of pixels.
        memory: Bytes that decoding may need.
    """

    max_pixels: int
    memory: int | None = None


class Declared(NamedTuple):
    """What the header of a file says, before any rotation.

    Attributes:
        height, width: Size of the picture.
        decoding_bytes: Estimate of the memory that decoding needs for a while.
        sample_bytes: Estimate of the memory of the decoded samples.
    """

    height: int
    width: int
    decoding_bytes: int
    sample_bytes: int


def decode(path: Path, *, max_pixels: int, frame: int | None, memory: int | None = None) -> Decoded:
    """Decode a picture file; `musigma.images.image_io.read_image` says what is done to it.

    Raises:
        ImageError: If there is no readable picture; one line that names the file.
    """
    with _reading(path) as (file, format_name):
        limits = Limits(max_pixels, memory)
        end = _check_parts(file, format_name)
        lossy = _is_lossy(file, format_name)
        reopen = partial(_open_frame, path, file, format_name, limits, frame)
        _check_data(file, format_name, reopen(), frame)
        decoded = _decode(path, format_name, reopen, lossy=lossy)
        if format_name == "JPEG":
            check_jpeg_data(file, end, decoded.samples, partial(_open, format_name=format_name))
        return decoded


def declared_size(path: Path) -> Declared:
    """Return what the header of a file says, without decoding the pixels.

    Raises:
        ImageError: If there is no readable picture; one line that names the file.
    """
    with _reading(path) as (file, format_name):
        return _declared(_open(file, format_name), format_name)


def _check_parts(file: BinaryIO, format_name: str) -> int | None:
    """Refuse a file of too many parts, or with wrong checksums; return where a JPEG ends."""
    if format_name == "JPEG":
        return check_jpeg_parts(file)
    if format_name == "PNG":
        check_png_parts(file)
        _open(file, format_name).verify()  # otherwise Pillow skips the checksums of the pixels
    if format_name == "TIFF":
        check_tiff_parts(file)
    return None


def _check_data(file: BinaryIO, format_name: str, image: "ImageFile", frame: int | None) -> None:
    """Refuse a file whose pixel data end early."""
    if format_name == "PNG" and not frame:  # further frames have chunks of their own
        check_png_data(file)
    if format_name == "TIFF":
        check_tiff_data(image)


def _declared(image: "ImageFile", format_name: str) -> Declared:
    width, height = image.size
    deep = _is_deep_color(image)
    kept = 2 * len(image.getbands()) if deep else _SAMPLE_BYTES.get(image.mode, 4)
    peak = _DECODING_BYTES.get(format_name, 0)
    peak = max(peak, 22 if deep else _DECODING_BYTES.get(image.mode, 13))
    needed = height * width * peak
    if format_name == "BMP" and image.info.get("compression") in _BMP_RUNS:
        needed += 2 * 256 * width  # one code may skip 255 rows, which Pillow fills
    return Declared(height, width, needed, height * width * kept)


def _is_deep_color(image: "ImageFile") -> bool:
    """Return whether a picture has colors of 16 bits."""
    raw = raw_mode(image) if image.tile else image.mode
    tags: Any = getattr(image, "tag_v2", {})
    bits = list_of(tags.get(_TIFF_BITS))
    return image.mode in ("RGB", "RGBA", "CMYK") and (";16" in raw or 16 in bits)


@contextmanager
def _reading(path: Path) -> Iterator[tuple[BinaryIO, str]]:
    with _open_file(path) as file, _PILLOW_WITHOUT_LIMITS:
        format_name = "picture"
        try:
            format_name = _format_by_content(path, file)
            yield file, format_name
        except ImageError:
            raise
        except MemoryError as error:
            text = "there is not enough memory to decode it"
            raise image_error(path, f"{text}; close other programs, or shrink it") from error
        except Exception as error:
            # A decoder may raise any exception on a broken file; the user needs one line about it.
            reason = str(error) or type(error).__name__
            text = f"cannot be decoded as {format_name} ({reason}); it is damaged or of a rare kind"
            raise image_error(path, f"{text}, try to save it again as PNG") from error


def _is_lossy(file: BinaryIO, format_name: str) -> bool:
    if format_name == "WEBP":
        return _WEBP_LOSSY in _webp_chunks(file)
    if format_name == "TIFF":
        tags: Any = _open(file, format_name).tag_v2  # type: ignore[attr-defined]
        return tags.get(_TIFF_COMPRESSION) in _TIFF_JPEG
    return format_name in ("JPEG", "AVIF", "HEIF")


def _webp_chunks(file: BinaryIO) -> set[bytes]:
    """Return the names of the chunks of a WebP file, also of those inside its frames."""
    file.seek(12)
    names: set[bytes] = set()
    while len(header := file.read(8)) == 8:
        name, size = header[:4], int.from_bytes(header[4:], "little")
        names.add(name)
        # A frame (ANMF) has 16 bytes of its own; its chunks follow.
        file.seek(16 if name == b"ANMF" else size + size % 2, 1)
    return names


def _decode(
    path: Path, format_name: str, open_image: "Callable[[], ImageFile]", *, lossy: bool
) -> Decoded:
    image = open_image()
    is_cmyk = image.mode == "CMYK"
    samples, full_scale = _samples(path, image, open_image)
    orientation, exif = read_exif(image, format_name)
    return Decoded(
        format=format_name,
        samples=_upright(samples, orientation),
        full_scale=full_scale,
        icc_profile=None if is_cmyk else image.info.get("icc_profile"),
        exif=exif,
        text={str(key): value for key, value in image.info.items() if isinstance(value, str)},
        lossy=lossy,
        num_frames=getattr(image, "n_frames", 1),
        metadata=read_metadata(image, format_name),
    )


class _PillowWithoutLimits:
    """Switches off Pillow's pixel limit and warnings while any thread decodes a picture.

    Both are settings of the whole process. The first thread that enters changes them, and the last
    one that leaves restores them.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._readers = 0
        self._restore = ExitStack()

    def __enter__(self) -> None:
        from PIL import Image

        with self._lock:
            if self._readers == 0:
                self._restore.enter_context(warnings.catch_warnings())
                warnings.simplefilter("ignore")
                self._restore.callback(setattr, Image, "MAX_IMAGE_PIXELS", Image.MAX_IMAGE_PIXELS)
                Image.MAX_IMAGE_PIXELS = None
            self._readers += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._readers -= 1
            if self._readers == 0:
                self._restore.close()


_PILLOW_WITHOUT_LIMITS = _PillowWithoutLimits()


def _open_file(path: Path) -> BinaryIO:
    try:
        if path.is_dir():
            raise image_error(path, "is a folder, not a picture")
        if path.exists() and not path.is_file():
            raise image_error(path, "is not a regular file")
        return path.open("rb")
    except FileNotFoundError as error:
        raise image_error(path, missing_reason(path)) from error
    except OSError as error:
        raise image_error(path, f"could not be opened ({error.strerror})") from error


def _format_by_content(path: Path, file: BinaryIO) -> str:
    start = file.read(12)
    if not start:
        raise image_error(path, "is empty (0 bytes)")
    if start[:4] == b"RIFF" and start[8:] == b"WEBP":
        return "WEBP"
    if start[4:] in (b"ftypavif", b"ftypavis"):
        return "AVIF"
    if start[4:8] == b"ftyp" and start[8:] in _HEIF_BRANDS:
        _require_heif(path)
        return "HEIF"
    for signature, format_name in _SIGNATURES.items():
        if start.startswith(signature):
            return format_name
    if start.startswith(b"\x1f\x8b"):
        raise image_error(path, "is compressed by gzip; unpack it")
    text = f"is not a PNG, JPEG, WebP, TIFF, BMP, GIF or AVIF picture (it begins with {start!r})"
    raise image_error(path, f"{text}; if it is a picture of another kind, convert it to PNG")


def _require_heif(path: Path) -> None:
    if find_spec("pillow_heif") is None:
        text = "is a HEIC picture, and pillow-heif is not installed to read it"
        raise image_error(path, f"{text}; pip install pillow-heif, or convert it to PNG")


@lru_cache(maxsize=1)
def _silence_libtiff() -> None:
    """Keep libtiff from writing its own lines to stderr; Pillow raises an error anyway."""
    from PIL import Image

    Image.init()
    with suppress(OSError, AttributeError):  # another system than Linux, or a libtiff inside Pillow
        maps = Path("/proc/self/maps").read_text()
        for path in {line.split()[-1] for line in maps.splitlines() if "libtiff" in line}:
            library = ctypes.CDLL(path)
            library.TIFFSetErrorHandler(None)
            library.TIFFSetWarningHandler(None)


def _open(file: BinaryIO, format_name: str) -> "ImageFile":
    if format_name == "TIFF":
        _silence_libtiff()
    file.seek(0)
    module, name = _PLUGINS[format_name]  # not Image.open, which would try other formats, too
    plugin: Any = getattr(import_module(module), name)
    image: ImageFile = plugin(file)
    return image


def _open_frame(
    path: Path, file: BinaryIO, format_name: str, limits: Limits, frame: int | None
) -> "ImageFile":
    image = _open(file, format_name)
    num_frames = getattr(image, "n_frames", 1)
    if frame is None and num_frames > 1 and format_name not in _FIRST_FRAME:
        text = f"holds {num_frames} pages or frames, and one at a time can be read"
        raise image_error(path, f"{text}; choose it with `frame`, 0 to {num_frames - 1}")
    if frame is not None and not 0 <= frame < num_frames:
        raise image_error(path, f"has no frame {frame}; its last one is {num_frames - 1}")
    if frame is not None:
        image.seek(frame)  # to 0, too: a HEIC file opens at the picture that it calls the main one
    _check_size(path, file, _declared(image, format_name), limits)
    return image


def _check_size(path: Path, file: BinaryIO, declared: Declared, limits: Limits) -> None:
    num_pixels = declared.height * declared.width
    text = f"says it is {declared.width} x {declared.height} pixels"
    if num_pixels > limits.max_pixels:
        hint = "if you trust the file, raise `max_pixels`"
        raise image_error(path, f"{text}, more than the limit of {limits.max_pixels:,}; {hint}")
    num_bytes = os.fstat(file.fileno()).st_size
    if num_pixels > max(SMALL_PICTURE, MAX_PIXELS_PER_BYTE * num_bytes):
        hint = "no photograph is that small; if it is a picture, save it again as PNG"
        raise image_error(path, f"{text}, and has {num_bytes:,} bytes; {hint}")
    if limits.memory is not None and declared.decoding_bytes > limits.memory:
        needed, allowed = (
            math.ceil(size / 2**20) for size in (declared.decoding_bytes, limits.memory)
        )
        hint = f"set `memory` to {needed} MiB or more, or cut it into parts"
        raise image_error(
            path, f"{text}; decoding it needs {needed} MiB, and {allowed} are allowed; {hint}"
        )


def _samples(
    path: Path, image: "ImageFile", open_image: "Callable[[], ImageFile]"
) -> tuple[NDArray[Any], int]:
    """Return ``(H, W, C)`` samples, alpha last where C is 2 or 4, and the value of full scale."""
    raw = raw_mode(image) if image.tile else image.mode
    tags: Any = getattr(image, "tag_v2", {})
    if _is_deep_color(image):
        if image.mode == "CMYK" or tags.get(_TIFF_PLANES) == 2:
            text = "holds 16-bit CMYK or 16-bit colors in separate planes, which cannot be read"
            raise image_error(path, f"{text}; save it as interleaved RGB, or as PNG")
        samples = read_sixteen_bit(image, open_image)
        return _with_alpha_of_color(samples, image.info.get("transparency")), FULL_SCALE
    image.load()
    if image.mode == "F":
        return _checked_floats(path, to_array(image)[..., None]), 1
    if image.mode.startswith("I;16"):
        full_scale = 4095 if raw == "I;12" else FULL_SCALE
        gray = to_array(image)[..., None]
        if tags.get(_TIFF_PHOTOMETRIC) == 0:  # white is zero
            gray = full_scale - gray
        return _with_alpha_of_color(gray, image.info.get("transparency")), full_scale
    return np.atleast_3d(to_array(_to_eight_bits(path, image, raw))), 255


def _with_alpha_of_color(samples: NDArray[Any], transparent: Any) -> NDArray[Any]:
    """Add the alpha channel of a PNG that declares one 16-bit color as transparent."""
    if transparent is None:
        return samples
    alpha = np.where((samples == transparent).all(axis=2, keepdims=True), 0, FULL_SCALE)
    return np.concatenate([samples, alpha.astype(samples.dtype)], axis=2)


def _checked_floats(path: Path, values: NDArray[Any]) -> NDArray[Any]:
    low, high = values.min(), values.max()
    if not (low >= 0 and high <= 1):  # also true of NaN
        text = f"holds floating-point values from {low:g} to {high:g}, where 0 to 1 was expected"
        advice = "if they are measured, give their `range`; else divide by the value of white"
        raise image_error(path, f"{text}; {advice}")
    return values


def _to_eight_bits(path: Path, image: "Image", raw: str) -> "Image":
    if image.mode == "CMYK":
        return _cmyk_to_rgb(image)
    if raw in _TRANSPARENT_GRAY_FACTOR and "transparency" in image.info:
        factor = _TRANSPARENT_GRAY_FACTOR[raw]
        image.info["transparency"] = min(255, image.info["transparency"] * factor)
    gray = ("1", "L", "LA")
    if image.mode not in (*gray, "P", "PA", "RGB", "RGBA", "RGBX", "YCbCr"):
        text = f"holds {image.mode} pixels, which cannot be read"
        raise image_error(path, f"{text}; save it as RGB or gray with 8 or 16 bits")
    base = "L" if image.mode in gray else "RGB"
    mode = base + "A" if image.has_transparency_data else base
    return image if image.mode == mode else image.convert(mode)


def _cmyk_to_rgb(image: "Image") -> "Image":
    from PIL import ImageCms

    profile = image.info.get("icc_profile")
    if profile:
        try:
            source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
            target = ImageCms.createProfile("sRGB")
            converted = ImageCms.profileToProfile(image, source, target, outputMode="RGB")
        except (ImageCms.PyCMSError, OSError):
            pass  # a broken profile, or one of another color space, does not describe the inks
        else:
            assert converted is not None
            return converted
    return image.convert("RGB")


def _upright(samples: NDArray[Any], orientation: int) -> NDArray[Any]:
    if orientation >= 5:
        samples = samples.swapaxes(0, 1)
    if orientation in (2, 3, 6, 7):
        samples = samples[:, ::-1]
    if orientation in (3, 4, 7, 8):
        samples = samples[::-1]
    return samples
