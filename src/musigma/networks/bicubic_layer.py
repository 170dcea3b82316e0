"""Bicubic enlargement by a whole factor, for networks that work on the enlarged image.

The weights depend on the factor alone. So, unlike `musigma.functional.resize`, this function can be
compiled and exported for any image size. It uses no convolution and adds nothing to the MACs.
"""

import torch
from torch import Tensor

KERNEL_RADIUS = 2
"""Input pixels on either side of the nearest one that the kernel covers."""


def enlarge(image: Tensor, scale: int) -> Tensor:
    """Return ``resize(image, scale=scale)`` of a float image, up to rounding errors.

    A factor of 1 returns the image itself.

    Example:
        >>> enlarge(torch.rand(1, 3, 37, 31), 2).shape
        torch.Size([1, 3, 74, 62])
    """
    if scale == 1:
        return image
    work = _widen(image)
    for dim in (2, 3):
        work = _enlarge_axis(work, dim, scale)
    return work.to(image.dtype)


def radius_before_enlarging(radius: int, scale: int) -> int:
    """Convert a receptive radius in the enlarged image to one in the input image.

    Example:
        >>> [radius_before_enlarging(0, scale) for scale in (1, 2, 3, 4)]
        [0, 2, 2, 2]
    """
    if scale == 1:
        return radius
    # Of the `scale` sub-pixels of a pixel the last sees furthest. The second half of the sub-pixels
    # lies nearer to the next pixel, so that their kernels reach one pixel further.
    return 1 + (scale - 1 + radius + scale // 2) // scale


def _widen(image: Tensor) -> Tensor:
    return image.to(torch.promote_types(image.dtype, torch.float32))


def _enlarge_axis(image: Tensor, dim: int, scale: int) -> Tensor:
    padded = _pad_symmetric(image, dim)
    shifted = [
        padded.narrow(dim, index, image.shape[dim]) for index in range(2 * KERNEL_RADIUS + 1)
    ]
    phases = []
    for phase in range(scale):
        center = (phase + 0.5) / scale - 0.5 + KERNEL_RADIUS
        total = shifted[KERNEL_RADIUS] * _cubic(abs(center - KERNEL_RADIUS))
        for index in range(2 * KERNEL_RADIUS + 1):
            weight = _cubic(abs(center - index))
            if index != KERNEL_RADIUS and weight:
                total = torch.add(total, shifted[index], alpha=weight)
        phases.append(total)
    return torch.stack(phases, dim + 1).flatten(dim, dim + 1)


def _pad_symmetric(image: Tensor, dim: int) -> Tensor:
    # Two pixels on either side, in operations that can be exported and compiled: PyTorch 2.11
    # cannot compile parts of a replicating pad. A slice of one pixel is that pixel.
    before = (slice(None),) * dim
    head, tail = image[(*before, slice(2))], image[(*before, slice(-2, None))]
    first, last = head[(*before, slice(1))], tail[(*before, slice(-1, None))]
    second, last_but_one = head[(*before, slice(-1, None))], tail[(*before, slice(1))]
    return torch.cat((second, first, image, last, last_but_one), dim)


def _cubic(distance: float) -> float:
    if distance <= 1:
        return (1.5 * distance - 2.5) * distance**2 + 1
    if distance <= 2:
        return ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
    return 0.0
