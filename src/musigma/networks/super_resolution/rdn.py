"""RDN: residual dense blocks, all of which the last layers see."""

from collections.abc import Mapping
from math import isqrt
from typing import Any

import torch
from torch import Tensor, nn

from musigma.networks.base import Network, conv3x3
from musigma.networks.registry import Recognised, register


class DenseLayer(nn.Module):
    """Conv and ReLU, put behind the input as further channels."""

    def __init__(self, in_channels: int, growth: int) -> None:
        super().__init__()
        self.conv = nn.Sequential(conv3x3(in_channels, growth), nn.ReLU())

    def forward(self, features: Tensor) -> Tensor:
        """Add channels."""
        return torch.cat([features, self.conv(features)], dim=1)


class DenseBlock(nn.Module):
    """Dense layers, fused by a 1x1 convolution and added to the input."""

    def __init__(self, width: int, growth: int, num_layers: int) -> None:
        super().__init__()
        layers = (DenseLayer(width + index * growth, growth) for index in range(num_layers))
        self.convs = nn.Sequential(*layers)
        self.LFF = nn.Conv2d(width + num_layers * growth, width, kernel_size=1)

    def forward(self, features: Tensor) -> Tensor:
        """Refine the features."""
        return features + self.LFF(self.convs(features))


def upsampler(width: int, growth: int, channels: int, scale: int) -> nn.Sequential:
    """Convolutions and pixel shuffles that end in an image; at scale 1 one convolution."""
    layers: list[nn.Module] = []
    for step in {1: (), 2: (2,), 3: (3,), 4: (2, 2)}[scale]:
        layers += [conv3x3(width, growth * step**2), nn.PixelShuffle(step)]
        width = growth
    return nn.Sequential(*layers, conv3x3(width, channels))


class RDN(Network):
    """Residual dense network; names are those of the PyTorch form that its authors link to.

    For denoising it has no upsampler and adds what it predicts to the image.

    Args:
        scale: 1 to denoise; 2, 3 or 4.
        channels: 1 for grey images, 3 for colour.
        num_blocks: Dense blocks.
        num_layers: Layers of each block.
        width: Channels between blocks.
        growth: Channels that a layer adds.
        value_range: Range the layers work in. Released weights expect 255.
    """

    def __init__(
        self,
        *,
        scale: int,
        channels: int = 3,
        num_blocks: int = 16,
        num_layers: int = 8,
        width: int = 64,
        growth: int = 64,
        value_range: float = 1.0,
    ) -> None:
        super().__init__()
        self.scale = self.feature_scale = scale
        self.in_channels = self.out_channels = channels
        self.feature_channels = width
        # What all blocks give, by itself and joined.
        self.activation_floats_per_pixel = (2 * num_blocks + 6) * width
        self.feature_receptive_radius = 3 + num_blocks * num_layers
        # As in EDSR, the convolutions that enlarge see two pixels together; without them one.
        self.receptive_radius = self.feature_receptive_radius + (1 if scale == 1 else 2)
        self.value_range = value_range
        self.SFENet1 = conv3x3(channels, width)
        self.SFENet2 = conv3x3(width, width)
        self.RDBs = nn.ModuleList(DenseBlock(width, growth, num_layers) for _ in range(num_blocks))
        fuse = nn.Conv2d(num_blocks * width, width, kernel_size=1)
        self.GFF = nn.Sequential(fuse, conv3x3(width, width))
        self.UPNet = upsampler(width, growth, channels, scale)

    def features(self, degraded: Tensor) -> Tensor:
        """Return the sum of the first features and those made of all blocks."""
        first = self.SFENet1(degraded * self.value_range)
        features = self.SFENet2(first)
        blocks = []
        for block in self.RDBs:
            features = block(features)
            blocks.append(features)
        return first + self.GFF(torch.cat(blocks, dim=1))

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Turn the features into an image, or into what the noise took from it."""
        image = self.UPNet(features) / self.value_range
        return degraded + image if self.scale == 1 else image


def recognise(state: Mapping[str, Tensor]) -> Recognised | None:
    """Tell from its keys whether a state dict is an RDN; released ones work in 0..255."""
    dense = "RDBs.0.convs.0.conv.0.weight"
    if not {"SFENet1.weight", dense, "GFF.0.weight", "UPNet.0.weight"} <= state.keys():
        return None
    growth, width = state[dense].shape[:2]
    upsamplers = [key for key in state if key.startswith("UPNet.") and key.endswith(".weight")]
    channels = state[upsamplers[-1]].shape[0]
    settings: dict[str, Any] = {
        "num_blocks": state["GFF.0.weight"].shape[1] // width,
        "num_layers": sum(key.startswith("RDBs.0.convs.") for key in state) // 2,
        "width": width,
        "growth": growth,
        "value_range": 255.0,
    }
    if len(upsamplers) == 1:
        return "rdn-denoise" if channels == 3 else "rdn-denoise-grey", 1, settings
    step = isqrt(state["UPNet.0.weight"].shape[0] // growth)
    return "rdn", step ** (len(upsamplers) - 1), settings


@register(
    "rdn",
    scales=(2, 3, 4),
    paper="Zhang et al., Residual Dense Network for Image Super-Resolution, CVPR 2018",
    year=2018,
    recognise=recognise,
)
def rdn(*, scale: int, **settings: Any) -> RDN:
    """16 blocks of 8 layers of 64 channels."""
    return RDN(scale=scale, **settings)


FACTS: dict[str, Any] = {
    "scales": (1,),
    "paper": "Zhang et al., Residual Dense Network for Image Restoration, TPAMI 2021",
    "year": 2021,
}


@register("rdn-denoise", **FACTS)
def rdn_denoise(*, scale: int, **settings: Any) -> RDN:
    """For colour images; the same blocks without an upsampler."""
    return RDN(scale=scale, **settings)


@register("rdn-denoise-grey", **FACTS)
def rdn_denoise_grey(*, scale: int, **settings: Any) -> RDN:
    """For grey images."""
    return RDN(scale=scale, **{"channels": 1, **settings})
