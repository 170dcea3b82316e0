"""SAFMN: features are modulated by their largest values in cells of 2, 4 and 8 pixels; SAFMN-L."""

import torch
import torch.nn.functional as F  # noqa: N812 - the name that the field uses
from torch import Tensor, nn

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.layers import conv3x3, largest_of_cells, spread_cells
from musigma.networks.receptive_field import Step, radius_through
from musigma.networks.registry import Variant, register_variants
from musigma.networks.state_dict import (
    Recognised,
    State,
    count,
    pixel_shuffle_factor,
    quotient,
    recogniser,
    require,
    shape,
)

NUM_LEVELS = 4
CELL = 2 ** (NUM_LEVELS - 1)
"""Side in pixels of the largest cell."""


class ChannelNorm(nn.Module):
    """Normalizes the channels of every pixel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, features: Tensor) -> Tensor:
        """Normalize the features."""
        pixels = features.permute(0, 2, 3, 1)
        normal = F.layer_norm(pixels, self.weight.shape, self.weight, self.bias, eps=1e-6)
        return normal.permute(0, 3, 1, 2)


class FeatureModulation(nn.Module):
    """Weighs the features by filtered versions of four parts of them, at four resolutions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        part = width // NUM_LEVELS
        self.mfr = nn.ModuleList(
            nn.Conv2d(part, part, kernel_size=3, padding=1, groups=part) for _ in range(NUM_LEVELS)
        )
        self.aggr = nn.Conv2d(width, width, kernel_size=1)

    def forward(self, features: Tensor) -> Tensor:
        """Weigh the features."""
        height, width = features.shape[-2:]
        parts = []
        for level, (conv, part) in enumerate(
            zip(self.mfr, features.chunk(NUM_LEVELS, dim=1), strict=True)
        ):
            cells = conv(largest_of_cells(part, 2**level))
            parts.append(spread_cells(cells, 2**level, height, width))
        return F.gelu(self.aggr(torch.cat(parts, dim=1))) * features


class ChannelMixer(nn.Module):
    """A 3x3 and a 1x1 convolution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.ccm = nn.Sequential(
            conv3x3(width, 2 * width), nn.GELU(), nn.Conv2d(2 * width, width, kernel_size=1)
        )

    def forward(self, features: Tensor) -> Tensor:
        """Mix the channels."""
        return self.ccm(features)


class ModulationBlock(nn.Module):
    """Modulation and channel mixing, each after a norm and added to its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1 = ChannelNorm(width)
        self.norm2 = ChannelNorm(width)
        self.safm = FeatureModulation(width)
        self.ccm = ChannelMixer(width)

    def forward(self, features: Tensor) -> Tensor:
        """Refine the features."""
        features = features + self.safm(self.norm1(features))
        return features + self.ccm(self.norm2(features))


@recogniser
def recognise(state: State) -> Recognised:
    """Tell whether a state dict is a SAFMN."""
    width, channels = shape(state, "to_feat.weight", 4)[:2]
    require(channels == 3)
    require(quotient(width, shape(state, "feats.0.safm.mfr.3.weight", 4)[0]) == NUM_LEVELS)
    require(shape(state, "feats.0.ccm.ccm.0.weight", 4) == (2 * width, width, 3, 3))
    num_blocks = count(state, r"feats\.\d+\.safm\.aggr\.weight")
    scale = pixel_shuffle_factor(shape(state, "to_img.0.weight", 4)[0], 3)
    name = "safmn-l" if width == LARGE["width"] else "safmn"
    return name, scale, {"num_blocks": num_blocks, "width": width}


LARGE = {"num_blocks": 16, "width": 128}


class SAFMN(Network):
    """Spatially-adaptive feature modulation network; parameter names are the official ones.

    Cells are counted from the upper left corner, and those at the other edges may be cut off. The
    official network divides the image into a whole number of cells of about equal size; that is
    the same where both sides are multiples of 8. Our way makes tiles exact, and works for images
    smaller than a cell.

    Args:
        scale: 2, 3 or 4.
        num_blocks: Modulation blocks.
        width: Channels of every block, a multiple of 4.
    """

    def __init__(self, *, scale: int, num_blocks: int = 8, width: int = 36) -> None:
        super().__init__()
        halved: list[Step] = ["halve"] * (NUM_LEVELS - 1)
        doubled: list[Step] = ["double"] * (NUM_LEVELS - 1)
        trunk: list[Step] = [1, *([*halved, 1, *doubled, 1] * num_blocks)]
        self.info = NetworkInfo(
            scale=scale,
            task="super-resolution",
            feature_channels=width,
            feature_scale=scale,
            feature_receptive_radius=radius_through(trunk, cell=CELL),
            receptive_radius=radius_through([*trunk, 1], cell=CELL),
            size_multiple=CELL,
        )
        self.to_feat = conv3x3(3, width)
        self.feats = nn.Sequential(*(ModulationBlock(width) for _ in range(num_blocks)))
        self.to_img = nn.Sequential(conv3x3(width, 3 * scale**2), nn.PixelShuffle(scale))

    def features(self, degraded: Tensor) -> Tensor:
        """Return the sum of the first and the last features of the trunk."""
        first = self.to_feat(degraded)
        return first + self.feats(first)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:  # noqa: ARG002
        """Turn the features into the sub-pixels of the image."""
        return self.to_img(features)


register_variants(
    SAFMN,
    {
        "safmn": Variant("8 blocks of 36 channels."),
        "safmn-l": Variant("16 blocks of 128 channels.", LARGE),
    },
    scales=(2, 3, 4),
    paper="Sun et al., Spatially-Adaptive Feature Modulation for Efficient Image "
    "Super-Resolution, ICCV 2023",
    year=2023,
    recognise=recognise,
)
