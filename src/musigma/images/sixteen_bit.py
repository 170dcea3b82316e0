"""Color pictures with 16 bits per sample, of which Pillow itself reads only 8."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from musigma.images.pillow_array import to_array

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

Samples = NDArray[np.uint16]
"""Rows of a picture, ``(rows, W, C)``: 1 gray, 2 gray and alpha, 3 RGB, 4 RGB and alpha."""

FULL_SCALE = 65535


def raw_mode(image: "ImageFile") -> str:
    """Return Pillow's name for the layout of the samples in the file, such as ``RGB;16B``."""
    args: Any = image.tile[0][3]
    return str(args if isinstance(args, str) else args[0])


def read_sixteen_bit(image: "ImageFile", open_image: Callable[[], "ImageFile"]) -> Samples:
    """Return all 16 bits of a color PNG or TIFF, ``(H, W, C)``.

    Pillow keeps only the high byte of such samples. With the other byte order it keeps the low
    byte. So two decodings give the whole sample, for every compression and interlacing.

    Args:
        image: The opened picture; it is decoded here.
        open_image: Opens the same picture again.
    """
    layout, order = raw_mode(image).split(";16")
    if layout == "LA":
        # Pillow knows one byte order only for this layout, but its 4 bytes can be read as RGBA.
        return _decode(image, "RGBA").view(">u2").astype(np.uint16)
    other = {"B": "L", "L": "B", "N": "B" if sys.byteorder == "little" else "L"}[order]
    straight = layout.upper()  # RGBa, multiplied by alpha, is divided below at full precision
    samples = _decode(image, f"{straight};16{order}").astype(np.uint16)
    samples <<= 8
    samples |= _decode(open_image(), f"{straight};16{other}")
    return _divided_by_alpha(samples) if layout == "RGBa" else samples


def _decode(image: "ImageFile", mode: str) -> NDArray[np.uint8]:
    def with_mode(tile: Any) -> Any:  # a plain tuple in Pillow 10, a named one since
        args = mode if isinstance(tile[3], str) else (mode, *tile[3][1:])
        return getattr(type(tile), "_make", tuple)((*tile[:3], args))

    image.tile = [with_mode(tile) for tile in image.tile]
    image.load()
    return to_array(image)


def _divided_by_alpha(samples: Samples) -> Samples:
    alpha = samples[..., 3:].astype(np.float64)
    color = samples[..., :3] * (FULL_SCALE / np.maximum(alpha, 1))
    return np.append(np.minimum(np.rint(color), FULL_SCALE).astype(np.uint16), samples[..., 3:], 2)
