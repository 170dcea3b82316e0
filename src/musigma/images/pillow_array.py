"""Turn pictures of Pillow into arrays with little extra memory."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

_ROWS = 256


def to_array(image: "Image") -> NDArray[Any]:
    """Return the samples of a loaded picture, ``(H, W)`` or ``(H, W, C)``.

    ``np.asarray(image)`` needs the samples twice for a moment. Copying bands of rows needs them
    once.

    Example:
        >>> from PIL import Image
        >>> to_array(Image.new("RGB", (3, 2))).shape
        (2, 3, 3)
    """
    width, height = image.size
    first = np.asarray(image.crop((0, 0, width, min(_ROWS, height))))
    samples = np.empty((height, *first.shape[1:]), first.dtype)
    for top in range(0, height, _ROWS):
        bottom = min(top + _ROWS, height)
        samples[top:bottom] = np.asarray(image.crop((0, top, width, bottom)))
    return samples
