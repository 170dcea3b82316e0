"""IMDN: blocks that distil a quarter of their features at each of four steps."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from musigma.networks.base import Network, conv3x3
from musigma.networks.registry import Recognised, register

SLOPE = 0.05


class ContrastAttention(nn.Module):
    """Weighs channels by the sum of their mean and their standard deviation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv_du = nn.Sequential(
            nn.Conv2d(width, width // 16, kernel_size=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(width // 16, width, kernel_size=1),
            nn.Sigmoid(),
        )

    def forward(self, features: Tensor) -> Tensor:
        """Weigh the features."""
        mean = features.mean(dim=(2, 3), keepdim=True)
        variance = (features - mean).square().mean(dim=(2, 3), keepdim=True)
        # Without the margin the root of a constant channel has no gradient.
        return features * self.conv_du((variance + 1e-12).sqrt() + mean)


class DistillationBlock(nn.Module):
    """Three times a convolution of which a quarter is kept, a last one, attention and fusion."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.kept = width // 4
        self.passed = width - self.kept
        self.c1 = conv3x3(width, width)
        self.c2 = conv3x3(self.passed, width)
        self.c3 = conv3x3(self.passed, width)
        self.c4 = conv3x3(self.passed, self.kept)
        self.c5 = nn.Conv2d(width, width, kernel_size=1)
        self.act = nn.LeakyReLU(SLOPE, inplace=True)
        self.cca = ContrastAttention(width)

    def forward(self, features: Tensor) -> Tensor:
        """Refine the features."""
        passed, kept = features, []
        for conv in (self.c1, self.c2, self.c3):
            part, passed = self.act(conv(passed)).split((self.kept, self.passed), dim=1)
            kept.append(part)
        distilled = torch.cat((*kept, self.c4(passed)), dim=1)
        return features + self.c5(self.cca(distilled))


class IMDN(Network):
    """Information multi-distillation network; parameter names are those of the official release.

    Args:
        scale: 2, 3 or 4.
        num_blocks: Distillation blocks.
        width: Channels of every block, a multiple of 16.
    """

    feature_receptive_radius = None
    receptive_radius = None

    def __init__(self, *, scale: int, num_blocks: int = 6, width: int = 64) -> None:
        super().__init__()
        self.scale = self.feature_scale = scale
        self.feature_channels = width
        self.fea_conv = conv3x3(3, width)
        self.blocks = [f"IMDB{index}" for index in range(1, num_blocks + 1)]
        for name in self.blocks:
            self.add_module(name, DistillationBlock(width))
        self.c = nn.Sequential(
            nn.Conv2d(width * num_blocks, width, kernel_size=1), nn.LeakyReLU(SLOPE, inplace=True)
        )
        self.LR_conv = conv3x3(width, width)
        self.upsampler = nn.Sequential(conv3x3(width, 3 * scale**2), nn.PixelShuffle(scale))

    def features(self, degraded: Tensor) -> Tensor:
        """Return the first features plus the fusion of what every block gave."""
        first = last = self.fea_conv(degraded)
        outputs = []
        for name in self.blocks:
            last = self.get_submodule(name)(last)
            outputs.append(last)
        return first + self.LR_conv(self.c(torch.cat(outputs, dim=1)))

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:  # noqa: ARG002
        """Turn the features into the sub-pixels of the image."""
        return self.upsampler(features)


def recognise(state: Mapping[str, Tensor]) -> Recognised | None:
    """Tell from its keys whether a state dict is an IMDN."""
    if not {"fea_conv.weight", "IMDB1.c5.weight", "c.0.weight", "LR_conv.weight"} <= state.keys():
        return None
    width = state["fea_conv.weight"].shape[0]
    scale = math.isqrt(state["upsampler.0.weight"].shape[0] // 3)
    num_blocks = state["c.0.weight"].shape[1] // width
    return "imdn", scale, {"num_blocks": num_blocks, "width": width}


@register(
    "imdn",
    scales=(2, 3, 4),
    paper="Hui et al., Lightweight Image Super-Resolution with Information Multi-distillation "
    "Network, ACM MM 2019",
    year=2019,
    recognise=recognise,
)
def imdn(*, scale: int, **settings: Any) -> IMDN:
    """6 blocks of 64 channels."""
    return IMDN(scale=scale, **settings)
