"""FITS through astropy: the result has the extensions ``SCI`` and ``ERR``, and the scaled WCS.

FITS stores plain arrays. So headers are written first, and then rows where they belong; nothing is
in memory as a whole.
"""

import math
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from musigma.images.listing import atomic_write, image_error
from musigma.images.science.fits_tiles import bytes_to_unpack, check_tiles
from musigma.images.science.image import (
    Check,
    Result,
    Role,
    ScienceImage,
    Values,
    closed_if_unreadable,
    unreadable,
)
from musigma.images.science.samples import RawPlanes, as_values, encode

_BLOCK = 2880  # a FITS file is made of blocks of this size
_DTYPES = {8: "u1", 16: ">i2", 32: ">i4", -32: ">f4", -64: ">f8"}
_POSITION = re.compile(
    r"(CRPIX|CRVAL|CDELT|CROTA|CTYPE|CUNIT|CNAME)\d[A-Z]?|(CD|PC|PV|PS)\d_\d+[A-Z]?"
    r"|(A|B|AP|BP)_(\d_\d|ORDER)|WCSAXES[A-Z]?|LTV\d|LTM\d_\d"
)
_OF_THE_VALUES = ("BSCALE", "BZERO", "BLANK", "BUNIT", "DATAMIN", "DATAMAX", "EXTNAME", "EXTVER")
_OUTDATED = ("DATAMIN", "DATAMAX", "CHECKSUM", "DATASUM", "EXTNAME", "INHERIT", "EXTEND")
_TABLES = re.compile(r"(CPDIS|CQDIS|D2IMDIS)\d")
_TABLE_AXIS = re.compile(r"CTYPE\d+[A-Z]?")
_MAX_COUNT = 999
"""FITS allows no more axes and no more columns than this."""
_COUNTS = {b"NAXIS": "axes", b"ZNAXIS": "axes", b"TFIELDS": "columns"}
_MAX_HEADER = 4 * 2**20
"""Bytes of one header. It is kept in memory, several times, and has at most some thousand cards."""
_MAX_SIZE = 2**60
_SIZE_CARD = re.compile(
    rb" *(?:HIERARCH +)?(Z?NAXIS\d{0,3}|ZTILE\d{1,3}|TFIELDS|BITPIX|PCOUNT|GCOUNT) *=([^/]*)",
    re.IGNORECASE,
)
_WHOLE_NUMBER = re.compile(rb" *[+-]?\d{1,20} *")
_GROUPS_CARD = re.compile(rb"GROUPS *= *T")
_END = b"END".ljust(80)
_COEFFICIENT = re.compile(r"(?:A|B|AP|BP)_(\d)_(\d)")
_MATRIX = re.compile(r"(CD|PC)(\d)_(\d)([A-Z]?)")
_AXIS = re.compile(r"(?:CRPIX|CRVAL|CDELT|CTYPE)[12]([A-Z]?)")


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
            num_parts = _check_parts(path)
            file = fits.open(path.absolute(), do_not_scale_image_data=True, memmap=True)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise unreadable(path, "FITS", error) from error
        with closed_if_unreadable(path, "FITS", file):
            return _opened(path, file, num_parts, check)


def _check_parts(path: Path) -> int:
    """Return how many parts a file has, or refuse sizes that would take astropy long.

    astropy multiplies the sizes of a header before it looks at them, so a text among them is
    repeated until it fills the memory; and it counts through all axes and columns. What lies behind
    the last part is not read: FITS allows anything there.
    """
    with path.open("rb") as stream:
        for number in count():
            cards = _read_cards(stream, b"XTENSION" if number else b"SIMPLE")
            if not cards:
                return number
            num_bytes = _data_bytes(_sizes(cards), has_groups=any(map(_GROUPS_CARD.match, cards)))
            stream.seek(-(-num_bytes // _BLOCK) * _BLOCK, 1)
    raise AssertionError("a file has an end")


def _read_cards(stream: BinaryIO, first: bytes) -> list[bytes]:
    """Return the lines of the header that comes next, or none if what comes is no header."""
    cards: list[bytes] = []
    while len(cards) * 80 < _MAX_HEADER:
        block = stream.read(_BLOCK)
        if not cards and not block.startswith(first):
            return []
        if not block:
            raise ValueError("a header has no END")
        cards += [block[start : start + 80] for start in range(0, len(block), 80)]
        if _END in cards[-_BLOCK // 80 :]:
            return cards[: cards.index(_END)]
    raise ValueError(f"a header has no END within its first {_MAX_HEADER // 2**20} MiB")


def _sizes(cards: list[bytes]) -> dict[bytes, int]:
    """Return the numbers of a header that say how long its data are."""
    sizes: dict[bytes, int] = {}
    for match in filter(None, map(_SIZE_CARD.match, cards)):
        key, text = match[1].upper(), match[2]
        if not _WHOLE_NUMBER.fullmatch(text):
            value = text.strip().decode("ascii", "replace")
            raise ValueError(f"{key.decode()} is {value}, where a whole number was expected")
        number = int(text)
        least = 1 if key.startswith(b"ZTILE") else 0
        if number < least and key != b"BITPIX":
            raise ValueError(f"{key.decode()} is {number}, and cannot be less than {least}")
        if key in _COUNTS and number > _MAX_COUNT:
            raise ValueError(f"it declares {number} {_COUNTS[key]}, more than {_MAX_COUNT}")
        if sizes.setdefault(key, number) != number:
            raise ValueError(f"{key.decode()} is both {sizes[key]} and {number}")
    return sizes


def _data_bytes(sizes: dict[bytes, int], *, has_groups: bool) -> int:
    """Return the size of the data behind a header; the first axis of random groups is none."""
    num_axes = sizes.get(b"NAXIS", 0)
    axes = [sizes.get(b"NAXIS%d" % n, 0) for n in range(1 + has_groups, num_axes + 1)]
    num_values = (math.prod(axes) if axes else 0) + sizes.get(b"PCOUNT", 0)
    size = abs(sizes.get(b"BITPIX", 8)) * num_values * sizes.get(b"GCOUNT", 1) // 8
    return min(size, _MAX_SIZE)


@contextmanager
def _quiet() -> Iterator[None]:
    """Let astropy find what is damaged without lines of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _opened(path: Path, file: Any, num_parts: int, check: Check) -> ScienceImage:
    from astropy.io import fits

    parts = list(islice(file, num_parts))
    hdu = _choose(parts)
    if hdu is None:
        raise image_error(path, "holds no picture: no part of it has two axes or more")
    is_compressed = isinstance(hdu, fits.CompImageHDU)
    check(math.prod(hdu.shape[-2:]), bytes_to_unpack(hdu) if is_compressed else 0)
    header = _inherited(file, hdu)
    if _has_tables(header):
        text = "its WCS has distortion tables, which are not scaled here"
        raise image_error(path, f"{text}; remove them, or resample it to a WCS without them")
    scale_wcs(header.copy(), 2)  # refuse one that cannot be scaled before the work begins
    if header["BITPIX"] not in _DTYPES:
        raise image_error(path, "its values are 64-bit integers; store them as floating point")
    if is_compressed:
        check_tiles(path, parts.index(hdu), hdu)
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
        left_out=_others(parts, hdu),
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
    matrices = [match for key in header if (match := _MATRIX.fullmatch(key))]
    axes = [match for key in header if (match := _AXIS.fullmatch(key))]
    for suffix in dict.fromkeys([*(match[1] for match in axes), *(match[4] for match in matrices)]):
        has_cd = any(match[1] == "CD" and match[4] == suffix for match in matrices)
        for axis in "12":
            _multiply(header, f"CRPIX{axis}{suffix}", scale, centre=0.5, default=0.0)
            if not has_cd:
                _multiply(header, f"CDELT{axis}{suffix}", 1 / scale, default=1.0)
    for key in dict.fromkeys(header):
        if matrix := _MATRIX.fullmatch(key):
            _multiply(header, key, _matrix_factor(matrix, scale))
        elif powers := _COEFFICIENT.fullmatch(key):
            _multiply(header, key, float(scale) ** (1 - int(powers[1]) - int(powers[2])))
    _scale_physical(header, scale)


def _scale_physical(header: Any, scale: int) -> None:
    """Scale the pixel numbers of the detector (IRAF): the image is LTM times these plus LTV."""
    if not any(key.startswith(("LTV", "LTM")) for key in header):
        return
    for axis in "12":
        _multiply(header, f"LTM{axis}_{axis}", scale, default=1.0)
        _multiply(header, f"LTV{axis}", scale, centre=0.5, default=0.0)


def _multiply(
    header: Any, key: str, factor: float, *, centre: float = 0.0, default: float = 0.0
) -> None:
    """Multiply the distance of a number from `centre`; a keyword that is absent has a default."""
    number = header.get(key, default)
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ValueError(f"{key} is {number!r}, where a number was expected")
    header[key] = (number - centre) * factor + centre


def _matrix_factor(matrix: re.Match[str], scale: int) -> float:
    """Return the factor of an element: CD holds the size of pixels, PC stands beside CDELT."""
    world, pixel = int(matrix[2]), int(matrix[3])
    factor = 1 / scale if pixel <= 2 else 1.0
    return factor * scale if matrix[1] == "PC" and world <= 2 else factor


def _choose(parts: list[Any]) -> Any:
    """Return the part to restore, or `None`."""
    pictures = [hdu for hdu in parts if hdu.is_image and hdu.header.get("NAXIS", 0) >= 2]
    named = [hdu for hdu in pictures if hdu.name == "SCI"]
    return next(iter([*named, *pictures]), None)


def _inherited(file: Any, hdu: Any) -> Any:
    """Return the header of a part, with the keywords of the first one if it inherits them."""
    if hdu is file[0] or hdu.header.get("INHERIT") is not True:
        return hdu.header
    header = hdu.header.copy()
    for card in file[0].header.copy(strip=True).cards:
        if card.keyword not in (*header, "COMMENT", "HISTORY", ""):
            header.append(card)
    return header


def _has_tables(header: Any) -> bool:
    """Return whether a WCS looks up positions in tables, which are parts of their own."""
    return any(
        _TABLES.fullmatch(key) or (_TABLE_AXIS.fullmatch(key) and str(header[key])[4:] == "-TAB")
        for key in header
    )


def _others(parts: list[Any], chosen: Any) -> tuple[str, ...]:
    num_named = Counter(hdu.name for hdu in parts)
    others = []
    for number, hdu in enumerate(parts):
        if hdu is not chosen and hdu.header.get("NAXIS", 0):
            version = f",{hdu.ver}" if num_named[hdu.name] > 1 else ""
            others.append(f"the extension {hdu.name}{version}" if hdu.name else f"part {number}")
    return tuple(others)


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
    is_unsigned = info.zero == -float(limits.min)
    if info.gain != 1 or not (info.zero == 0 or is_unsigned):
        return None  # the integers are steps of another quantity
    return 0.0, float(limits.max) + info.zero


def _primary_header(info: _Info, result: Result) -> Any:
    """Return the header of the first part, which holds no picture: what is not about pixels."""
    from astropy.io import fits

    header = fits.Header([("SIMPLE", True), ("BITPIX", 8), ("NAXIS", 0), ("EXTEND", True)])
    left_out = (*_OF_THE_VALUES, *_OUTDATED)
    cards = info.primary.copy(strip=True).cards
    kept = [c for c in cards if c.keyword not in left_out and not _POSITION.fullmatch(c.keyword)]
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
    left_out = (*_OUTDATED, *(() if name == "SCI" else ("BSCALE", "BZERO", "BLANK")))
    cards = info.header.copy(strip=True).cards
    kept = fits.Header([card for card in cards if card.keyword not in left_out])
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
    file.truncate(start + math.ceil(num_bytes / _BLOCK) * _BLOCK)
    return start
