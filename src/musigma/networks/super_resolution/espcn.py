"""ESPCN: three convolutions on the small image and the first pixel shuffle."""

from torch import Tensor, nn

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.layers import conv3x3
from musigma.networks.registry import register
from musigma.networks.state_dict import (
    Recognised,
    State,
    pixel_shuffle_factor,
    recogniser,
    require,
    shape,
)


@recogniser
def recognise(state: State) -> Recognised:
    """Tell whether a state dict is an ESPCN on RGB."""
    width, channels = shape(state, "first_part.0.weight", 4)[:2]
    require(channels == 3)
    shape(state, "first_part.2.weight", 4)
    scale = pixel_shuffle_factor(shape(state, "last_part.0.weight", 4)[0], 3)
    return "espcn", scale, {"width": width}


@register(
    "espcn",
    scales=(2, 3, 4),
    summary="64 filters of 5x5, 32 of 3x3, then the sub-pixels.",
    paper="Shi et al., Real-Time Single Image and Video Super-Resolution Using an Efficient "
    "Sub-Pixel Convolutional Neural Network, CVPR 2016",
    year=2016,
    recognise=recognise,
)
class ESPCN(Network):
    """Efficient sub-pixel convolutional network, on RGB.

    Args:
        scale: 2, 3 or 4.
        width: Channels of the first layer; the second has half as many.
    """

    def __init__(self, *, scale: int, width: int = 64) -> None:
        super().__init__()
        self.info = NetworkInfo(
            scale=scale,
            task="super-resolution",
            feature_channels=width // 2,
            feature_scale=scale,
            feature_receptive_radius=3,
            receptive_radius=4,
        )
        self.first_part = nn.Sequential(
            nn.Conv2d(3, width, kernel_size=5, padding=2),
            nn.Tanh(),
            conv3x3(width, width // 2),
            nn.Tanh(),
        )
        self.last_part = nn.Sequential(conv3x3(width // 2, 3 * scale**2), nn.PixelShuffle(scale))

    def features(self, degraded: Tensor) -> Tensor:
        """Return the input of the last convolution."""
        return self.first_part(degraded)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:  # noqa: ARG002
        """Turn the features into the sub-pixels of the image."""
        return self.last_part(features)
