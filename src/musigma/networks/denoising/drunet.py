"""DRUNet: residual blocks at four resolutions, one network for every noise level."""

from collections.abc import Mapping
from typing import Any

import torch.nn.functional as F  # noqa: N812 - the name that the field uses
from torch import Tensor, nn

from musigma.networks.base import Network, Settings, conv3x3
from musigma.networks.registry import Recognised, register

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
        channels: 1 for grey images, 3 for colour.
        widths: Channels at each of the four resolutions.
        num_blocks: Residual blocks at each resolution, on the way down and on the way up.
        noise_level: Whether the last input channel is a map of the noise level. Without it the
            network is blind: it finds out by itself what is wrong with the image.
    """

    size_multiple = CELL

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
        self.scale = self.feature_scale = scale
        self.takes_noise_level = noise_level
        self.in_channels, self.out_channels = channels + noise_level, channels
        self.feature_channels = widths[0]
        self.feature_receptive_radius = _reach(num_blocks)
        self.receptive_radius = self.feature_receptive_radius + 1

        def blocks(width: int) -> list[ResidualBlock]:
            return [ResidualBlock(width) for _ in range(num_blocks)]

        def down(fine: int, coarse: int) -> nn.Sequential:
            half = nn.Conv2d(fine, coarse, kernel_size=2, stride=2, bias=False)
            return nn.Sequential(*blocks(fine), half)

        def up(coarse: int, fine: int) -> nn.Sequential:
            double = nn.ConvTranspose2d(coarse, fine, kernel_size=2, stride=2, bias=False)
            return nn.Sequential(double, *blocks(fine))

        first, second, third, fourth = widths
        self.m_head = conv3x3(self.in_channels, first, bias=False)
        self.m_down1 = down(first, second)
        self.m_down2 = down(second, third)
        self.m_down3 = down(third, fourth)
        self.m_body = nn.Sequential(*blocks(fourth))
        self.m_up3 = up(fourth, third)
        self.m_up2 = up(third, second)
        self.m_up1 = up(second, first)
        self.m_tail = conv3x3(first, channels, bias=False)

    def features(self, degraded: Tensor) -> Tensor:
        """Return what the last convolution sees; its sides are multiples of eight."""
        first = self.m_head(_pad_to_cells(degraded))
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


def _pad_to_cells(image: Tensor) -> Tensor:
    height, width = (CELL * ((side + CELL - 1) // CELL) for side in image.shape[-2:])
    # More than enough and a cut, which compilers see through sooner than a padding of any size.
    padded = F.pad(image, (0, CELL - 1, 0, CELL - 1), mode="replicate")
    return padded[..., :height, :width]


def _reach(num_blocks: int) -> int:
    """How far a feature sees, from the worst of the eight places in a cell; both ways alike."""
    convolutions = 2 * num_blocks
    reaches = []
    for pixel in range(CELL):
        last = pixel + convolutions
        for _ in range(3):
            last = last // 2 + convolutions
        for _ in range(3):
            last = 2 * last + 1 + convolutions
        reaches.append(last + 1 - pixel)
    return max(reaches)


def recognise(state: Mapping[str, Tensor]) -> Recognised | None:
    """Tell from its keys whether a state dict is a DRUNet."""
    distinctive = {"m_head.weight", "m_down1.0.res.0.weight", "m_body.0.res.0.weight"}
    if not {*distinctive, "m_up3.0.weight", "m_tail.weight"} <= state.keys():
        return None
    channels = state["m_tail.weight"].shape[0]
    # With biases it is another of the release's U-Nets.
    noise_level = state["m_head.weight"].shape[1] == channels + 1
    if "m_head.bias" in state or not (noise_level or state["m_head.weight"].shape[1] == channels):
        return None
    num_blocks = sum(key.startswith("m_body.") for key in state) // 2
    ups = [state[f"m_up{level}.0.weight"] for level in (1, 2, 3)]
    widths = (ups[0].shape[1], *(up.shape[0] for up in ups))
    settings = {"widths": widths, "num_blocks": num_blocks}
    if not noise_level:
        return "drunet-small-blind", 1, {**settings, "channels": channels}
    return "drunet" if channels == 3 else "drunet-grey", 1, settings


FACTS: dict[str, Any] = {
    "scales": (1,),
    "paper": "Zhang et al., Plug-and-Play Image Restoration with Deep Denoiser Prior, TPAMI 2021",
    "year": 2021,
}
NOISE_LEVEL: dict[str, Any] = {**FACTS, "noise_map": True}


@register("drunet", recognise=recognise, **NOISE_LEVEL)
def drunet(*, scale: int, **settings: Any) -> DRUNet:
    """For colour images."""
    return DRUNet(scale=scale, **settings)


@register("drunet-grey", **NOISE_LEVEL)
def drunet_grey(*, scale: int, **settings: Any) -> DRUNet:
    """For grey images."""
    defaults: Settings = {"channels": 1}
    return DRUNet(scale=scale, **{**defaults, **settings})


@register("drunet-small", **NOISE_LEVEL)
def drunet_small(*, scale: int, **settings: Any) -> DRUNet:
    """For colour images, at a tenth of the cost: half the width, half the blocks."""
    defaults: Settings = {"widths": (32, 64, 128, 192), "num_blocks": 2}
    return DRUNet(scale=scale, **{**defaults, **settings})


@register("drunet-small-blind", purpose="restoration", **FACTS)
def drunet_small_blind(*, scale: int, **settings: Any) -> DRUNet:
    """As the small form, without the noise level: for damage of unknown kind and strength."""
    defaults: Settings = {"widths": (32, 64, 128, 192), "num_blocks": 2, "noise_level": False}
    return DRUNet(scale=scale, **{**defaults, **settings})
