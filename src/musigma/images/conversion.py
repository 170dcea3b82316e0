"""Images as people hold them (PIL, arrays, tensors) become batches of float tensors in [0, 1]."""

from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from musigma.types import ImageError

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage

IMAGE_FORMS = (
    "a PIL image, an array (H, W), (H, W, C) or (N, H, W, C), or a tensor (C, H, W) or (N, C, H, W)"
)
ImageLike: TypeAlias = "PilImage | NDArray[Any] | Tensor"

LARGEST_FLOAT = 4.0
"""Noise may carry a float image beyond [0, 1], but never that far; 0..255 goes beyond it."""

COLOR_CHANNELS = (1, 3)


def as_batch(image: Any) -> Tensor:
    """Return an image or a batch as ``(N, C, H, W)`` float32 in ``[0, 1]`` in host memory.

    8-bit and 16-bit integers are divided by the largest value of their type, and booleans become 0
    and 1. Floats of any precision keep their values; values that look like 0..255 are refused
    rather than guessed.

    Args:
        image: A PIL image, an array ``(H, W)``, ``(H, W, C)`` or ``(N, H, W, C)``, or a tensor
            ``(C, H, W)`` or ``(N, C, H, W)``. It is not changed.

    Example:
        >>> as_batch(np.full((4, 5, 3), 255, dtype=np.uint8)).shape
        torch.Size([1, 3, 4, 5])
        >>> as_batch(torch.full((1, 3, 4, 5), 255.0))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        musigma.types.ImageError: a float image must lie in [0, 1], but its values reach 255; ...
    """
    if isinstance(image, Tensor):
        batch = _tensor_to_batch(image)
    elif isinstance(image, np.ndarray):
        batch = _array_to_batch(image)
    elif hasattr(image, "getbands"):
        batch = _array_to_batch(_pil_to_array(image))
    else:
        raise ImageError(f"expected {IMAGE_FORMS}, got {_type_with_hint(image)}")
    return _to_unit_range(batch)


def _type_with_hint(image: Any) -> str:
    name = type(image).__name__
    if isinstance(image, (str, PathLike)):
        return f"{name}; musigma.read_image reads a file"
    if isinstance(image, (list, tuple)):
        return f"{name}; numpy.stack or torch.stack makes a batch of images of one size"
    return name


def _pil_to_array(image: "PilImage") -> NDArray[Any]:
    mode = image.mode
    if mode in ("RGBA", "RGBa", "LA", "La", "PA") or "transparency" in image.info:
        raise ImageError(
            f"a PIL image of mode {mode} has transparency; convert it with image.convert('RGB'), "
            "or restore its file with 'musigma upscale' or 'musigma denoise', which keep alpha"
        )
    if mode in ("L", "RGB", "F") or mode.startswith("I;16"):
        return np.asarray(image)
    if mode == "I":
        raise ImageError(
            "a PIL image of mode I has no known range; give numpy.asarray(image) as uint16"
        )
    return np.asarray(image.convert("L" if mode == "1" else "RGB"))


def _array_to_batch(array: NDArray[Any]) -> Tensor:
    _check_not_empty(array.shape)
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim not in (3, 4):
        raise ImageError(f"expected {IMAGE_FORMS}, got an array of shape {array.shape}")
    channels_first = array.shape[-3]
    if array.shape[-1] not in COLOR_CHANNELS and channels_first in COLOR_CHANNELS:
        axes = "(1, 2, 0)" if array.ndim == 3 else "(0, 2, 3, 1)"
        raise ImageError(
            f"an array has its channels last, but the shape {array.shape} has them first; give "
            f"array.transpose{axes}, or a tensor"
        )
    if array.shape[-1] in (2, 4):
        raise ImageError(
            f"expected 1 or 3 channels, got an array of shape {array.shape}; leave the alpha "
            "channel out, as in array[..., :3]"
        )
    array = array[None] if array.ndim == 3 else array
    return torch.from_numpy(_plain(array).transpose(0, 3, 1, 2))


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array that PyTorch can take: of a type it has, writable, of positive strides."""
    if array.dtype == np.uint16:
        return array.astype(np.float32) / np.float32(65535)
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        return array.astype(np.float64)
    if array.dtype.kind not in "biuf":
        raise ImageError(f"an array of type {array.dtype} is no image; give uint8 or floats")
    array = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False))
    return array if array.flags.writeable else array.copy()


def _tensor_to_batch(tensor: Tensor) -> Tensor:
    shape = tuple(tensor.shape)
    _check_not_empty(shape)
    if tensor.ndim not in (3, 4):
        raise ImageError(f"expected {IMAGE_FORMS}, got a tensor of shape {shape}")
    if shape[-1] in COLOR_CHANNELS and shape[-3] > 4:
        axes = "(2, 0, 1)" if tensor.ndim == 3 else "(0, 3, 1, 2)"
        raise ImageError(
            f"a tensor has its channels first, but the shape {shape} has them last; give "
            f"tensor.permute{axes}"
        )
    return (tensor.detach()[None] if tensor.ndim == 3 else tensor.detach()).cpu()


def _check_not_empty(shape: tuple[int, ...]) -> None:
    if 0 in shape:
        raise ImageError(f"the image is empty: its shape is {shape}")


def _to_unit_range(batch: Tensor) -> Tensor:
    if batch.dtype in (torch.uint8, torch.uint16):
        return batch.float() / torch.iinfo(batch.dtype).max
    if batch.dtype == torch.bool:
        return batch.float()
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
    # An axis that is expanded repeats its values: one of them is enough.
    batch = batch[tuple(slice(0, 1) if step == 0 else slice(None) for step in batch.stride())]
    low, high = (float(value) for value in batch.aminmax())
    if not np.isfinite(low + high):
        raise ImageError("the image holds values that are not finite (NaN or infinity)")
    if max(-low, high) > LARGEST_FLOAT:
        raise ImageError(
            f"a float image must lie in [0, 1], but its values reach {max(-low, high):g}; divide "
            "it by 255 or give it as uint8"
        )
