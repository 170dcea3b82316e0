"""MATLAB's imresize, bit for bit on 8-bit images, differentiable on float images."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from musigma.functional.color import to_uint8
from musigma.functional.geometry import border_index
from musigma.types import ConfigError, ImageError, nearest

Kernel = Literal["cubic", "linear"]


def resize(
    image: Tensor,
    *,
    scale: float | None = None,
    size: tuple[int, int] | None = None,
    antialias: bool = True,
    kernel: Kernel = "cubic",
) -> Tensor:
    """Resample an image as MATLAB's imresize does: separable, with symmetric borders.

    A float image is resampled in its own precision and not clamped; gradients flow. A uint8 image
    is resampled in double precision and rounded (halves up) and clamped after *each* pass, as
    MATLAB does. The axis with the smaller factor comes first, on a tie the height.

    Args:
        image: ``(N, C, H, W)``, float or uint8.
        scale: Factor of both sides, which become ``ceil(scale * side)``; or else ``size``.
        size: ``(height, width)`` of the result.
        antialias: Whether to widen the kernel by ``1 / factor`` where the image shrinks.
        kernel: ``cubic`` is Keys' with a = -0.5, ``linear`` the triangle.

    Example:
        >>> resize(torch.rand(1, 3, 37, 31), scale=0.5).shape
        torch.Size([1, 3, 19, 16])
    """
    if image.ndim != 4 or image.numel() == 0:
        raise ImageError(f"expected an image (N, C, H, W), got shape {tuple(image.shape)}")
    if kernel not in _KERNELS:
        raise ConfigError(f"no kernel {kernel!r}; {nearest(kernel, list(_KERNELS))}")
    dtype = image.dtype
    work = image if dtype == torch.uint8 else image.to(torch.promote_types(dtype, torch.float32))
    for axis in _plan(image.shape[-2], image.shape[-1], scale, size):
        work = _resize_axis(work, axis, antialias, kernel)
    return work.to(dtype).contiguous()


def bicubic_down(image: Tensor, scale: int) -> Tensor:
    """Return the published kind of low-resolution image: imresize(image, 1/scale) in 8 bits.

    ``(N, C, H, W)``, uint8 or float in ``[0, 1]``, becomes ``(N, C, H/scale, W/scale)`` of the same
    type; a float image is rounded to 8 bits before and after. Both sides must be multiples of the
    scale (`crop_to_multiple` sees to that), or else the result would be shifted.
    """
    height, width = image.shape[-2:]
    if height % scale or width % scale:
        raise ImageError(
            f"expected sides that are multiples of the scale {scale}, got {width}x{height} "
            f"(width x height); crop with crop_to_multiple first"
        )
    return _in_8_bits(image, (height // scale, width // scale))


def bicubic_up(image: Tensor, scale: int) -> Tensor:
    """Return imresize(image, scale) in 8 bits, the bicubic row of every table.

    ``(N, C, H, W)``, uint8 or float in ``[0, 1]``, becomes ``(N, C, scale H, scale W)`` of the same
    type; a float image is rounded to 8 bits before and after.
    """
    height, width = image.shape[-2:]
    return _in_8_bits(image, (height * scale, width * scale))


class _Axis(NamedTuple):
    dim: int
    length: int
    result: int
    factor: float


class _Taps(NamedTuple):
    source: Tensor  # (result, num_taps): which input pixels make an output pixel
    weight: Tensor  # the same shape; rows sum to 1


def _in_8_bits(image: Tensor, size: tuple[int, int]) -> Tensor:
    result = resize(to_uint8(image), size=size)
    return result if image.dtype == torch.uint8 else result.to(image.dtype) / 255


def _plan(
    height: int, width: int, scale: float | None, size: tuple[int, int] | None
) -> list[_Axis]:
    if (scale is None) == (size is None):
        raise ConfigError(f"give either scale or size to resize, got scale={scale}, size={size}")
    lengths = (height, width)
    if size is None:
        assert scale is not None
        factors = (float(scale), float(scale))
        # The margin keeps 10 * 1.1 = 11.000000000000002 at 11 pixels.
        size = (math.ceil(height * scale - 1e-9), math.ceil(width * scale - 1e-9))
    else:
        factors = (size[0] / height, size[1] / width)
    if min(size) < 1:
        raise ConfigError(
            f"cannot resize {width}x{height} pixels to {size[1]}x{size[0]} (width x height); "
            f"give a larger scale or size"
        )
    axes = map(_Axis, (-2, -1), lengths, size, factors)
    return sorted(axes, key=lambda axis: axis.factor)


def _resize_axis(image: Tensor, axis: _Axis, antialias: bool, kernel: str) -> Tensor:
    is_uint8 = image.dtype == torch.uint8
    rows = image.movedim(axis.dim, 0)
    table = rows.reshape(rows.shape[0], -1).to(torch.float64 if is_uint8 else image.dtype)
    taps = _taps(
        axis.length, axis.result, axis.factor, antialias, kernel, table.dtype, table.device
    )
    # A row of the result is a weighted bag of input rows: far quicker than indexing tap by tap, and
    # exact on a GPU, where a matrix product might use TF32.
    mixed = embedding_bag(taps.source, table, per_sample_weights=taps.weight, mode="sum")
    if is_uint8:
        mixed = mixed.add_(0.5).clamp_(0, 255).to(torch.uint8)
    return mixed.view(-1, *rows.shape[1:]).movedim(0, axis.dim)


@lru_cache(maxsize=64)
def _taps(
    length: int,
    result: int,
    factor: float,
    antialias: bool,
    kernel: str,
    dtype: torch.dtype,
    device: torch.device,
) -> _Taps:
    function, support = _KERNELS[kernel]
    shrink = min(factor, 1.0) if antialias else 1.0
    # Cached tensors outlive the caller's inference mode, and a later backward pass needs them.
    with torch.inference_mode(False):
        center = (torch.arange(result, dtype=torch.float64) + 0.5) / factor - 0.5
        first = (center - support / shrink).ceil()
        num_taps = math.floor(2 * support / shrink) + 1
        position = first[:, None] + torch.arange(num_taps)
        weight = function((center[:, None] - position) * shrink)
        weight = weight / weight.sum(1, keepdim=True)
        source = border_index(position.long(), length, "symmetric")
        used = (weight != 0).any(0)
        return _Taps(source[:, used].to(device), weight[:, used].to(device, dtype))


def _cubic(x: Tensor) -> Tensor:
    x = x.abs()
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x <= 1, near, torch.where(x <= 2, far, 0))


def _linear(x: Tensor) -> Tensor:
    return (1 - x.abs()).clamp_min(0)


# Each kernel with half the width of its support.
_KERNELS: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {
    "cubic": (_cubic, 2.0),
    "linear": (_linear, 1.0),
}
