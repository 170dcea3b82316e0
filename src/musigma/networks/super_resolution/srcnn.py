"""SRCNN: three convolutions on the bicubically enlarged image; the first network of the field."""

import torch
from torch import Tensor, nn

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.bicubic_layer import enlarge, radius_before_enlarging
from musigma.networks.registry import register
from musigma.networks.state_dict import Recognised, State, recogniser, require, shape
from musigma.networks.tile_exact_layers import WideConv2d


@recogniser
def recognise(state: State) -> Recognised:
    """Tell whether a state dict is an SRCNN on RGB; one file is for every scale."""
    layers = ("conv1", "conv2", "conv3")
    require(state.keys() == {f"{name}.{part}" for name in layers for part in ("weight", "bias")})
    width = shape(state, "conv1.weight", 4)[0]
    expected = [(width, 3, 9, 9), (width // 2, width, 5, 5), (3, width // 2, 5, 5)]
    require([shape(state, f"{name}.weight", 4) for name in layers] == expected)
    return "srcnn", None, {"width": width}


@register(
    "srcnn",
    scales=(2, 3, 4),
    summary="64 filters of 9x9, 32 of 5x5, 3 of 5x5.",
    paper="Dong et al., Image Super-Resolution Using Deep Convolutional Networks, TPAMI 2016",
    year=2014,
    recognise=recognise,
)
class SRCNN(Network):
    """Super-resolution convolutional network in its 9-5-5 form, on RGB.

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
            feature_scale=1,
            feature_receptive_radius=radius_before_enlarging(4 + 2, scale),
            receptive_radius=radius_before_enlarging(4 + 2 + 2, scale),
        )
        self.conv1 = WideConv2d(3, width, kernel_size=9)
        self.conv2 = nn.Conv2d(width, width // 2, kernel_size=5, padding=2)
        self.conv3 = nn.Conv2d(width // 2, 3, kernel_size=5, padding=2)

    def features(self, degraded: Tensor) -> Tensor:
        """Return the input of the last convolution."""
        first = torch.relu(self.conv1(enlarge(degraded, self.scale)))
        return torch.relu(self.conv2(first))

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:  # noqa: ARG002
        """Turn the features into an image."""
        return self.conv3(features)
