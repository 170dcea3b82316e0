"""SRCNN: three convolutions on the bicubically enlarged image; the first network of the field."""

import torch
from torch import Tensor, nn

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.bicubic_layer import enlarge, radius_before_enlarging
from musigma.networks.registry import Variant, register_variants
from musigma.networks.state_dict import Recognised, State, recogniser, rename, require, shape
from musigma.networks.super_resolution.on_luma import OnLuma
from musigma.networks.tile_exact_layers import WideConv2d

OTHER_NAMES = {"features.0": "conv1", "map.0": "conv2", "reconstruction": "conv3"}
"""Names of the layers in Lornatang/SRCNN-PyTorch."""


class SRCNN(Network):
    """Super-resolution convolutional network, by default in its 9-5-5 form on RGB.

    Args:
        scale: 2, 3 or 4.
        width: Channels of the first layer.
        width2: Channels of the second layer; by default half as many.
        kernel_size2: Side of the kernels of the second layer: 1, 3 or 5.
        channels: Channels of the image.
    """

    def __init__(
        self,
        *,
        scale: int,
        width: int = 64,
        width2: int | None = None,
        kernel_size2: int = 5,
        channels: int = 3,
    ) -> None:
        super().__init__()
        width2 = width // 2 if width2 is None else width2
        radius = 4 + kernel_size2 // 2
        self.info = NetworkInfo(
            scale=scale,
            task="super-resolution",
            in_channels=channels,
            out_channels=channels,
            feature_channels=width2,
            feature_scale=1,
            feature_receptive_radius=radius_before_enlarging(radius, scale),
            receptive_radius=radius_before_enlarging(radius + 2, scale),
        )
        self.conv1 = WideConv2d(channels, width, kernel_size=9)
        self.conv2 = nn.Conv2d(width, width2, kernel_size=kernel_size2, padding=kernel_size2 // 2)
        self.conv3 = nn.Conv2d(width2, channels, kernel_size=5, padding=2)

    def features(self, degraded: Tensor) -> Tensor:
        """Return the input of the last convolution."""
        first = torch.relu(self.conv1(enlarge(degraded, self.scale)))
        return torch.relu(self.conv2(first))

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:  # noqa: ARG002
        """Turn the features into an image."""
        return self.conv3(features)


class SRCNNY(OnLuma, SRCNN):
    """SRCNN as published: it restores the luma, the chroma stays bicubic.

    Args:
        scale: 2, 3 or 4; a released file is for one of them, but does not say for which.
        width: Channels of the first layer.
        width2: Channels of the second layer; by default half as many.
        kernel_size2: Side of the kernels of the second layer: 1, 3 or 5.
    """

    def __init__(
        self, *, scale: int, width: int = 64, width2: int | None = None, kernel_size2: int = 5
    ) -> None:
        super().__init__(
            scale=scale, width=width, width2=width2, kernel_size2=kernel_size2, channels=1
        )
        self._take_rgb()


def adapt(state: State) -> dict[str, Tensor]:
    """Give the layers our names."""
    return rename(state, OTHER_NAMES)


@recogniser
def recognise(state: State) -> Recognised:
    """Tell whether a state dict is an SRCNN on RGB or luma; it does not tell the scale."""
    state = adapt(state)
    layers = ("conv1", "conv2", "conv3")
    require(state.keys() == {f"{name}.{part}" for name in layers for part in ("weight", "bias")})
    width, channels = shape(state, "conv1.weight", 4)[:2]
    width2, kernel_size2 = shape(state, "conv2.weight", 4)[::2]
    require(channels in (1, 3) and kernel_size2 in (1, 3, 5))
    expected = [
        (width, channels, 9, 9),
        (width2, width, kernel_size2, kernel_size2),
        (channels, width2, 5, 5),
    ]
    require([shape(state, f"{name}.weight", 4) for name in layers] == expected)
    settings = {"width": width}
    if width2 != width // 2:
        settings["width2"] = width2
    if kernel_size2 != 5:
        settings["kernel_size2"] = kernel_size2
    return "srcnn" if channels == 3 else "srcnn-y", None, settings


for network, name, text in (
    (SRCNN, "srcnn", "64 filters of 9x9, 32 of 5x5, 3 of 5x5."),
    (SRCNNY, "srcnn-y", "64 filters of 9x9, 32 of 5x5, 1 of 5x5, on luma."),
):
    register_variants(
        network,
        {name: Variant(text)},
        scales=(2, 3, 4),
        paper="Dong et al., Image Super-Resolution Using Deep Convolutional Networks, TPAMI 2016",
        year=2014,
        recognise=recognise,
        adapt=adapt,
    )
