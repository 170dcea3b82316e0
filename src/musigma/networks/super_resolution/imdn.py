"""IMDN: blocks that distil a quarter of their features at each of four steps."""

import torch
from torch import Tensor, nn

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.layers import conv3x3
from musigma.networks.registry import register
from musigma.networks.state_dict import (
    Recognised,
    State,
    pixel_shuffle_factor,
    quotient,
    recogniser,
    shape,
)

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
        # The small constant gives the root of a constant channel a gradient.
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


@recogniser
def recognise(state: State) -> Recognised:
    """Tell whether a state dict is an IMDN."""
    for key in ("IMDB1.c5.weight", "LR_conv.weight"):
        shape(state, key, 4)
    width = shape(state, "fea_conv.weight", 4)[0]
    scale = pixel_shuffle_factor(shape(state, "upsampler.0.weight", 4)[0], 3)
    num_blocks = quotient(shape(state, "c.0.weight", 4)[1], width)
    return "imdn", scale, {"num_blocks": num_blocks, "width": width}


@register(
    "imdn",
    scales=(2, 3, 4),
    summary="6 blocks of 64 channels.",
    paper="Hui et al., Lightweight Image Super-Resolution with Information Multi-distillation "
    "Network, ACM MM 2019",
    year=2019,
    recognise=recognise,
)
class IMDN(Network):
    """Information multi-distillation network; parameter names are those of the official release.

    Args:
        scale: 2, 3 or 4.
        num_blocks: Distillation blocks.
        width: Channels of every block, a multiple of 16.
    """

    def __init__(self, *, scale: int, num_blocks: int = 6, width: int = 64) -> None:
        super().__init__()
        self.info = NetworkInfo(
            scale=scale,
            task="super-resolution",
            feature_channels=width,
            feature_scale=scale,
            feature_receptive_radius=None,
            receptive_radius=None,
        )
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
        """Return the first features plus the fusion of the results of all blocks."""
        first = last = self.fea_conv(degraded)
        outputs = []
        for name in self.blocks:
            last = self.get_submodule(name)(last)
            outputs.append(last)
        return first + self.LR_conv(self.c(torch.cat(outputs, dim=1)))

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:  # noqa: ARG002
        """Turn the features into the sub-pixels of the image."""
        return self.upsampler(features)
