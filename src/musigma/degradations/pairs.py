"""Pairs of input and target: made from an image, or read from two files."""

from typing import NamedTuple

import torch
from torch import Tensor

from musigma.degradations.base import Degradation
from musigma.degradations.image import degrade_image, draw_for_image
from musigma.functional.geometry import crop_to_multiple
from musigma.types import ImageError

PAIRS = "pairs"
"""What stands in the place of a degradation's text where inputs are read from files."""


class StoredInput(Degradation):
    """Inputs that a patch bank stores beside their targets, as `stack_pair` puts them.

    Args:
        scale: Size of the target over that of the input.
    """

    def __init__(self, scale: int) -> None:
        self.scale = self.grid = scale

    def __call__(
        self,
        target: Tensor,
        draws: Tensor,  # noqa: ARG002
        generator: torch.Generator | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Return the second half of the channels, of which each value is stored as a square."""
        return target[:, target.shape[1] // 2 :, :: self.scale, :: self.scale]

    def target_of(self, stored: Tensor) -> Tensor:
        """Return the first half of the channels."""
        return stored[:, : stored.shape[1] // 2]

    def __str__(self) -> str:
        """The word for inputs that are read."""
        return PAIRS


class Pair(NamedTuple):
    """The input of a network and the target it should reproduce, ``(1, C, H, W)``."""

    degraded: Tensor
    target: Tensor


def make_pair(degradation: Degradation, image: Tensor, *, name: str | int, seed: int = 0) -> Pair:
    """Crop an image to a multiple of the scale and make the input from it.

    Args:
        degradation: How the input is made.
        image: ``(1, C, H, W)``, float in ``[0, 1]``.
        name: Name of the image, from which its random numbers follow.
        seed: Another seed gives other random numbers.

    Example:
        >>> import torch
        >>> from musigma.degradations import parse
        >>> image = torch.rand(1, 3, 37, 31)
        >>> degraded, target = make_pair(parse("bicubic", scale=4), image, name="baby")
        >>> degraded.shape, target.shape
        (torch.Size([1, 3, 9, 7]), torch.Size([1, 3, 36, 28]))
    """
    target = crop_to_multiple(image, degradation.scale)
    return Pair(degrade_image(degradation, target, name=name, seed=seed), target)


def match_pair(degraded: Tensor, target: Tensor, *, scale: int) -> Pair:
    """Return the pair of an input and a target that were read from files.

    Args:
        degraded: ``(1, C, H, W)``.
        target: ``(1, C, scale H, scale W)``, up to a rest that is cropped.
        scale: Size of the target over that of the input.
    """
    target = crop_to_multiple(target, scale)
    height, width = (side // scale for side in target.shape[-2:])
    if tuple(degraded.shape[-2:]) != (height, width):
        raise ImageError(
            f"at scale {scale} the input must have {width}x{height} pixels, got "
            f"{degraded.shape[-1]}x{degraded.shape[-2]}; give --degrade to have inputs made"
        )
    return Pair(degraded, target)


def stack_pair(pair: Pair) -> Tensor:
    """Put a pair into one image of twice the channels: the target, then the repeated input.

    Each value of the input is repeated over a square, so that both have one size and can be cut,
    turned and mirrored together.

    Example:
        >>> pair = Pair(torch.rand(1, 3, 4, 5), torch.rand(1, 3, 8, 10))
        >>> stack_pair(pair).shape
        torch.Size([1, 6, 8, 10])
    """
    scale = pair.target.shape[-1] // pair.degraded.shape[-1]
    squares = pair.degraded.repeat_interleave(scale, -1).repeat_interleave(scale, -2)
    return torch.cat([pair.target, squares], dim=1)


def noise_std_of(degradation: Degradation, *, name: str | int, seed: int = 0) -> float | None:
    """Return the level of the white noise that `make_pair` gives an image, in 8-bit levels.

    It is `None` for a degradation that is more than white noise: there is no such level.
    """
    draws, _ = draw_for_image(degradation, name=name, seed=seed)
    level = degradation.noise_level(draws)
    return None if level is None else float(level)
