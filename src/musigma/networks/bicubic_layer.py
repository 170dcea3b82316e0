"""Bicubic enlargement by a whole factor, for networks that work on the enlarged image.

The weights depend on the factor alone, so that this form of `musigma.functional.resize` compiles
and exports with any image size; it uses no convolution, so that it adds nothing to the MACs.
"""

import torch
from torch import Tensor

REACH = 2
"""Input pixels on either side of the nearest one that the kernel can see."""


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


def enlarge_8_bit(image: Tensor, scale: int) -> Tensor:
    """Return ``bicubic_up(image, scale)``, with gradients as if nothing had been rounded.

    Like MATLAB on 8-bit images it rounds before, between and after the two passes.
    """
    levels = _round(_widen(image) * 255).double()
    for dim in (2, 3):
        levels = _round(_enlarge_axis(levels, dim, scale))
    return (levels / 255).to(image.dtype)


def radius_of(reach: int, scale: int) -> int:
    """Radius in input pixels of layers that see `reach` pixels far in the enlarged image.

    Example:
        >>> [radius_of(0, scale) for scale in (1, 2, 3, 4)]
        [0, 2, 2, 2]
    """
    if scale == 1:
        return reach
    # The last of `scale` sub-pixels sees furthest; the later half of them leans on the next pixel.
    return 1 + (scale - 1 + reach + scale // 2) // scale


def _widen(image: Tensor) -> Tensor:
    return image.to(torch.promote_types(image.dtype, torch.float32))


def _enlarge_axis(image: Tensor, dim: int, scale: int) -> Tensor:
    padded = _pad_symmetric(image, dim)
    shifted = [padded.narrow(dim, index, image.shape[dim]) for index in range(2 * REACH + 1)]
    phases = []
    for phase in range(scale):
        centre = (phase + 0.5) / scale - 0.5 + REACH
        total = shifted[REACH] * _cubic(abs(centre - REACH))
        for index in range(2 * REACH + 1):
            weight = _cubic(abs(centre - index))
            if index != REACH and weight:
                total = torch.add(total, shifted[index], alpha=weight)
        phases.append(total)
    return torch.stack(phases, dim + 1).flatten(dim, dim + 1)


def _pad_symmetric(image: Tensor, dim: int) -> Tensor:
    # Two pixels on either side, in operations that export and compile: PyTorch 2.11 cannot compile
    # parts of a replicating pad. A slice takes what there is: one pixel is its own neighbour.
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


def _round(levels: Tensor) -> Tensor:
    rounded = (levels.detach() + 0.5).floor().clamp(0, 255)
    return rounded + (levels - levels.detach())
