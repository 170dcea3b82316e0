"""Cut prediction maps into pieces, so that a metric's memory does not grow with the image."""

from collections.abc import Iterator

import torch
from torch import Tensor

from musigma.functional.scores import check_same_shape
from musigma.types import ImageError

Maps = tuple[Tensor, Tensor, Tensor]

BLOCK_SIZE = 2**20


def images(mean: Tensor, target: Tensor, sigma: Tensor) -> Iterator[Maps]:
    """Yield ``(mean, target, sigma)`` of each image, shape ``(C, H, W)``."""
    yield from zip(*check_same_shape(mean, target, sigma), strict=True)


def blocks(mean: Tensor, target: Tensor, sigma: Tensor) -> Iterator[Maps]:
    """Yield flat float64 pieces of at most `BLOCK_SIZE` values, on the CPU, checked.

    Raises:
        ImageError: A value is not finite, or sigma is negative: no metric of it has a meaning.
    """
    pieces = (torch.split(map_.detach().flatten(), BLOCK_SIZE) for map_ in (mean, target, sigma))
    for piece in zip(*pieces, strict=True):
        mean, target, sigma = (values.to("cpu", torch.float64) for values in piece)
        if not bool(torch.isfinite((target - mean).sum() + sigma.sum())):
            raise ImageError("mean, target and sigma must be finite; found inf or NaN")
        if bool((sigma < 0).any()):
            raise ImageError(f"sigma must not be negative; its minimum is {sigma.min().item():.3g}")
        yield mean, target, sigma
