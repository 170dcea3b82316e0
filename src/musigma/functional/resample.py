"""Shrinking by any factor and enlarging again, as programs do it that change the size of a file."""

import math

import torch
from torch import Tensor


def resample(image: Tensor, *, share: Tensor, support: Tensor, most: float = 1) -> Tensor:
    """Shrink images to a share of their sides and enlarge them to the sides that they had.

    Both are done by the same kernel, as Pillow does it: widened by the factor where an image is
    shrunk, and cut off at its borders. Nothing is rounded in between.

    Args:
        image: ``(N, C, H, W)``, float.
        share: Of each side that is left in between, above 0 and at most 1, ``(N,)``.
        support: Reach of the kernel, ``(N,)``: 1 for a triangle (Pillow's BILINEAR), 2 for Keys'
            cubic with a = -0.5 (BICUBIC).
        most: The largest share that occurs.

    Example:
        >>> line = torch.tensor([0.0, 0, 0, 0, 1, 1, 1, 1]).view(1, 1, 1, 8)
        >>> half, triangle = torch.tensor([0.5]), torch.tensor([1.0])
        >>> resample(line, share=half, support=triangle)[0, 0, 0].mul(32).tolist()
        [0.0, 1.0, 3.0, 10.0, 22.0, 29.0, 31.0, 32.0]
    """
    rows, columns = (
        _matrices(side, share.to(image), support.to(image), most).unsqueeze(1)
        for side in image.shape[-2:]
    )
    return rows @ (image @ columns.transpose(-2, -1))


def _matrices(length: int, share: Tensor, support: Tensor, most: float) -> Tensor:
    """Return ``(N, length, length)``: what becomes of a side, for each image."""
    small = (length * share).round().clamp(min=1).view(-1, 1, 1)
    per_pixel = small / length
    large_centers = torch.arange(length, device=share.device, dtype=share.dtype) + 0.5
    small_centers = large_centers[: max(1, math.ceil(length * most))]
    width = support.view(-1, 1, 1)
    down = _kernel(large_centers * per_pixel - small_centers[:, None], width)
    up = _kernel(small_centers - large_centers[:, None] * per_pixel, width) * (
        small_centers < small
    )
    return _with_unit_sums(up) @ _with_unit_sums(down)


def _with_unit_sums(weights: Tensor) -> Tensor:
    # Rows of pixels that lie beyond the small image have no weights, and are not used.
    return weights / weights.sum(-1, keepdim=True).clamp(min=1e-6)


def _kernel(distance: Tensor, support: Tensor) -> Tensor:
    x = distance.abs()
    triangle = (1 - x).clamp(min=0)
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    cubic = torch.where(x <= 1, near, torch.where(x < 2, far, 0))
    return torch.where(support < 2, triangle, cubic)
