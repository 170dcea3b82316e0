"""EXR through OpenEXR: values may exceed 1; the errors of ``R`` are the channel ``sigma.R``."""

import io
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from musigma.images.listing import atomic_write, image_error
from musigma.images.science.image import Check, Result, Role, ScienceImage, Values
from musigma.images.science.quiet import silent_stderr
from musigma.images.science.samples import as_values, encode
from musigma.types import ImageError, first_line

_BYTES = 4  # of a sample; the header does not tell half precision from others

_LOSSLESS = ("NO", "RLE", "ZIPS", "ZIP", "PIZ", "ZSTD")
_MADE_ANEW = ("channels", "type", "tiles", "compression", "chunkCount", "name", "preview")


@dataclass(frozen=True)
class _Info:
    """What the result takes over from the source."""

    header: dict[str, Any]


def read(path: Path, check: Check) -> ScienceImage:
    """Open an EXR file of one part; its channels are planes.

    Args:
        path: The file.
        check: Refuses what is too large.

    Raises:
        ImageError: If it has several parts, deep pixels or channels of several sizes.
    """
    import OpenEXR

    printed = io.StringIO()
    try:
        # OpenEXR prints what is damaged, and stdout is for results, stderr for our own lines.
        with redirect_stdout(printed), silent_stderr():
            described = OpenEXR.File(str(path), header_only=True)
            _check_parts(path, described)
            check(*_declared(described.header()))
            file = OpenEXR.File(str(path), separate_channels=True)
        if printed.getvalue():
            raise ValueError(printed.getvalue())
        header, channels = file.header(), file.channels()
    except ImageError:
        raise
    except (RuntimeError, OSError, ValueError, KeyError) as error:
        raise image_error(path, f"cannot be read as EXR ({first_line(error)})") from error
    planes = {name: channel.pixels for name, channel in channels.items()}
    errors = [name for name in planes if name.removeprefix("sigma.") in planes.keys() - {name}]
    for name in errors:
        del planes[name]
    if not planes or any(plane is None or plane.ndim != 2 for plane in planes.values()):
        raise image_error(path, "has no channels of single values")
    if len({plane.shape for plane in planes.values()}) != 1:
        raise image_error(path, "has channels of several sizes; write all of them in full size")
    names, arrays = tuple(planes), list(planes.values())
    roles = tuple(_role(name, array.dtype, header) for name, array in planes.items())

    def read_part(plane: int, rows: slice, columns: slice) -> Values:
        return as_values(arrays[plane][rows, columns])

    return ScienceImage(
        path=path,
        format="EXR",
        shape=(len(names), *arrays[0].shape),
        dtypes=tuple(array.dtype for array in arrays),
        names=names,
        roles=roles,
        joint=_joint(names, roles),
        declared_range=(0.0, 1.0),
        read=read_part,
        close=lambda: None,
        metadata=_Info(header),
        left_out=("the errors that it had",) if errors else (),
    )


def _check_parts(path: Path, described: Any) -> None:
    """Refuse several parts and deep pixels before they are read: all would be, of any size."""
    import OpenEXR

    if len(described.parts) != 1:
        text = f"has {len(described.parts)} parts, and one is expected"
        raise image_error(path, f"{text}; write the part as a file of its own")
    if described.header()["type"] in (OpenEXR.deepscanline, OpenEXR.deeptile):
        raise image_error(path, "has deep pixels; flatten it")


def _declared(header: dict[str, Any]) -> tuple[int, int]:
    """Return the pixels of a channel, and the bytes that all of them need."""
    first, last = (np.asarray(corner, np.int64) for corner in header["dataWindow"])
    num_pixels = int(np.prod(np.maximum(last - first + 1, 0)))
    return num_pixels, num_pixels * len(header["channels"]) * _BYTES


@contextmanager
def writer(path: Path, image: ScienceImage, result: Result) -> Iterator["ExrWriter"]:
    """Collect the result; it is written when the block ends without an error."""
    import OpenEXR

    rows = ExrWriter(image, result)
    with atomic_write(path) as file:
        yield rows
        header = _scaled(image.metadata.header, result)
        try:
            OpenEXR.File(header, rows.channels).write(file.name)
        except RuntimeError as error:
            raise OSError(str(error)) from error


class ExrWriter:
    """Collects the rows of all channels."""

    def __init__(self, image: ScienceImage, result: Result) -> None:
        size = result.size_of(image)
        self.image = image
        named = zip(image.names, image.dtypes, strict=True)
        self.channels: dict[str, NDArray[Any]] = {name: np.zeros(size, d) for name, d in named}
        if result.has_errors:
            names = [error_name(image.names[plane]) for plane in image.value_planes]
            self.channels |= {name: np.zeros(size, np.float32) for name in names}

    def write(self, plane: int, top: int, values: Values, errors: Values | None) -> None:
        """Write rows of a channel and of its errors."""
        name, rows = self.image.names[plane], slice(top, top + len(values))
        self.channels[name][rows] = encode(values, self.image.dtypes[plane])
        if errors is not None:
            self.channels[error_name(name)][rows] = errors


def error_name(channel: str) -> str:
    """Return the name of the channel that holds the errors of another.

    Example:
        >>> error_name("R"), error_name("diffuse.R")
        ('sigma.R', 'sigma.diffuse.R')
    """
    return f"sigma.{channel}"


def _role(name: str, dtype: np.dtype[Any], header: dict[str, Any]) -> Role:
    if dtype.kind == "u" or name.startswith(_cryptomattes(header)):
        return "labels"
    return "opacity" if name.rpartition(".")[2] in ("A", "a") else "values"


def _cryptomattes(header: dict[str, Any]) -> tuple[str, ...]:
    """Return how the channels begin that hold object numbers in the form of floating point."""
    keys = [key for key in header if key.startswith("cryptomatte/") and key.endswith("/name")]
    return tuple(str(header[key]) for key in keys)


def _joint(names: tuple[str, ...], roles: tuple[Role, ...]) -> tuple[tuple[int, ...], ...]:
    """Return red, green and blue of each layer that has all three."""
    values = {name for name, role in zip(names, roles, strict=True) if role == "values"}
    layers = dict.fromkeys(name.rpartition(".")[0] for name in names)
    colours = [(layer, letters) for layer in layers for letters in ("RGB", "rgb")]
    triples = [[f"{layer}.{c}" if layer else c for c in letters] for layer, letters in colours]
    return tuple(tuple(map(names.index, t)) for t in triples if set(t) <= values)


def _scaled(header: dict[str, Any], result: Result) -> dict[str, Any]:
    import OpenEXR

    scaled = {key: value for key, value in header.items() if key not in _MADE_ANEW}
    for key in ("dataWindow", "displayWindow"):
        first, last = (np.asarray(corner, np.int64) for corner in header[key])
        corners = first * result.scale, (last + 1) * result.scale - 1
        scaled[key] = tuple(corner.astype(np.int32) for corner in corners)
    compression = header["compression"]
    is_lossless = compression.name.removesuffix("_COMPRESSION") in _LOSSLESS
    scaled["compression"] = compression if is_lossless else OpenEXR.ZIP_COMPRESSION
    scaled["type"] = OpenEXR.scanlineimage
    return scaled | {f"musigma:{key}": text for key, text in result.notes.items()}
