"""Sigma in files: exact in a 16-bit PNG or NumPy's NPZ, and as a colour picture to look at."""

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from musigma.images.decoding import decode
from musigma.images.encoding import PngEncoder
from musigma.images.image_io import MAX_PIXELS, Raster, RowWriter
from musigma.images.listing import atomic_write, image_error
from musigma.images.npz_stream import npz_writer
from musigma.types import ConfigError, nearest

SigmaKind = Literal["png", "npz", "picture"]
_Box = tuple[float, float, float, float]

_SUFFIX: dict[SigmaKind, str] = {"png": ".png", "npz": ".npz", "picture": ".png"}
_UNIT_KEY, _MAX_KEY = "musigma:unit", "musigma:sigma_max"
_UNIT = "sigma = sample / 65535 * sigma_max, the predicted absolute error; 1 is the image's range"


def write_sigma(
    path: Path | str, sigma: Tensor, *, kind: SigmaKind, mean: Tensor | None = None
) -> None:
    """Write a sigma map, whole or not at all.

    - ``png``: 16-bit samples, grey or RGB as sigma is, ``round(sigma / sigma_max * 65535)``. The
      unit and ``sigma_max`` stand in the file's text; ``sigma_max`` is 1, so that files compare
      with each other and with 16-bit images, unless sigma itself is larger.
    - ``npz``: float32 arrays ``sigma`` and, if given, ``mean``, both ``(1, C, H, W)``.
    - ``picture``: colours for the eye with a scale bar in grey levels of 255, sigma averaged over
      its channels; it cannot be read back.

    Args:
        path: The file, ``.png`` or ``.npz``.
        sigma: Predicted absolute error, ``(1, 1 or 3, H, W)``, not negative.
        kind: What to write.
        mean: The restored image, for ``npz`` only.

    Raises:
        ImageError: If sigma is negative or not finite, or the file cannot be written.
    """
    path = Path(path)
    _check(path, sigma, kind, mean)
    sigma = sigma.detach().float().cpu()
    if kind == "png":
        sigma_max = max(1.0, float(sigma.max()))
        with sigma_writer(path, tuple(sigma.shape), sigma_max=sigma_max) as rows:
            rows.write(sigma if sigma_max == 1 else sigma / sigma_max)
    elif kind == "npz":
        found = {"sigma": sigma} if mean is None else {"sigma": sigma, "mean": mean}
        with npz_writer(path, tuple(found), tuple(sigma.shape)) as arrays:
            for name, values in found.items():
                arrays[name].write(values.detach().float().cpu())
    else:
        with atomic_write(path) as file:
            file.write(_draw(sigma))


@contextmanager
def sigma_writer(
    path: Path, shape: tuple[int, ...], *, sigma_max: float = 1.0
) -> Iterator[RowWriter]:
    """Open a sigma file of the kind ``png`` whose rows, divided by ``sigma_max``, come later.

    Args:
        path: The file, which appears when the block ends without an error.
        shape: Of sigma, ``(1, 1 or 3, H, W)``.
        sigma_max: What a full sample means; larger values become it.
    """
    size = (shape[2], shape[3], shape[1])
    text = {_UNIT_KEY: _UNIT, _MAX_KEY: repr(sigma_max)}
    with atomic_write(path) as file:
        rows = RowWriter(path, PngEncoder(file, size, bits=16, text=text), size, bits=16)
        yield rows
        rows.finish()


def read_sigma(path: Path | str) -> Tensor:
    """Read back what `write_sigma` wrote as ``png`` or ``npz``, ``(1, C, H, W)`` float32.

    Raises:
        ImageError: If the file cannot be read or holds no sigma.
    """
    path = Path(path)
    if path.suffix.lower() == ".npz":
        return _read_npz(path)
    found = decode(path, max_pixels=MAX_PIXELS, frame=None)
    try:
        sigma_max = float(found.text[_MAX_KEY])
    except (KeyError, ValueError) as error:
        text = "is a picture without the unit of sigma"
        hint = "only the kinds png and npz of write_sigma can be read"
        raise image_error(path, f"{text}; {hint}") from error
    return Raster(found.samples, found.full_scale)[:] * sigma_max


def _check(path: Path, sigma: Tensor, kind: SigmaKind, mean: Tensor | None) -> None:
    if kind not in _SUFFIX:
        raise ConfigError(f"no kind of sigma file is {kind!r}; {nearest(kind, tuple(_SUFFIX))}")
    if path.suffix.lower() != _SUFFIX[kind]:
        raise image_error(path, f"a sigma file of kind {kind!r} must end in {_SUFFIX[kind]}")
    if mean is not None and kind != "npz":
        raise ConfigError(f"mean goes into a sigma file of kind 'npz' only, not {kind!r}")
    if mean is not None and mean.shape != sigma.shape:
        text = f"mean must have the shape of sigma, {tuple(sigma.shape)}, got {tuple(mean.shape)}"
        raise image_error(path, text)
    if sigma.ndim != 4 or sigma.shape[0] != 1 or sigma.shape[1] not in (1, 3) or not sigma.numel():
        text = f"sigma must have the shape (1, 1 or 3, H, W), got {tuple(sigma.shape)}"
        raise image_error(path, text)
    low, high = float(sigma.min()), float(sigma.max())
    if not (low >= 0 and high < math.inf):  # also true of NaN
        text = f"sigma must be finite and not negative, got values from {low:g} to {high:g}"
        raise image_error(path, f"not written, as {text}")


def _read_npz(path: Path) -> Tensor:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return torch.from_numpy(arrays["sigma"])
    except Exception as error:
        # As with pictures: a broken archive may raise anything, and the user needs one line.
        raise image_error(path, f"holds no sigma that can be read ({error})") from error


def _draw(sigma: Tensor) -> bytes:
    """Return a PNG of sigma in colours, pixel for pixel where its size allows, above a scale bar.

    The scale ends where 0.5 % of the pixels lie beyond, so that a few of them do not darken all.
    """
    from matplotlib.figure import Figure

    levels = _at_a_good_size(sigma.mean(1, keepdim=True) * 255)
    top = float(np.percentile(levels, 99.5)) or 1.0
    height, width = levels.shape
    text = round(min(max(width / 40, 12), 28))  # height of the letters, in pixels
    frame = max(width, 24 * text)
    full_width, full_height = frame + 2 * text, height + 7 * text

    def box(left: int, upper: int, across: int, down: int) -> _Box:
        bottom = full_height - upper - down
        return left / full_width, bottom / full_height, across / full_width, down / full_height

    dpi = 128  # a power of two: then a size in inches gives exactly the pixels meant
    figure = Figure((full_width / dpi, full_height / dpi), dpi=dpi)
    place = box((full_width - width) // 2, text, width, height)
    axes = figure.add_axes(place, frame_on=False, xticks=[], yticks=[])
    image = axes.imshow(
        levels, cmap="magma", vmin=0, vmax=top, interpolation="nearest", aspect="auto"
    )
    bar = figure.add_axes(box(text, height + 2 * text, frame, text))
    extend = "max" if levels.max() > top else "neither"
    scale = figure.colorbar(
        image, cax=bar, orientation="horizontal", extend=extend, extendfrac=0.02
    )
    size = text * 72 / dpi
    scale.set_label("predicted error (levels of 255)", size=size)
    scale.ax.tick_params(labelsize=size)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, facecolor="white")
    return buffer.getvalue()


def _at_a_good_size(levels: Tensor) -> NDArray[np.float32]:
    """Shrink a large map to 2048 pixels and enlarge a small one by a whole factor."""
    height, width = levels.shape[-2:]
    largest = max(height, width)
    if largest > 2048:
        size = (max(1, height * 2048 // largest), max(1, width * 2048 // largest))
        levels = functional.interpolate(levels, size=size, mode="area")
    else:
        factor = min(math.ceil(512 / width), 2048 // largest)
        levels = levels.repeat_interleave(factor, 2).repeat_interleave(factor, 3)
    return levels[0, 0].numpy()
