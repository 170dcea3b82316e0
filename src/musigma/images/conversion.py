"""Images as people hold them (PIL, arrays, tensors) become batches of float tensors in [0, 1]."""

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from musigma.types import ImageError

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage

IMAGE_FORMS = "a PIL image, an array (H, W) or (H, W, C), or a tensor (C, H, W) or (N, C, H, W)"
ImageLike: TypeAlias = "PilImage | NDArray[Any] | Tensor"

LARGEST_FLOAT = 4.0
"""Noise may carry a float image beyond [0, 1], but never that far; 0..255 goes beyond it."""


def as_batch(image: Any) -> Tensor:
    """Return an image as ``(N, C, H, W)`` float32 in ``[0, 1]``.

    Integers are divided by the largest value of their type. Floats of any precision are taken as
    they are; values that look like 0..255 are refused rather than guessed.

    Example:
        >>> as_batch(np.full((4, 5, 3), 255, dtype=np.uint8)).shape
        torch.Size([1, 3, 4, 5])
        >>> as_batch(torch.full((1, 3, 4, 5), 255.0))
        Traceback (most recent call last):
        musigma.types.ImageError: a float image must lie in [0, 1], but its values reach 255; divide
        it by 255 or give it as uint8
    """
    if isinstance(image, Tensor):
        tensor = image.detach()[None] if image.ndim == 3 else image.detach()
    else:
        array = _pil_to_array(image) if hasattr(image, "getbands") else image
        if not isinstance(array, np.ndarray):
            raise ImageError(f"expected {IMAGE_FORMS}, got {type(image).__name__}")
        tensor = _array_to_batch(array)
    if tensor.ndim != 4 or 0 in tensor.shape:
        raise ImageError(f"expected {IMAGE_FORMS}, got shape {tuple(image.shape)}")
    return _to_unit_range(tensor.cpu())


def _pil_to_array(image: "PilImage") -> NDArray[Any]:
    if image.mode in ("L", "RGB") or image.mode.startswith("I;16"):
        return np.asarray(image)
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        raise ImageError(
            f"a PIL image of mode {image.mode} has transparency; convert it with "
            "image.convert('RGB'), or use 'musigma upscale', which keeps alpha"
        )
    return np.asarray(image.convert("RGB"))


def _array_to_batch(array: NDArray[Any]) -> Tensor:
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3:
        raise ImageError(f"expected an array (H, W) or (H, W, C), got shape {array.shape}")
    if array.dtype == np.uint16:
        array = array.astype(np.float64) / 65535
    return torch.from_numpy(np.ascontiguousarray(array.transpose(2, 0, 1)))[None]


def _to_unit_range(batch: Tensor) -> Tensor:
    if batch.dtype in (torch.uint8, torch.uint16):
        return batch.float() / torch.iinfo(batch.dtype).max
    if not batch.is_floating_point():
        raise ImageError(
            f"an image of type {batch.dtype} has no known range; give uint8, uint16 or floats in "
            "[0, 1]"
        )
    batch = batch.float()
    check_values(batch)
    return batch


def check_values(batch: Tensor) -> None:
    """Refuse values that are not finite or look like 0..255."""
    low, high = (float(value) for value in batch.aminmax())
    if not np.isfinite(low + high):
        raise ImageError("the image holds values that are not finite (NaN or infinity)")
    if max(-low, high) > LARGEST_FLOAT:
        raise ImageError(
            f"a float image must lie in [0, 1], but its values reach {max(-low, high):g}; divide "
            "it by 255 or give it as uint8"
        )
