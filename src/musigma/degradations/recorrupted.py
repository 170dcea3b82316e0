"""Training on noisy pictures alone: two pictures with independent noise are made from one.

From a picture ``y`` with noise of the variance ``v`` follow ``y + a n`` and ``y - n / a``, where
``n`` is drawn with the same variance. Both show the same scene, and for normal noise their errors
are independent, so that a network that turns the one into the other learns to denoise, as by
Noise2Noise (Pang et al., Recorrupted-to-Recorrupted, CVPR 2021). The variance is that of the model
of Poisson-Gaussian noise, estimated from each picture.
"""

import torch
from torch import Tensor

from musigma.degradations.pairs import StoredInput
from musigma.functional.blur import blur, gaussian_kernels
from musigma.functional.poisson_gaussian import estimate_poisson_gaussian

RECORRUPTED = "recorrupted"
"""What stands in the place of a degradation's text for training on noisy pictures alone."""

STRENGTH = 0.5
"""The ``a`` above: inputs have a quarter more variance than the pictures, targets five times it."""

STEPS_PER_LEVEL = 4
"""Standard deviations are stored in bytes, in steps of a quarter of an 8-bit level."""

_SMOOTHING = 1.5  # standard deviation in pixels: the signal is read from neighbours


class Recorrupted(StoredInput):
    """Makes pairs from noisy pictures, which are stored with the deviation of their noise.

    Args:
        strength: How much noise the input gets; the less, the more the target gets.

    Example:
        >>> stored = stack_noise_std(torch.randint(90, 110, (1, 96, 96), dtype=torch.uint8))
        >>> stored.shape
        torch.Size([2, 96, 96])
        >>> degraded, target = Recorrupted().training_pair(stored[None] / 255, torch.zeros(1, 0))
        >>> degraded.std() < target.std()
        tensor(True)
    """

    def __init__(self, strength: float = STRENGTH) -> None:
        super().__init__(scale=1)
        self.strength = strength

    def training_pair(self, stored: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Add noise to the picture, and the opposite noise for the target."""
        noisy, std = stored.chunk(2, dim=1)
        noise = torch.randn_like(noisy) * std / STEPS_PER_LEVEL
        return noisy + self.strength * noise, noisy - noise / self.strength

    def __str__(self) -> str:
        """The word for noisy pictures without targets."""
        return RECORRUPTED


def stack_noise_std(image: Tensor) -> Tensor:
    """Return a uint8 picture ``(C, H, W)`` with the deviation of its noise in C more channels.

    Raises:
        ImageError: If the picture is too small to estimate its noise.
    """
    values = image[None].float() / 255
    kernels = gaussian_kernels(torch.tensor([_SMOOTHING]), radius=round(3 * _SMOOTHING))
    variance = estimate_poisson_gaussian(values).variance(blur(values, kernels))
    std = (variance.sqrt()[0] * 255 * STEPS_PER_LEVEL).round().clamp(0, 255)
    return torch.cat([image, std.to(torch.uint8)])
