"""BRDNet: a plain and a dilated stack of convolutions side by side."""

from typing import Any

import torch
from torch import Tensor

from musigma.networks.base import Network, conv3x3
from musigma.networks.denoising.dncnn import plain_stack
from musigma.networks.registry import register

DILATIONS = (1, *(2,) * 7, 1, *(2,) * 6, 1, 1)
"""Of the lower stack: 17 layers, the first, ninth, sixteenth and last without dilation."""


class BRDNet(Network):
    """Batch-renormalised denoising network, without a noise map.

    Each of two stacks predicts the noise; a convolution of the two images without it predicts what
    is still to be taken from the input. Batch renormalisation is folded into the convolutions. The
    official weights are Keras files, which are not read here.

    Args:
        scale: 1.
        channels: 1 for grey images, 3 for colour.
        width: Channels of every layer.
    """

    def __init__(self, *, scale: int, channels: int = 3, width: int = 64) -> None:
        super().__init__()
        self.scale = self.feature_scale = scale
        self.in_channels = self.out_channels = channels
        self.feature_channels = 2 * channels
        self.activation_floats_per_pixel = 5 * width
        self.feature_receptive_radius = sum(DILATIONS)
        self.receptive_radius = self.feature_receptive_radius + 1
        plain = (1,) * len(DILATIONS)
        self.upper = plain_stack(channels, channels, width=width, dilations=plain)
        self.lower = plain_stack(channels, channels, width=width, dilations=DILATIONS)
        self.tail = conv3x3(2 * channels, channels)

    def features(self, degraded: Tensor) -> Tensor:
        """Return the two images without the noise that each stack predicts."""
        return torch.cat([degraded - self.upper(degraded), degraded - self.lower(degraded)], dim=1)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Take the predicted rest away from the image."""
        return degraded - self.tail(features)


FACTS: dict[str, Any] = {
    "scales": (1,),
    "paper": "Tian et al., Image Denoising Using Deep CNN with Batch Renormalization, Neural "
    "Networks 2020",
    "year": 2020,
}


@register("brdnet", **FACTS)
def brdnet(*, scale: int, **settings: Any) -> BRDNet:
    """For colour images."""
    return BRDNet(scale=scale, **settings)


@register("brdnet-grey", **FACTS)
def brdnet_grey(*, scale: int, **settings: Any) -> BRDNet:
    """For grey images."""
    return BRDNet(scale=scale, **{"channels": 1, **settings})
