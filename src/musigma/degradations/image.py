"""Degrading whole images for measurements: the same input for an image, whoever asks and when."""

import torch
from torch import Tensor

from musigma.degradations.base import Degradation
from musigma.functional.noise import image_generator


def degrade_image(
    degradation: Degradation, image: Tensor, *, name: str | int, seed: int = 0
) -> Tensor:
    """Make the input of an image; its random numbers follow from its name and the seed alone.

    They are drawn on the CPU, so that an image gets the same parameters and the same noise in any
    order of images and on any device.

    Args:
        degradation: What to do.
        image: ``(1, C, H, W)``, float in ``[0, 1]``; both sides are multiples of the scale.
        name: Of the image.
        seed: Another seed gives other parameters and other noise.

    Example:
        >>> from musigma.degradations import parse
        >>> image, degradation = torch.rand(1, 3, 32, 48), parse("noise(5) | jpeg(30..95)", scale=2)
        >>> first, again = (degrade_image(degradation, image, name="baby") for _ in range(2))
        >>> torch.equal(first, again), first.shape
        (True, torch.Size([1, 3, 16, 24]))
    """
    draws, generator = draw_for_image(degradation, name=name, seed=seed)
    return degradation(image, draws.to(image.device), generator)


def draw_for_image(
    degradation: Degradation, *, name: str | int, seed: int
) -> tuple[Tensor, torch.Generator]:
    """Return the draws of one image, ``(1, num_draws)``, and the generator of its noise."""
    generator = image_generator(name, seed)
    return torch.rand(1, degradation.num_draws, generator=generator), generator
