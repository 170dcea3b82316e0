"""BRDNet: a plain and a dilated stack of convolutions side by side."""

import torch
from torch import Tensor

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.denoising.dncnn import plain_stack
from musigma.networks.layers import conv3x3
from musigma.networks.registry import Variant, register_variants

DILATIONS = (1, *(2,) * 7, 1, *(2,) * 6, 1, 1)
"""Dilations of the lower stack: 17 layers; the first, ninth and last two have none."""


class BRDNet(Network):
    """Batch-renormalized denoising network, without a noise map.

    Each of two stacks predicts the noise and subtracts it from the image; a convolution of the two
    results predicts the noise that is subtracted in the end. Batch renormalization is folded into
    the convolutions. The official weights are Keras files, which cannot be read here.

    Args:
        scale: 1.
        channels: 1 for gray images, 3 for color.
        width: Channels of every layer.
    """

    def __init__(self, *, scale: int, channels: int = 3, width: int = 64) -> None:
        super().__init__()
        self.info = NetworkInfo(
            scale=scale,
            task="denoising",
            in_channels=channels,
            out_channels=channels,
            feature_channels=2 * channels,
            feature_scale=scale,
            feature_receptive_radius=sum(DILATIONS),
            receptive_radius=sum(DILATIONS) + 1,
            activation_floats_per_pixel=5 * width,
        )
        plain = (1,) * len(DILATIONS)
        self.upper = plain_stack(channels, channels, width=width, dilations=plain)
        self.lower = plain_stack(channels, channels, width=width, dilations=DILATIONS)
        self.tail = conv3x3(2 * channels, channels)

    def features(self, degraded: Tensor) -> Tensor:
        """Return the two images without the noise that each stack predicts."""
        return torch.cat([degraded - self.upper(degraded), degraded - self.lower(degraded)], dim=1)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Subtract the predicted noise from the image."""
        return degraded - self.tail(features)


register_variants(
    BRDNet,
    {
        "brdnet": Variant("For color images."),
        "brdnet-grey": Variant("For gray images.", {"channels": 1}),
    },
    scales=(1,),
    paper="Tian et al., Image Denoising Using Deep CNN with Batch Renormalization, Neural "
    "Networks 2020",
    year=2020,
)
