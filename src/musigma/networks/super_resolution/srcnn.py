"""SRCNN: three convolutions on the bicubically enlarged image, where it all began."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from musigma.networks.base import Network
from musigma.networks.bicubic_layer import enlarge, radius_of
from musigma.networks.registry import Recognised, register
from musigma.networks.tile_exact_layers import WideConv2d


class SRCNN(Network):
    """Super-resolution convolutional network in its 9-5-5 form, on RGB.

    Args:
        scale: 2, 3 or 4.
        width: Channels of the first layer; the second has half as many.
    """

    feature_scale = 1

    def __init__(self, *, scale: int, width: int = 64) -> None:
        super().__init__()
        self.scale = scale
        self.feature_channels = width // 2
        self.feature_receptive_radius = radius_of(4 + 2, scale)
        self.receptive_radius = radius_of(4 + 2 + 2, scale)
        self.conv1 = WideConv2d(3, width, kernel_size=9)
        self.conv2 = nn.Conv2d(width, width // 2, kernel_size=5, padding=2)
        self.conv3 = nn.Conv2d(width // 2, 3, kernel_size=5, padding=2)

    def features(self, degraded: Tensor) -> Tensor:
        """Return what the last convolution sees."""
        first = torch.relu(self.conv1(enlarge(degraded, self.scale)))
        return torch.relu(self.conv2(first))

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:  # noqa: ARG002
        """Turn the features into an image."""
        return self.conv3(features)


def recognise(state: Mapping[str, Tensor]) -> Recognised | None:
    """Tell from its keys whether a state dict is an SRCNN on RGB; one file serves every scale."""
    layers = ("conv1", "conv2", "conv3")
    if state.keys() != {f"{layer}.{part}" for layer in layers for part in ("weight", "bias")}:
        return None
    width = state["conv1.weight"].shape[0]
    expected = [(width, 3, 9, 9), (width // 2, width, 5, 5), (3, width // 2, 5, 5)]
    if [tuple(state[f"{layer}.weight"].shape) for layer in layers] != expected:
        return None
    return "srcnn", None, {"width": width}


@register(
    "srcnn",
    scales=(2, 3, 4),
    paper="Dong et al., Image Super-Resolution Using Deep Convolutional Networks, TPAMI 2016",
    year=2014,
    recognise=recognise,
)
def srcnn(*, scale: int, **settings: Any) -> SRCNN:
    """64 filters of 9x9, 32 of 5x5, 3 of 5x5."""
    return SRCNN(scale=scale, **settings)
