"""FITS through astropy: the result has the extensions ``SCI`` and ``ERR``, and the scaled WCS.

FITS stores plain arrays. So headers are written first, and then rows where they belong; nothing is
in memory as a whole.
"""

import math
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from musigma.images.listing import atomic_write, image_error
from musigma.images.science.image import Check, Result, Role, ScienceImage, Values
from musigma.images.science.samples import RawPlanes, as_values, encode
from musigma.types import ImageError, first_line

_PADDING = 2880  # a FITS file is made of blocks of this size
_DTYPES = {8: "u1", 16: ">i2", 32: ">i4", -32: ">f4", -64: ">f8"}
_POSITION = re.compile(
    r"(CRPIX|CRVAL|CDELT|CROTA|CTYPE|CUNIT|CNAME)\d[A-Z]?|(CD|PC|PV|PS)\d_\d+[A-Z]?"
    r"|(A|B|AP|BP)_(\d_\d|ORDER)|WCSAXES[A-Z]?|LTV\d|LTM\d_\d"
)
_OF_THE_VALUES = ("BSCALE", "BZERO", "BLANK", "BUNIT", "DATAMIN", "DATAMAX", "EXTNAME", "EXTVER")
_OUTDATED = ("DATAMIN", "DATAMAX", "CHECKSUM", "DATASUM", "EXTNAME", "INHERIT", "EXTEND")
_TABLES = re.compile(r"(CPDIS|CQDIS|D2IMDIS)\d")
_COEFFICIENT = re.compile(r"(?:A|B|AP|BP)_(\d)_(\d)")
_MATRIX = re.compile(r"(CD|PC)(\d)_(\d)([A-Z]?)")


@dataclass(frozen=True)
class _Info:
    """What the result takes over from the source."""

    primary: Any
    header: Any
    dtype: np.dtype[Any]
    leading: tuple[int, ...]
    gain: float
    zero: float
    blank: int | None


def read(path: Path, check: Check) -> ScienceImage:
    """Open the extension ``SCI`` of a FITS file, or the first one that holds a picture.

    A cube is a stack of planes. Values are those after ``BSCALE`` and ``BZERO``.

    Args:
        path: The file.
        check: Refuses what is too large.

    Raises:
        ImageError: If there is no picture, or its WCS cannot be scaled.
    """
    from astropy.io import fits

    with _quiet():
        try:
            file = fits.open(path, do_not_scale_image_data=True, memmap=True)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise _unreadable(path, error) from error
        try:
            return _opened(path, file, check)
        except Exception as error:
            file.close()
            if isinstance(error, ImageError | MemoryError):
                raise
            # astropy raises errors of many types for a damaged file.
            raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> ImageError:
    return image_error(path, f"cannot be read as FITS ({first_line(error)})")


@contextmanager
def _quiet() -> Iterator[None]:
    """Let astropy find what is damaged without lines of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _opened(path: Path, file: Any, check: Check) -> ScienceImage:
    hdu = _choose(file)
    if hdu is None:
        raise image_error(path, "holds no picture: no part of it has two axes or more")
    check(math.prod(hdu.shape[-2:]), _bytes_at_once(hdu))
    header = hdu.header
    if any(_TABLES.fullmatch(key) for key in header):
        text = "its WCS has distortion tables, which are not scaled here"
        raise image_error(path, f"{text}; remove them, or resample it to a WCS without them")
    if header["BITPIX"] not in _DTYPES:
        raise image_error(path, "its values are 64-bit integers; store them as floating point")
    data = hdu.data
    info = _info_of(file, header, data)
    planes = data.reshape(-1, *data.shape[-2:])

    def read_part(plane: int, rows: slice, columns: slice) -> Values:
        samples = planes[plane, rows, columns]
        with np.errstate(over="ignore", invalid="ignore"):  # the header may say any factor
            values = as_values(samples) * info.gain + info.zero
        if info.blank is not None:
            values[samples == info.blank] = np.nan
        return values

    num_planes = len(planes)
    role: Role = "values"
    name = str(header.get("EXTNAME", "SCI"))
    return ScienceImage(
        path=path,
        format="FITS",
        shape=planes.shape,
        dtypes=(info.dtype,) * num_planes,
        names=(name,)
        if num_planes == 1
        else tuple(f"{name} {n}" for n in range(1, num_planes + 1)),
        roles=(role,) * num_planes,
        joint=(),
        declared_range=_declared_range(info),
        read=read_part,
        close=file.close,
        metadata=info,
        left_out=_others(file, hdu),
    )


@contextmanager
def writer(path: Path, image: ScienceImage, result: Result) -> Iterator["FitsWriter"]:
    """Open a FITS file for the result; it appears when the block ends without an error."""
    info: _Info = image.metadata
    size = result.size_of(image)
    shape = (*info.leading, *size)
    with atomic_write(path) as file:
        file.write(_bytes_of(_primary_header(info, result)))
        header = _extension_header("SCI", info, shape, info.dtype, result.scale)
        values = _begin(file, header, shape, info.dtype)
        errors = None
        if result.has_errors:
            dtype = np.dtype(">f4")
            header = _extension_header("ERR", info, shape, dtype, result.scale)
            for key in ("quantity", "meaning"):
                header.add_comment(f"{key}: {result.notes[key]}")
            errors = _begin(file, header, shape, dtype)
        yield FitsWriter(info, RawPlanes(file, values, info.dtype, size), errors, size, file)


class FitsWriter:
    """Writes rows of ``SCI`` and ``ERR``."""

    def __init__(
        self,
        info: _Info,
        values: RawPlanes,
        errors: int | None,
        size: tuple[int, int],
        file: BinaryIO,
    ) -> None:
        self.info, self.values = info, values
        self.errors = None if errors is None else RawPlanes(file, errors, np.dtype(">f4"), size)

    def write(self, plane: int, top: int, values: Values, errors: Values | None) -> None:
        """Write rows of a plane and of its errors."""
        info = self.info
        raw = (values - info.zero) / info.gain
        self.values.write(plane, top, encode(raw, info.dtype.newbyteorder("="), missing=info.blank))
        if errors is not None and self.errors is not None:
            self.errors.write(plane, top, errors)


def scale_wcs(header: Any, scale: int) -> None:
    """Change the keywords of a header so that pixels are `scale` times smaller on the sky.

    Axes 1 and 2 are scaled, in the main WCS and in its alternatives, with SIP distortion.

    Args:
        header: An astropy header, which is changed.
        scale: Zoom factor.
    """
    for suffix in ("", *"ABCDEFGHIJKLMNOPQRSTUVWXYZ"):
        if any(f"{key}{axis}{suffix}" in header for key in ("CTYPE", "CRVAL") for axis in (1, 2)):
            _scale_axes(header, suffix, scale)
    for key in list(header):
        if matrix := _MATRIX.fullmatch(key):
            header[key] *= _matrix_factor(matrix, scale)
        elif powers := _COEFFICIENT.fullmatch(key):
            header[key] *= float(scale) ** (1 - int(powers[1]) - int(powers[2]))


def _scale_axes(header: Any, suffix: str, scale: int) -> None:
    has_matrix = any(
        (match := _MATRIX.fullmatch(key)) and match[1] == "CD" and match[4] == suffix
        for key in header
    )
    for axis in (1, 2):
        key = f"CRPIX{axis}{suffix}"
        header[key] = (header.get(key, 0.0) - 0.5) * scale + 0.5
        if not has_matrix:
            key = f"CDELT{axis}{suffix}"
            header[key] = header.get(key, 1.0) / scale


def _matrix_factor(matrix: re.Match[str], scale: int) -> float:
    """Return the factor of an element: CD holds the size of pixels, PC stands beside CDELT."""
    world, pixel = int(matrix[2]), int(matrix[3])
    factor = 1 / scale if pixel <= 2 else 1.0
    return factor * scale if matrix[1] == "PC" and world <= 2 else factor


def _choose(file: Any) -> Any:
    """Return the part to restore, or `None`."""
    pictures = [hdu for hdu in file if hdu.is_image and hdu.header.get("NAXIS", 0) >= 2]
    named = [hdu for hdu in pictures if hdu.name == "SCI"]
    return next(iter([*named, *pictures]), None)


def _bytes_at_once(hdu: Any) -> int:
    """Return what reading a picture needs: compressed ones are unpacked as a whole."""
    from astropy.io import fits

    if not isinstance(hdu, fits.CompImageHDU):
        return 0
    return 2 * math.prod(hdu.shape) * abs(int(hdu.header["BITPIX"])) // 8


def _others(file: Any, chosen: Any) -> tuple[str, ...]:
    numbered = enumerate(file)
    others = [(n, hdu) for n, hdu in numbered if hdu is not chosen and hdu.header.get("NAXIS", 0)]
    return tuple(f"the extension {hdu.name or n}" for n, hdu in others)


def _info_of(file: Any, header: Any, data: Any) -> _Info:
    dtype = np.dtype(_DTYPES[header["BITPIX"]])
    blank = header.get("BLANK") if dtype.kind != "f" else None
    return _Info(
        primary=file[0].header.copy(),
        header=header.copy(),
        dtype=dtype,
        leading=data.shape[:-2],
        gain=float(header.get("BSCALE", 1.0)),
        zero=float(header.get("BZERO", 0.0)),
        blank=blank if type(blank) is int else None,
    )


def _declared_range(info: _Info) -> tuple[float, float] | None:
    low, high = (info.header.get(key) for key in ("DATAMIN", "DATAMAX"))
    if isinstance(low, int | float) and isinstance(high, int | float):
        return (low, high) if low < high and math.isfinite(high - low) else None
    if info.dtype.kind == "f":
        return None
    limits = np.iinfo(info.dtype)
    # Unsigned integers are stored as signed ones with an offset of half the range.
    lowest = limits.min if info.zero else 0
    ends = (lowest * info.gain + info.zero, float(limits.max) * info.gain + info.zero)
    return min(ends), max(ends)


def _primary_header(info: _Info, result: Result) -> Any:
    """Return the header of the first part, which holds no picture: what is not about pixels."""
    from astropy.io import fits

    header = fits.Header([("SIMPLE", True), ("BITPIX", 8), ("NAXIS", 0), ("EXTEND", True)])
    kept = info.primary.copy(strip=True)
    for key in set(kept):
        if _POSITION.fullmatch(key) or key in (*_OF_THE_VALUES, *_OUTDATED):
            kept.remove(key, remove_all=True)
    header.extend(kept, strip=True, end=True)
    for key, text in result.notes.items():
        header.add_history(_plain(f"musigma {key}: {text}"))
    return header


def _extension_header(
    name: str, info: _Info, shape: tuple[int, ...], dtype: np.dtype[Any], scale: int
) -> Any:
    from astropy.io import fits

    bits = 8 * dtype.itemsize * (-1 if dtype.kind == "f" else 1)
    header = fits.Header([("XTENSION", "IMAGE"), ("BITPIX", bits), ("NAXIS", len(shape))])
    for axis, length in enumerate(reversed(shape), 1):
        header[f"NAXIS{axis}"] = length
    header["PCOUNT"], header["GCOUNT"], header["EXTNAME"] = 0, 1, name
    kept = info.header.copy(strip=True)
    for key in (*_OUTDATED, *(() if name == "SCI" else ("BSCALE", "BZERO", "BLANK"))):
        kept.remove(key, ignore_missing=True, remove_all=True)
    scale_wcs(kept, scale)
    header.extend(kept, strip=False, end=True)
    if name == "SCI":  # which astropy takes out of a header when it strips it
        for key in ("BSCALE", "BZERO", "BLANK"):
            if key in info.header:
                header[key] = info.header[key]
    return header


def _plain(text: str) -> str:
    """Return text with the characters that FITS allows."""
    return text.encode("ascii", "replace").decode()


def _bytes_of(header: Any) -> bytes:
    data: bytes = header.tostring().encode("ascii")
    return data


def _begin(file: BinaryIO, header: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Write a header and leave room for its data; return where these begin."""
    file.seek(0, 2)
    file.write(_bytes_of(header))
    start = file.tell()
    num_bytes = math.prod(shape) * dtype.itemsize
    file.truncate(start + math.ceil(num_bytes / _PADDING) * _PADDING)
    return start
