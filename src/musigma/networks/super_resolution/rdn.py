"""RDN: residual dense blocks; the last layers see the results of all of them."""

import torch
from torch import Tensor, nn

from musigma.networks.base import Network, NetworkInfo, Settings
from musigma.networks.layers import conv3x3, enlarging_steps, upsampler_radius
from musigma.networks.registry import Variant, register_variants
from musigma.networks.state_dict import (
    RELEASED_RANGE,
    Recognised,
    State,
    count,
    pixel_shuffle_factor,
    quotient,
    recogniser,
    require,
    shape,
)


class DenseLayer(nn.Module):
    """Conv and ReLU, concatenated to the input as further channels."""

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
    """Convolutions and pixel shuffles that end in an image; at scale 1 a single convolution."""
    layers: list[nn.Module] = []
    for step in enlarging_steps(scale):
        layers += [conv3x3(width, growth * step**2), nn.PixelShuffle(step)]
        width = growth
    return nn.Sequential(*layers, conv3x3(width, channels))


class RDN(Network):
    """Residual dense network; names are those of the PyTorch form that its authors link to.

    For denoising it has no upsampler and adds its prediction to the image.

    Args:
        scale: 1 to denoise; 2, 3 or 4.
        channels: 1 for gray images, 3 for color.
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
        trunk_radius = 3 + num_blocks * num_layers
        self.info = NetworkInfo(
            scale=scale,
            task="denoising" if scale == 1 else "super-resolution",
            feature_channels=width,
            feature_scale=scale,
            feature_receptive_radius=trunk_radius,
            receptive_radius=trunk_radius + upsampler_radius(scale),
            in_channels=channels,
            out_channels=channels,
            # The results of all blocks, one by one and concatenated.
            activation_floats_per_pixel=(2 * num_blocks + 6) * width,
        )
        self.value_range = value_range
        self.SFENet1 = conv3x3(channels, width)
        self.SFENet2 = conv3x3(width, width)
        self.RDBs = nn.ModuleList(DenseBlock(width, growth, num_layers) for _ in range(num_blocks))
        fuse = nn.Conv2d(num_blocks * width, width, kernel_size=1)
        self.GFF = nn.Sequential(fuse, conv3x3(width, width))
        self.UPNet = upsampler(width, growth, channels, scale)

    def features(self, degraded: Tensor) -> Tensor:
        """Return the first features plus the fusion of all blocks."""
        first = self.SFENet1(degraded * self.value_range)
        features = self.SFENet2(first)
        blocks = []
        for block in self.RDBs:
            features = block(features)
            blocks.append(features)
        return first + self.GFF(torch.cat(blocks, dim=1))

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Turn the features into an image, or into the residual of a denoised one."""
        image = self.UPNet(features) / self.value_range
        return degraded + image if self.scale == 1 else image


@recogniser
def recognise(state: State) -> Recognised:
    """Tell whether a state dict is an RDN; released ones work in 0..255."""
    shape(state, "SFENet1.weight", 4)
    growth, width = shape(state, "RDBs.0.convs.0.conv.0.weight", 4)[:2]
    num_steps = count(state, r"UPNet\.\d+\.weight") - 1
    channels = shape(state, f"UPNet.{2 * num_steps}.weight", 4)[0]
    require(channels in (1, 3))
    settings: Settings = {
        "num_blocks": quotient(shape(state, "GFF.0.weight", 4)[1], width),
        "num_layers": quotient(count(state, r"RDBs\.0\.convs\..*"), 2),
        "width": width,
        "growth": growth,
        "value_range": RELEASED_RANGE,
    }
    if num_steps == 0:
        return "rdn-denoise" if channels == 3 else "rdn-denoise-grey", 1, settings
    require(channels == 3)
    factor = pixel_shuffle_factor(shape(state, "UPNet.0.weight", 4)[0], growth)
    return "rdn", factor**num_steps, settings


register_variants(
    RDN,
    {"rdn": Variant("16 blocks of 8 layers of 64 channels.")},
    scales=(2, 3, 4),
    paper="Zhang et al., Residual Dense Network for Image Super-Resolution, CVPR 2018",
    year=2018,
    recognise=recognise,
)
register_variants(
    RDN,
    {
        "rdn-denoise": Variant("For color images: the same blocks without an upsampler."),
        "rdn-denoise-grey": Variant("For gray images.", {"channels": 1}),
    },
    scales=(1,),
    paper="Zhang et al., Residual Dense Network for Image Restoration, TPAMI 2021",
    year=2021,
    recognise=recognise,
)
