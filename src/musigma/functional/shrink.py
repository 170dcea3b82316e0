"""The ways in which programs shrink an image by an integer factor, each as a matrix.

All are separable: a matrix ``(low, high)`` makes a column of the small image from one of the large,
and the same method for the other side makes a row. So a batch may use another method for each
image: stack the matrices, pick one per image, multiply.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from musigma.functional.geometry import border_index
from musigma.functional.resize import resize
from musigma.types import ConfigError, ImageError, nearest


def shrink(image: Tensor, row_matrices: Tensor, column_matrices: Tensor) -> Tensor:
    """Shrink images by matrices, neither rounded nor clamped.

    Args:
        image: ``(N, C, H, W)``, float.
        row_matrices: For the height, ``(h, H)``, or one per image, ``(N, h, H)``.
        column_matrices: For the width, ``(w, W)`` or ``(N, w, W)``.

    Example:
        >>> image = torch.arange(16.0).view(1, 1, 4, 4)
        >>> matrix = shrink_matrix("area", 4, 2).float()
        >>> shrink(image, matrix, matrix)[0, 0]
        tensor([[ 2.5000,  4.5000],
                [10.5000, 12.5000]])
    """
    if row_matrices.ndim == 3:
        row_matrices, column_matrices = row_matrices.unsqueeze(1), column_matrices.unsqueeze(1)
    return row_matrices @ (image @ column_matrices.transpose(-2, -1))


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def shrink_matrices(
    methods: Sequence[str],
    length: int,
    scale: int,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return the matrices of several methods, ``(K, low, high)``, made once.

    A compiler takes the result as a constant; a captured graph finds it in place.

    Example:
        >>> shrink_matrices(("bicubic", "area"), 12, 2, torch.device("cpu")).shape
        torch.Size([2, 6, 12])
    """
    return _cached_matrices(tuple(methods), length, scale, device, dtype)


def shrink_matrix(method: str, length: int, scale: int) -> Tensor:
    """Return the matrix ``(length / scale, length)`` of a method, float64 on the CPU.

    Args:
        method: One of `METHODS`:

            - ``bicubic``: MATLAB's imresize: Keys' cubic with a = -0.5, widened by the scale, with
              symmetric borders. Pillow's BICUBIC is the same away from the border.
            - ``bicubic_aliased``: OpenCV's INTER_CUBIC and PyTorch's ``bicubic``: a = -0.75, four
              pixels whatever the scale.
            - ``bilinear``: Pillow's BILINEAR: a triangle widened by the scale.
            - ``bilinear_aliased``: OpenCV's INTER_LINEAR and PyTorch's ``bilinear``: two pixels
              whatever the scale.
            - ``area``: the mean of the pixels; Pillow's BOX and OpenCV's INTER_AREA.
            - ``lanczos``: Pillow's LANCZOS: three lobes, widened by the scale.
            - ``nearest``: Pillow's NEAREST: pixel ``scale // 2`` of each ``scale`` pixels. OpenCV
              and PyTorch take pixel 0 instead.
        length: Of the large side, a multiple of the scale.
        scale: How many times smaller the small side is.
    """
    if method not in METHODS:
        raise ConfigError(f"there is no way of shrinking called {method!r}; {_hint(method)}")
    if length % scale:
        raise ImageError(
            f"expected a side that is a multiple of the scale {scale}, got {length} pixels; "
            f"crop with crop_to_multiple first"
        )
    return METHODS[method](length, scale)


def filter_radius(method: str, scale: int) -> int:
    """Return how many pixels of the large image beyond its own a small pixel depends on.

    Example:
        >>> filter_radius("bicubic", 2), filter_radius("area", 4)
        (3, 0)
    """
    middle = 8
    used = shrink_matrix(method, 2 * middle * scale, scale)[middle].nonzero()
    first, last = int(used.min()), int(used.max())
    return max(0, middle * scale - first, last - (middle + 1) * scale + 1)


@lru_cache(maxsize=64)
def _cached_matrices(
    methods: tuple[str, ...], length: int, scale: int, device: torch.device, dtype: torch.dtype
) -> Tensor:
    # Cached tensors outlive the caller's inference mode.
    with torch.inference_mode(False):
        stack = torch.stack([shrink_matrix(method, length, scale) for method in methods])
        return stack.to(device, dtype)


def _hint(method: str) -> str:
    return nearest(method, list(METHODS))


def _matlab(length: int, scale: int) -> Tensor:
    unit = torch.eye(length, dtype=torch.float64)
    return resize(unit[None, None], size=(length // scale, length))[0, 0]


def _pillow(function: Callable[[Tensor], Tensor], length: int, scale: int) -> Tensor:
    """Return a kernel widened by the scale; at a border what is inside weighs the more."""
    distance = _distances(length, scale) / scale
    weight = function(distance)
    return weight / weight.sum(1, keepdim=True)


def _aliased(function: Callable[[Tensor], Tensor], length: int, scale: int) -> Tensor:
    """Return a kernel of its own width; pixels of the border are repeated."""
    pad = 2
    distance = _distances(length, scale, pad)
    source = border_index(torch.arange(-pad, length + pad), length, "replicate")
    weight = torch.zeros(length // scale, length, dtype=torch.float64)
    return weight.index_add_(1, source, function(distance))


def _nearest(length: int, scale: int) -> Tensor:
    return torch.eye(length, dtype=torch.float64)[scale // 2 :: scale]


def _distances(length: int, scale: int, pad: int = 0) -> Tensor:
    """Return how far each large pixel lies from the center of each small one."""
    center = (torch.arange(length // scale, dtype=torch.float64) + 0.5) * scale - 0.5
    return torch.arange(-pad, length + pad, dtype=torch.float64) - center[:, None]


def _box(x: Tensor) -> Tensor:
    return (x.abs() < 0.5).to(x.dtype)


def _triangle(x: Tensor) -> Tensor:
    return (1 - x.abs()).clamp(min=0)


def _lanczos(x: Tensor) -> Tensor:
    return torch.where(x.abs() < 3, torch.sinc(x) * torch.sinc(x / 3), 0)


def _sharp_cubic(x: Tensor) -> Tensor:
    x, a = x.abs(), -0.75
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return torch.where(x <= 1, near, torch.where(x < 2, far, 0))


METHODS: dict[str, Callable[[int, int], Tensor]] = {
    "bicubic": _matlab,
    "bicubic_aliased": lambda length, scale: _aliased(_sharp_cubic, length, scale),
    "bilinear": lambda length, scale: _pillow(_triangle, length, scale),
    "bilinear_aliased": lambda length, scale: _aliased(_triangle, length, scale),
    "area": lambda length, scale: _pillow(_box, length, scale),
    "lanczos": lambda length, scale: _pillow(_lanczos, length, scale),
    "nearest": _nearest,
}
"""Each way of shrinking by its name, as a function of the length and the scale."""
