"""The picture as far as it is done, as a small JPEG: what people see before the result is there."""

import io
from collections.abc import Callable

import numpy as np
from torch import Tensor

from musigma.functional.color import to_uint8

SIDE = 1024
"""Largest side of a preview, about."""


class Preview:
    """Collects rows of a picture and shows what is there after each part.

    Args:
        size: Height and width of the whole picture.
        show: Receives JPEG files. What is not done yet is gray.

    Example:
        >>> import torch
        >>> shown = []
        >>> Preview((8, 6), shown.append).add(torch.rand(1, 3, 8, 6))
        >>> shown[0][:2] == bytes([0xFF, 0xD8])
        True
    """

    def __init__(self, size: tuple[int, int], show: Callable[[bytes], None]) -> None:
        self._step = max(1, max(size) // SIDE)
        height, width = (-(-side // self._step) for side in size)
        self._samples = np.full((height, width, 3), 128, np.uint8)
        self._num_rows = 0
        self._show = show

    def add(self, mean: Tensor) -> None:
        """Add the next rows, ``(1, 1 or 3, rows, W)``, and show the picture."""
        first = -self._num_rows % self._step
        rows = to_uint8(mean[:, :, first :: self._step, :: self._step])[0]
        top = -(-self._num_rows // self._step)
        self._samples[top : top + rows.shape[1]] = rows.permute(1, 2, 0).numpy()
        self._num_rows += mean.shape[2]
        self._show(_jpeg(self._samples))


def _jpeg(samples: "np.typing.NDArray[np.uint8]") -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(samples).save(buffer, "JPEG", quality=85)
    return buffer.getvalue()
