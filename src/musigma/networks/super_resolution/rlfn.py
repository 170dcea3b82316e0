"""RLFN: three convolutions per block, then attention by a coarse copy of the features; RLFN-S."""

import torch
import torch.nn.functional as F  # noqa: N812 - the name that the field uses
from torch import Tensor, nn

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.layers import MeanShift, at_least, conv3x3
from musigma.networks.registry import Variant, register_variants
from musigma.networks.state_dict import (
    RELEASED_RANGE,
    Recognised,
    State,
    count,
    pixel_shuffle_factor,
    recogniser,
    require,
    shape,
)

SLOPE = 0.05
ATTENTION_WIDTH = 16

LEAST_SIDE = 15
"""Side of the smallest image of which the attention makes one coarse pixel."""


def grow(image: Tensor, side: int) -> Tensor:
    """Repeat the last row and column until both sides have at least `side` pixels."""
    height, width = (at_least(length, side) for length in image.shape[-2:])
    # Pad by the largest amount and crop: compilers handle that better than padding of any size.
    return F.pad(image, (0, side - 1, 0, side - 1), mode="replicate")[..., :height, :width]


class SpatialAttention(nn.Module):
    """Weighs every value by a map that comes from a copy of a sixth of the size."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = ATTENTION_WIDTH
        self.conv1 = nn.Conv2d(width, inner, kernel_size=1)
        self.conv_f = nn.Conv2d(inner, inner, kernel_size=1)
        self.conv2 = nn.Conv2d(inner, inner, kernel_size=3, stride=2)
        self.conv3 = conv3x3(inner, inner)
        self.conv4 = nn.Conv2d(inner, width, kernel_size=1)

    def forward(self, features: Tensor) -> Tensor:
        """Weigh the features."""
        narrow = self.conv1(features)
        coarse = F.max_pool2d(self.conv2(grow(narrow, LEAST_SIDE)), kernel_size=7, stride=3)
        size = features.shape[-2:]
        coarse = F.interpolate(self.conv3(coarse), size=size, mode="bilinear", align_corners=False)
        return features * torch.sigmoid(self.conv4(coarse + self.conv_f(narrow)))


class LocalFeatureBlock(nn.Module):
    """Three times convolution and leaky ReLU, added to the input; a 1x1 convolution; attention."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.c1_r = conv3x3(width, inner)
        self.c2_r = conv3x3(inner, inner)
        self.c3_r = conv3x3(inner, width)
        self.c5 = nn.Conv2d(width, width, kernel_size=1)
        self.esa = SpatialAttention(width)

    def forward(self, features: Tensor) -> Tensor:
        """Refine the features."""
        residual = features
        for conv in (self.c1_r, self.c2_r, self.c3_r):
            residual = F.leaky_relu(conv(residual), SLOPE)
        return self.esa(self.c5(features + residual))


@recogniser
def recognise(state: State) -> Recognised:
    """Tell whether a state dict is an RLFN; released ones work in 0..255."""
    width, channels = shape(state, "conv_1.weight", 4)[:2]
    require(channels == 3)
    require(shape(state, "block_1.esa.conv1.weight", 4)[:2] == (ATTENTION_WIDTH, width))
    settings = {
        "num_blocks": count(state, r"block_\d+\.c5\.weight"),
        "width": width,
        "inner_width": shape(state, "block_1.c1_r.weight", 4)[0],
        "value_range": RELEASED_RANGE,
    }
    scale = pixel_shuffle_factor(shape(state, "upsampler.0.weight", 4)[0], 3)
    names = {48: "rlfn-s", 46: "rlfn-ntire"}
    return names.get(width, "rlfn"), scale, settings


class RLFN(Network):
    """Residual local feature network; parameter names are those of the official release.

    Its attention is stretched to the size of the image, so that what a pixel sees depends on where
    it is in the image, and on the size. Tiles are therefore approximate. Images with a side below
    15 pixels, which the official network refuses, are continued for the attention.

    Args:
        scale: 2, 3 or 4.
        num_blocks: Blocks.
        width: Channels between the blocks.
        inner_width: Channels inside the blocks.
        value_range: Range the layers work in. Official weights expect 255.
    """

    def __init__(
        self,
        *,
        scale: int,
        num_blocks: int = 6,
        width: int = 52,
        inner_width: int = 52,
        value_range: float = 1.0,
    ) -> None:
        super().__init__()
        self.info = NetworkInfo(
            scale=scale,
            task="super-resolution",
            feature_channels=width,
            feature_scale=scale,
            feature_receptive_radius=None,
            receptive_radius=None,
        )
        self.shift = MeanShift(value_range=value_range, mean=(0.0, 0.0, 0.0))
        self.conv_1 = conv3x3(3, width)
        self.blocks = [f"block_{index}" for index in range(1, num_blocks + 1)]
        for name in self.blocks:
            self.add_module(name, LocalFeatureBlock(width, inner_width))
        self.conv_2 = conv3x3(width, width)
        self.upsampler = nn.Sequential(conv3x3(width, 3 * scale**2), nn.PixelShuffle(scale))

    def features(self, degraded: Tensor) -> Tensor:
        """Return the sum of the first and the last features of the trunk."""
        first = last = self.conv_1(self.shift(degraded))
        for name in self.blocks:
            last = self.get_submodule(name)(last)
        return first + self.conv_2(last)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:  # noqa: ARG002
        """Turn the features into the sub-pixels of the image."""
        return self.shift.inverse(self.upsampler(features))


register_variants(
    RLFN,
    {
        "rlfn": Variant("6 blocks of 52 channels."),
        "rlfn-s": Variant("6 blocks of 48 channels.", {"width": 48, "inner_width": 48}),
        "rlfn-ntire": Variant(
            "4 blocks of 46 and 48 channels: the winner of NTIRE 2022 in running time.",
            {"num_blocks": 4, "width": 46, "inner_width": 48},
        ),
    },
    scales=(2, 3, 4),
    paper="Kong et al., Residual Local Feature Network for Efficient Super-Resolution, CVPRW 2022",
    year=2022,
    recognise=recognise,
)
