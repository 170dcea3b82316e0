"""ESPCN: three convolutions on the small image and the first pixel shuffle."""

from torch import Tensor, nn

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.layers import conv3x3
from musigma.networks.registry import Variant, register_variants
from musigma.networks.state_dict import (
    Recognised,
    State,
    pixel_shuffle_factor,
    recogniser,
    rename,
    require,
    shape,
)
from musigma.networks.super_resolution.on_luma import OnLuma

OTHER_NAMES = {
    "feature_maps.0": "first_part.0",
    "feature_maps.2": "first_part.2",
    "sub_pixel.0": "last_part.0",
}
"""Names of the layers in Lornatang/ESPCN-PyTorch."""


class ESPCN(Network):
    """Efficient sub-pixel convolutional network, by default on RGB.

    Args:
        scale: 2, 3 or 4.
        width: Channels of the first layer; the second has half as many.
        channels: Channels of the image.
    """

    def __init__(self, *, scale: int, width: int = 64, channels: int = 3) -> None:
        super().__init__()
        self.info = NetworkInfo(
            scale=scale,
            task="super-resolution",
            in_channels=channels,
            out_channels=channels,
            feature_channels=width // 2,
            feature_scale=scale,
            feature_receptive_radius=3,
            receptive_radius=4,
        )
        self.first_part = nn.Sequential(
            nn.Conv2d(channels, width, kernel_size=5, padding=2),
            nn.Tanh(),
            conv3x3(width, width // 2),
            nn.Tanh(),
        )
        self.last_part = nn.Sequential(
            conv3x3(width // 2, channels * scale**2), nn.PixelShuffle(scale)
        )

    def features(self, degraded: Tensor) -> Tensor:
        """Return the input of the last convolution."""
        return self.first_part(degraded)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:  # noqa: ARG002
        """Turn the features into the sub-pixels of the image."""
        return self.last_part(features)


class ESPCNY(OnLuma, ESPCN):
    """ESPCN as published: it restores the luma, the chroma stays bicubic.

    Args:
        scale: 2, 3 or 4.
        width: Channels of the first layer; the second has half as many.
    """

    def __init__(self, *, scale: int, width: int = 64) -> None:
        super().__init__(scale=scale, width=width, channels=1)
        self._take_rgb()


def adapt(state: State) -> dict[str, Tensor]:
    """Give the layers our names."""
    return rename(state, OTHER_NAMES)


@recogniser
def recognise(state: State) -> Recognised:
    """Tell whether a state dict is an ESPCN on RGB or luma."""
    state = adapt(state)
    width, channels, *kernel = shape(state, "first_part.0.weight", 4)
    require(channels in (1, 3) and kernel == [5, 5])
    require(shape(state, "first_part.2.weight", 4)[:2] == (width // 2, width))
    scale = pixel_shuffle_factor(shape(state, "last_part.0.weight", 4)[0], channels)
    return "espcn" if channels == 3 else "espcn-y", scale, {"width": width}


for network, name, text in (
    (ESPCN, "espcn", "64 filters of 5x5, 32 of 3x3, then the sub-pixels."),
    (ESPCNY, "espcn-y", "64 filters of 5x5, 32 of 3x3, then the sub-pixels, on luma."),
):
    register_variants(
        network,
        {name: Variant(text)},
        scales=(2, 3, 4),
        paper="Shi et al., Real-Time Single Image and Video Super-Resolution Using an Efficient "
        "Sub-Pixel Convolutional Neural Network, CVPR 2016",
        year=2016,
        recognise=recognise,
        adapt=adapt,
    )
