"""DRUNet: residual blocks at four resolutions, one network for every noise level."""

from torch import Tensor, nn

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.layers import conv3x3, pad_to_cells
from musigma.networks.receptive_field import Step, radius_through
from musigma.networks.registry import Variant, register_variants
from musigma.networks.state_dict import (
    Recognised,
    State,
    count,
    quotient,
    recogniser,
    require,
    shape,
)

CELL = 8
"""Pixels per side that become one at the coarsest of the four resolutions."""


class ResidualBlock(nn.Module):
    """Conv, ReLU, Conv, added to the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.res = nn.Sequential(
            conv3x3(width, width, bias=False),
            nn.ReLU(inplace=True),
            conv3x3(width, width, bias=False),
        )

    def forward(self, features: Tensor) -> Tensor:
        """Refine the features."""
        return features + self.res(features)


class DRUNet(Network):
    """Denoising residual U-Net; parameter names are those of the official release.

    The last input channel is the noise map, unless the network is blind. Without biases, the
    network scales with its input: half the image and half the noise level give half the result.

    Args:
        scale: 1.
        channels: 1 for gray images, 3 for color.
        widths: Channels at each of the four resolutions.
        num_blocks: Residual blocks at each resolution, on the way down and on the way up.
        noise_level: Whether the last input channel is a map of the noise level. Without it the
            network is blind: it finds out by itself what is wrong with the image.
    """

    def __init__(
        self,
        *,
        scale: int,
        channels: int = 3,
        widths: tuple[int, int, int, int] = (64, 128, 256, 512),
        num_blocks: int = 4,
        noise_level: bool = True,
    ) -> None:
        super().__init__()
        # The receptive field grows by two convolutions in each block, at each resolution.
        blocks_radius: Step = 2 * num_blocks
        steps = [1, *(blocks_radius, "halve") * 3, blocks_radius, *("double", blocks_radius) * 3]
        in_channels = channels + noise_level
        self.info = NetworkInfo(
            scale=scale,
            task="denoising" if noise_level else "restoration",
            in_channels=in_channels,
            out_channels=channels,
            feature_channels=widths[0],
            feature_scale=scale,
            feature_receptive_radius=radius_through(steps, cell=CELL),
            receptive_radius=radius_through([*steps, 1], cell=CELL),
            size_multiple=CELL,
            takes_noise_level=noise_level,
        )

        def blocks(width: int) -> list[ResidualBlock]:
            return [ResidualBlock(width) for _ in range(num_blocks)]

        def down(fine: int, coarse: int) -> nn.Sequential:
            half = nn.Conv2d(fine, coarse, kernel_size=2, stride=2, bias=False)
            return nn.Sequential(*blocks(fine), half)

        def up(coarse: int, fine: int) -> nn.Sequential:
            double = nn.ConvTranspose2d(coarse, fine, kernel_size=2, stride=2, bias=False)
            return nn.Sequential(double, *blocks(fine))

        first, second, third, fourth = widths
        self.m_head = conv3x3(in_channels, first, bias=False)
        self.m_down1 = down(first, second)
        self.m_down2 = down(second, third)
        self.m_down3 = down(third, fourth)
        self.m_body = nn.Sequential(*blocks(fourth))
        self.m_up3 = up(fourth, third)
        self.m_up2 = up(third, second)
        self.m_up1 = up(second, first)
        self.m_tail = conv3x3(first, channels, bias=False)

    def features(self, degraded: Tensor) -> Tensor:
        """Return the input of the last convolution; its sides are multiples of eight."""
        first = self.m_head(pad_to_cells(degraded, CELL))
        second = self.m_down1(first)
        third = self.m_down2(second)
        fourth = self.m_down3(third)
        features = self.m_up3(self.m_body(fourth) + fourth)
        features = self.m_up2(features + third)
        return self.m_up1(features + second) + first

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Turn the features into an image of the input's size."""
        height, width = degraded.shape[-2:]
        return self.m_tail(features)[..., :height, :width]


@recogniser
def recognise(state: State) -> Recognised:
    """Tell whether a state dict is a DRUNet, with or without the noise level."""
    require("m_head.bias" not in state)  # with biases it is another U-Net of the release
    channels = shape(state, "m_tail.weight", 4)[0]
    in_channels = shape(state, "m_head.weight", 4)[1]
    require(channels in (1, 3) and in_channels in (channels, channels + 1))
    shape(state, "m_down1.0.res.0.weight", 4)
    first, second, third = (shape(state, f"m_up{level}.0.weight", 4) for level in (1, 2, 3))
    settings = {
        "widths": (first[1], first[0], second[0], third[0]),
        "num_blocks": quotient(count(state, r"m_body\..*"), 2),
    }
    if in_channels == channels:
        return "drunet-small-blind", 1, {**settings, "channels": channels}
    return "drunet" if channels == 3 else "drunet-grey", 1, settings


SMALL = {"widths": (32, 64, 128, 192), "num_blocks": 2}

register_variants(
    DRUNet,
    {
        "drunet": Variant("For color images."),
        "drunet-grey": Variant("For gray images.", {"channels": 1}),
        "drunet-small": Variant(
            "For color images, at a tenth of the cost: half the width, half the blocks.", SMALL
        ),
        "drunet-small-blind": Variant(
            "The small form without the noise level, for damage of unknown kind and strength.",
            {**SMALL, "noise_level": False},
        ),
    },
    scales=(1,),
    paper="Zhang et al., Plug-and-Play Image Restoration with Deep Denoiser Prior, TPAMI 2021",
    year=2021,
    recognise=recognise,
)
