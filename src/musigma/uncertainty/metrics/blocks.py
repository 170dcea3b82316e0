"""Prediction maps in pieces, so that the memory of a metric does not grow with the image."""

import math
from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from musigma.functional.constants import SIGMA_FLOOR
from musigma.functional.scores import check_same_shape
from musigma.types import ImageError

Maps = tuple[Tensor, Tensor, Tensor]

BLOCK_SIZE = 2**17
"""Number of values of a piece, all channels together: 1 MiB in float64, which a cache holds.

Larger pieces take three times as long, since every step of a metric then goes through main memory.
"""


class Block:
    """A piece of an image in float64 on the CPU, and what metrics compute from it.

    What several metrics need is computed once, when the first of them asks for it.

    Attributes:
        residual: ``target - mean``, ``(C, n)``.
        sigma: ``(C, n)``, not floored.
    """

    def __init__(self, residual: Tensor, sigma: Tensor) -> None:
        self.residual, self.sigma = residual, sigma

    @cached_property
    def error(self) -> Tensor:
        """The absolute error, flat."""
        return self.residual.abs().flatten()

    @cached_property
    def floored(self) -> Tensor:
        """Sigma, at least `SIGMA_FLOOR`, flat."""
        return self.sigma.clamp_min(SIGMA_FLOOR).flatten()

    @cached_property
    def ratio(self) -> Tensor:
        """The absolute error in units of the floored sigma, flat."""
        return self.error / self.floored

    @cached_property
    def level(self) -> Tensor:
        """The smallest level whose central normal interval holds the target, flat."""
        return torch.erf(self.ratio / math.sqrt(2))

    def with_sigma(self, sigma: Tensor) -> "Block":
        """Return the same errors beside another sigma of the same shape."""
        other = Block(self.residual, sigma)
        other.error = self.error
        return other


def images(mean: Tensor, target: Tensor, sigma: Tensor) -> Iterator[Maps]:
    """Yield ``(mean, target, sigma)`` of each image, shape ``(C, H, W)``."""
    yield from zip(*check_same_shape(mean, target, sigma), strict=True)


def blocks(mean: Tensor, target: Tensor, sigma: Tensor) -> Iterator[Block]:
    """Yield the pieces of an image, ``(C, H, W)`` on any device, each copied once and checked.

    Raises:
        ImageError: A value is not finite, or sigma is negative: no metric of it has a meaning.
    """
    size = max(1, BLOCK_SIZE // len(mean))
    pieces = (torch.split(map_.detach().flatten(1), size, dim=1) for map_ in (mean, target, sigma))
    for piece in zip(*pieces, strict=True):
        block_mean, block_target, block_sigma = (map_.to("cpu", torch.float64) for map_ in piece)
        block = Block(block_target - block_mean, block_sigma)
        if not bool(torch.isfinite(block.error.sum() + block_sigma.sum())):
            raise ImageError("mean, target and sigma must be finite; they hold inf or NaN")
        if bool(block_sigma.amin() < 0):
            least = block_sigma.min().item()
            raise ImageError(f"sigma must not be negative; its minimum is {least:.3g}")
        yield block
