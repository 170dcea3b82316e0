"""Training on noisy pictures alone: the network tells hidden pixels by their neighbors.

Some pixels of a noisy picture are replaced by others nearby, and the loss counts at these pixels
alone, with the noisy picture as the target (Krull et al., Noise2Void, CVPR 2019). Noise that is
independent from pixel to pixel cannot be told from neighbors; so the network learns the mean,
whatever the law of the noise is. That needs a loss whose best answer is the mean, such as l2.
"""

import torch
from torch import Tensor

from musigma.degradations.base import Degradation, TrainingPair

BLIND_SPOTS = "blind_spots"
"""What stands in the place of a degradation's text for training on noisy pictures alone."""

SHARE = 0.06
"""Of the pixels that are hidden."""

RADIUS = 2
"""How far away the pixel may lie that takes the place of a hidden one."""


class BlindSpots(Degradation):
    """Hides pixels of noisy pictures.

    Example:
        >>> noisy = torch.rand(1, 1, 64, 64)
        >>> degraded, target, counted = BlindSpots().training_pair(noisy, torch.zeros(1, 0))
        >>> torch.equal(degraded[counted == 0], target[counted == 0])
        True
        >>> 0.03 < counted.mean() < 0.1
        tensor(True)
    """

    filter_radius = RADIUS

    def __call__(
        self,
        target: Tensor,
        draws: Tensor,  # noqa: ARG002
        generator: torch.Generator | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Return pictures as they are: when it is used, the network sees every pixel."""
        return target

    def training_pair(self, stored: Tensor, draws: Tensor) -> TrainingPair:  # noqa: ARG002
        """Replace some pixels by neighbors, and count the loss there."""
        hidden = torch.rand_like(stored) < SHARE
        degraded = torch.where(hidden, _neighbors(stored), stored)
        return TrainingPair(degraded, stored, hidden.to(stored.dtype))

    def __str__(self) -> str:
        """The word for noisy pictures without targets."""
        return BLIND_SPOTS


def _neighbors(image: Tensor) -> Tensor:
    """Return for each pixel another one nearby, chosen at random; borders are continued."""
    height, width = image.shape[-2:]
    side = 2 * RADIUS + 1
    # All places of the square but the middle one, which is left out.
    place = torch.randint(side**2 - 1, image.shape, device=image.device)
    middle = side**2 // 2
    place = torch.where(place >= middle, place + 1, place)
    down = torch.arange(height, device=image.device).view(-1, 1) + place // side - RADIUS
    right = torch.arange(width, device=image.device) + place % side - RADIUS
    index = down.clamp(0, height - 1) * width + right.clamp(0, width - 1)
    return image.flatten(2).gather(2, index.flatten(2)).view_as(image)
