"""ESPCN: three convolutions on the small image and the first pixel shuffle."""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from musigma.networks.base import Network, conv3x3
from musigma.networks.registry import Recognised, register


class ESPCN(Network):
    """Efficient sub-pixel convolutional network, on RGB.

    Args:
        scale: 2, 3 or 4.
        width: Channels of the first layer; the second has half as many.
    """

    feature_receptive_radius = 3
    receptive_radius = 4

    def __init__(self, *, scale: int, width: int = 64) -> None:
        super().__init__()
        self.scale = self.feature_scale = scale
        self.feature_channels = width // 2
        self.first_part = nn.Sequential(
            nn.Conv2d(3, width, kernel_size=5, padding=2),
            nn.Tanh(),
            conv3x3(width, width // 2),
            nn.Tanh(),
        )
        self.last_part = nn.Sequential(conv3x3(width // 2, 3 * scale**2), nn.PixelShuffle(scale))

    def features(self, degraded: Tensor) -> Tensor:
        """Return what the last convolution sees."""
        return self.first_part(degraded)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:  # noqa: ARG002
        """Turn the features into the sub-pixels of the image."""
        return self.last_part(features)


def recognise(state: Mapping[str, Tensor]) -> Recognised | None:
    """Tell from its keys whether a state dict is an ESPCN on RGB."""
    if not {"first_part.0.weight", "first_part.2.weight", "last_part.0.weight"} <= state.keys():
        return None
    width, channels = state["first_part.0.weight"].shape[:2]
    if channels != 3:
        return None
    scale = math.isqrt(state["last_part.0.weight"].shape[0] // 3)
    return "espcn", scale, {"width": width}


@register(
    "espcn",
    scales=(2, 3, 4),
    paper="Shi et al., Real-Time Single Image and Video Super-Resolution Using an Efficient "
    "Sub-Pixel Convolutional Neural Network, CVPR 2016",
    year=2016,
    recognise=recognise,
)
def espcn(*, scale: int, **settings: Any) -> ESPCN:
    """64 filters of 5x5, 32 of 3x3, then the sub-pixels."""
    return ESPCN(scale=scale, **settings)
