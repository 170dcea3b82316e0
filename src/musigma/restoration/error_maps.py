"""Files with error maps: sigma, std and half_width as 16-bit PNG, and a picture to look at.

Three quantities describe the error of a value, and every file says which one it holds:

============== ===================================================================================
``sigma``      the absolute error that the network predicts, as it predicts it
``std``        the calibrated standard deviation of the error
``half_width`` half the width of the calibrated interval around the mean, at a stated coverage
============== ===================================================================================
"""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from musigma.images.decoding import decode
from musigma.images.encoding import PngEncoder
from musigma.images.image_io import MAX_PIXELS, Raster, RowWriter
from musigma.images.listing import atomic_write, image_error
from musigma.images.npz_stream import INFO
from musigma.restoration.error_picture import error_picture
from musigma.restoration.promise import Promise
from musigma.types import ConfigError, nearest
from musigma.uncertainty.calibration import Calibration

Quantity = Literal["sigma", "std", "half_width"]
QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)
_MAX_INFO = 2**24
"""Bytes of the description in an NPZ; it has some thousand."""

MEANINGS: dict[Quantity, str] = {
    "sigma": "sigma: the absolute error that the network predicts, not calibrated",
    "std": "std: the calibrated standard deviation of the error",
    "half_width": "half_width: half the width of the interval around the mean",
}
UNIT = "value = sample / 65535 * scale; a value of 1 is the full range of the image"
_PREFIX = "musigma:"


class ErrorMap(NamedTuple):
    """What a file with an error map holds.

    Attributes:
        quantity: Which of the three quantities it is.
        values: ``(1, C, H, W)`` float32, not negative; 1 is the full range of the image.
        info: What the file says further, such as `coverage` and `conditions` of an interval.
    """

    quantity: Quantity
    values: Tensor
    info: dict[str, str]


def error_maps_of(sigma: Tensor, calibration: Calibration | None) -> dict[Quantity, Tensor]:
    """Return all quantities that can be computed from the sigma of a network.

    Args:
        sigma: The absolute error that the network predicts.
        calibration: Without it there is sigma alone.
    """
    if calibration is None:
        return {"sigma": sigma}
    std = calibration.std(sigma)
    return {"sigma": sigma, "std": std, "half_width": calibration.factor * std}


def describe(
    quantity: Quantity, calibration: Calibration | None = None, promise: Promise | None = None
) -> dict[str, str]:
    """Return what a file should say about a quantity, by keyword.

    Args:
        quantity: What the file holds.
        calibration: How it was computed from sigma; sigma itself needs none.
        promise: What the interval promises for this picture.

    Example:
        >>> describe("sigma")["meaning"]
        'sigma: the absolute error that the network predicts, not calibrated'
    """
    info = {"quantity": quantity, "meaning": MEANINGS[quantity]}
    if calibration is None or quantity == "sigma":
        return info
    info["calibration"] = f"{calibration.method}, {calibration.num_images} images"
    info["conditions"] = calibration.conditions
    if quantity == "half_width":
        info["coverage"] = repr(calibration.coverage)
        if promise is not None:
            info["promise"] = promise.text or f"none: {promise.reason}"
    return info


def write_error_map(
    path: Path | str,
    values: Tensor,
    quantity: Quantity,
    *,
    info: Mapping[str, str] | None = None,
) -> None:
    """Write an error map as a 16-bit PNG, gray or RGB.

    A sample is ``round(value / scale * 65535)``. The scale is 1, so that files compare with each
    other and with 16-bit images, unless a value is larger.

    Args:
        path: The file, ``.png``.
        values: ``(1, 1 or 3, H, W)``, finite and not negative.
        quantity: What the values are.
        info: Further entries, such as those of `describe`.

    Raises:
        ImageError: If a value is negative or not finite, or the file cannot be written.
    """
    path = Path(path)
    _check_name(path, quantity)
    _check_values(path, values, quantity)
    values = values.detach().float().cpu()
    scale = max(1.0, float(values.max()))
    shape = tuple(values.shape)
    with error_map_writer(path, shape, quantity, scale=scale, info=info) as rows:
        rows.write(values if scale == 1 else values / scale)


@contextmanager
def error_map_writer(
    path: Path,
    shape: tuple[int, ...],
    quantity: Quantity,
    *,
    scale: float = 1.0,
    info: Mapping[str, str] | None = None,
) -> Iterator[RowWriter]:
    """Open an error map as `write_error_map` does, for rows that come in several parts.

    Args:
        path: The file, which appears when the block ends without an error.
        shape: ``(1, 1 or 3, H, W)``.
        quantity: What the values are.
        scale: The value of the largest sample. The rows must be divided by it; larger values are
            clamped.
        info: Further entries, such as those of `describe`.
    """
    size = (shape[2], shape[3], shape[1])
    entries = {**describe(quantity), **(info or {}), "unit": UNIT, "scale": repr(scale)}
    text = {_PREFIX + key: value for key, value in entries.items()}
    with atomic_write(path) as file:
        rows = RowWriter(path, PngEncoder(file, size, bits=16, text=text), size, bits=16)
        yield rows
        rows.finish()


def read_error_map(path: Path | str, quantity: Quantity | None = None) -> ErrorMap:
    """Read an error map from a PNG of `write_error_map`, or from an NPZ of ``--npz``.

    Args:
        path: The file.
        quantity: What to read. A PNG holds one quantity and is refused if it is another one; of an
            NPZ it is sigma by default.

    Raises:
        ImageError: If the file cannot be read or does not hold the quantity.
    """
    path = Path(path)
    if quantity is not None:
        _check_quantity(quantity)
    if path.suffix.lower() == ".npz":
        error_map = _read_npz(path, quantity or "sigma")
    else:
        error_map = _read_png(path, quantity)
    _check_values(path, error_map.values, error_map.quantity)
    return error_map


def draw_error_map(
    path: Path | str,
    values: Tensor,
    quantity: Quantity,
    *,
    info: Mapping[str, str] | None = None,
) -> None:
    """Draw an error map in colors above a scale bar, as a PNG to look at.

    It shows the mean over the channels in levels of 255, and cannot be read back.

    Args:
        path: The file, ``.png``.
        values: ``(1, 1 or 3, H, W)``, finite and not negative.
        quantity: What the values are; the scale bar says it.
        info: Further entries, such as those of `describe`.
    """
    path = Path(path)
    _check_name(path, quantity)
    _check_values(path, values, quantity)
    entries = {**describe(quantity), **(info or {})}
    text = "A picture of the error map, mean over the channels. " + "; ".join(entries.values())
    with atomic_write(path) as file:
        file.write(error_picture(values.detach().float().cpu(), caption(quantity), text))


def _check_quantity(quantity: str) -> None:
    if quantity not in QUANTITIES:
        raise ConfigError(f"there is no quantity {quantity!r}; {nearest(quantity, QUANTITIES)}")


def _check_name(path: Path, quantity: str) -> None:
    _check_quantity(quantity)
    if path.suffix.lower() != ".png":
        raise image_error(path, "the file of an error map must end in .png")


def _check_values(path: Path, values: Tensor, quantity: Quantity) -> None:
    shape = tuple(values.shape)
    if len(shape) != 4 or shape[0] != 1 or shape[1] not in (1, 3) or 0 in shape:
        raise image_error(path, f"{quantity} must have the shape (1, 1 or 3, H, W), got {shape}")
    low, high = float(values.min()), float(values.max())
    if not (low >= 0 and high < math.inf):  # also true of NaN
        raise image_error(
            path,
            f"{quantity} must be finite and not negative, got values from {low:g} to {high:g}",
        )


def _read_png(path: Path, quantity: Quantity | None) -> ErrorMap:
    decoded = decode(path, max_pixels=MAX_PIXELS, frame=None)
    info = {
        key.removeprefix(_PREFIX): value
        for key, value in decoded.text.items()
        if key.startswith(_PREFIX)
    }
    stored = next((name for name in QUANTITIES if name == info.get("quantity")), None)
    scale = _positive_number(info.get("scale"))
    if stored is None or scale is None:
        text = "is a picture that does not say which error it holds and in which unit"
        raise image_error(path, f"{text}; files of write_error_map do")
    if quantity not in (None, stored):
        raise image_error(path, f"holds {stored}, not {quantity}")
    return ErrorMap(stored, Raster(decoded.samples, decoded.full_scale)[:] * scale, info)


def _positive_number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if 0 < number < math.inf else None


def _read_npz(path: Path, quantity: Quantity) -> ErrorMap:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            values = _array(arrays, quantity, MAX_PIXELS * 3 * np.dtype(np.float32).itemsize)
            info = json.loads(_array(arrays, INFO, _MAX_INFO).item()) if INFO in arrays else {}
    except Exception as error:
        # A broken archive may raise any exception; the user needs one line.
        raise image_error(path, f"holds no {quantity} that can be read ({error})") from error
    if values.dtype != np.float32:
        raise image_error(path, f"{quantity} must be float32, got {values.dtype}")
    return ErrorMap(quantity, torch.from_numpy(values), _entries_of(info, quantity))


def _array(arrays: Any, name: str, most_bytes: int) -> "np.ndarray[Any, Any]":
    """Return an array of an archive, or refuse one that is too large once it is unpacked.

    The full name of its member is asked for: NumPy prefers a member without the suffix.
    """
    member = f"{name}.npy"
    num_bytes = arrays.zip.getinfo(member).file_size
    if num_bytes > most_bytes:
        raise ValueError(f"{name} has {num_bytes:,} bytes, and at most {most_bytes:,} are read")
    return arrays[member]


def _entries_of(info: Any, quantity: Quantity) -> dict[str, str]:
    entries = info.get(quantity) if isinstance(info, dict) else None
    entries = entries if isinstance(entries, dict) else {}
    return {str(key): str(value) for key, value in entries.items()}


def caption(quantity: Quantity) -> str:
    """Return the label of a scale bar.

    Example:
        >>> caption("std")
        'std: calibrated standard deviation (levels of 255)'
    """
    labels: dict[Quantity, str] = {
        "sigma": "sigma: predicted absolute error, not calibrated",
        "std": "std: calibrated standard deviation",
        "half_width": "half_width: half the interval around the mean",
    }
    return f"{labels[quantity]} (levels of 255)"
