"""PLKSR: large kernels on a quarter of the channels; PLKSR-tiny has fewer and smaller ones."""

import torch
import torch.nn.functional as F  # noqa: N812 - the name that the field uses
from torch import Tensor, nn

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.layers import conv3x3
from musigma.networks.registry import Variant, register_variants
from musigma.networks.state_dict import (
    Recognised,
    State,
    count,
    pixel_shuffle_factor,
    recogniser,
    require,
    shape,
)
from musigma.networks.tile_exact_layers import WideConv2d


def near_zero(conv: nn.Conv2d) -> nn.Conv2d:
    """Let a convolution start with small weights, as the official network does."""
    nn.init.trunc_normal_(conv.weight, std=0.02)
    return conv


class PartialLargeKernel(nn.Module):
    """Convolves the first channels with a large kernel and leaves the others alone."""

    def __init__(self, width: int, kernel_size: int) -> None:
        super().__init__()
        self.width = width
        self.conv = near_zero(WideConv2d(width, width, kernel_size))

    def forward(self, features: Tensor) -> Tensor:
        """Filter the first channels."""
        filtered = self.conv(features[:, : self.width])
        return torch.cat((filtered, features[:, self.width :]), dim=1)


class ElementAttention(nn.Module):
    """Weighs every value by a convolution of the features."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.f = nn.Sequential(near_zero(conv3x3(width, width)), nn.Sigmoid())

    def forward(self, features: Tensor) -> Tensor:
        """Weigh the features."""
        return features * self.f(features)


class LargeKernelBlock(nn.Module):
    """Two convolutions, the large kernel, attention where there is one, and a 1x1 convolution."""

    def __init__(self, width: int, kernel_size: int, *, attention: bool) -> None:
        super().__init__()
        self.channe_mixer = nn.Sequential(
            conv3x3(width, 2 * width), nn.GELU(), near_zero(conv3x3(2 * width, width))
        )
        self.lk = PartialLargeKernel(width // 4, kernel_size)
        self.attn = ElementAttention(width) if attention else nn.Identity()
        self.refine = near_zero(nn.Conv2d(width, width, kernel_size=1))

    def forward(self, features: Tensor) -> Tensor:
        """Refine the features."""
        return features + self.refine(self.attn(self.lk(self.channe_mixer(features))))


@recogniser
def recognise(state: State) -> Recognised:
    """Tell whether a state dict is a PLKSR with or without attention."""
    width, channels = shape(state, "feats.0.weight", 4)[:2]
    require(channels == 3)
    require(shape(state, "feats.1.channe_mixer.0.weight", 4) == (2 * width, width, 3, 3))
    require(shape(state, "feats.1.channe_mixer.2.weight", 4) == (width, 2 * width, 3, 3))
    part, _, *sides = shape(state, "feats.1.lk.conv.weight", 4)
    require(part == width // 4 and sides[0] == sides[1] and sides[0] % 2 == 1)
    num_blocks = count(state, r"feats\.\d+\.lk\.conv\.weight")
    scale = pixel_shuffle_factor(shape(state, f"feats.{num_blocks + 1}.weight", 4)[0], 3)
    attention = "feats.1.attn.f.0.weight" in state
    settings = {
        "num_blocks": num_blocks,
        "width": width,
        "kernel_size": sides[0],
        "attention": attention,
    }
    return "plksr" if attention else "plksr-tiny", scale, settings


class PLKSR(Network):
    """Partial large kernel network; parameter names are those of the official release.

    Args:
        scale: 2, 3 or 4.
        num_blocks: Blocks.
        width: Channels of every block, a multiple of 4; a quarter of them meets the large kernel.
        kernel_size: Side of the large kernel, an odd number.
        attention: Whether the blocks have attention.
    """

    def __init__(
        self,
        *,
        scale: int,
        num_blocks: int = 28,
        width: int = 64,
        kernel_size: int = 17,
        attention: bool = True,
    ) -> None:
        super().__init__()
        trunk_radius = 1 + num_blocks * (2 + kernel_size // 2 + attention)
        self.info = NetworkInfo(
            scale=scale,
            task="super-resolution",
            feature_channels=width,
            feature_scale=scale,
            feature_receptive_radius=trunk_radius,
            receptive_radius=trunk_radius + 1,
        )
        blocks = [
            LargeKernelBlock(width, kernel_size, attention=attention) for _ in range(num_blocks)
        ]
        first, last = near_zero(conv3x3(3, width)), near_zero(conv3x3(width, 3 * scale**2))
        self.feats = nn.Sequential(first, *blocks, last)

    def features(self, degraded: Tensor) -> Tensor:
        """Return the result of the last block."""
        features = degraded
        for layer in list(self.feats)[:-1]:
            features = layer(features)
        return features

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Add the sub-pixels that the features give to the enlarged pixels of the input."""
        residual = F.pixel_shuffle(self.feats[-1](features), self.scale)
        return residual + F.interpolate(degraded, scale_factor=self.scale, mode="nearest")


register_variants(
    PLKSR,
    {
        "plksr": Variant("28 blocks of 64 channels, kernels of 17x17 and attention."),
        "plksr-tiny": Variant(
            "12 blocks of 64 channels, kernels of 13x13.",
            {"num_blocks": 12, "kernel_size": 13, "attention": False},
        ),
    },
    scales=(2, 3, 4),
    paper="Lee et al., Partial Large Kernel CNNs for Efficient Super-Resolution, 2024",
    year=2024,
    recognise=recognise,
)
