"""SMFANet: features modulated by the largest values of cells and by the variance; SMFANet+."""

import torch
import torch.nn.functional as F  # noqa: N812 - the name that the field uses
from torch import Tensor, nn

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.layers import at_least, conv3x3, largest_of_cells, spread_cells
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

CELL = 8
"""Side of a cell in pixels."""


def variance(features: Tensor) -> Tensor:
    """Return the unbiased variance of each channel, ``(N, C, 1, 1)``; zero for a single pixel."""
    height, width = features.shape[-2:]
    distance = features - features.mean(dim=(2, 3), keepdim=True)
    return distance.square().sum(dim=(2, 3), keepdim=True) / at_least(height * width - 1, 1)


class LocalDetail(nn.Module):
    """A 3x3 convolution of every channel by itself, and two 1x1 convolutions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv_0 = nn.Sequential(
            nn.Conv2d(width, 2 * width, kernel_size=3, padding=1, groups=width),
            nn.Conv2d(2 * width, 2 * width, kernel_size=1),
        )
        self.conv_1 = nn.Conv2d(2 * width, width, kernel_size=1)

    def forward(self, features: Tensor) -> Tensor:
        """Filter the features."""
        return self.conv_1(F.gelu(self.conv_0(features)))


class SelfModulation(nn.Module):
    """One half of the features is filtered; the other is weighed by its cells and its variance."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear_0 = nn.Conv2d(width, 2 * width, kernel_size=1)
        self.linear_1 = nn.Conv2d(width, width, kernel_size=1)
        self.linear_2 = nn.Conv2d(width, width, kernel_size=1)
        self.lde = LocalDetail(width)
        self.dw_conv = nn.Conv2d(width, width, kernel_size=3, padding=1, groups=width)
        self.alpha = nn.Parameter(torch.ones(1, width, 1, 1))
        self.belt = nn.Parameter(torch.zeros(1, width, 1, 1))

    def forward(self, features: Tensor) -> Tensor:
        """Modulate the features."""
        local, coarse = self.linear_0(features).chunk(2, dim=1)
        cells = self.dw_conv(largest_of_cells(coarse, CELL))
        weights = F.gelu(self.linear_1(cells * self.alpha + variance(coarse) * self.belt))
        modulated = coarse * spread_cells(weights, CELL, *features.shape[-2:])
        return self.linear_2(modulated + self.lde(local))


class PartialMixer(nn.Module):
    """Two 1x1 convolutions, with a 3x3 convolution of a quarter of the channels between them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.num_filtered = width // 2
        self.conv_0 = nn.Conv2d(width, 2 * width, kernel_size=1)
        self.conv_1 = conv3x3(self.num_filtered, self.num_filtered)
        self.conv_2 = nn.Conv2d(2 * width, width, kernel_size=1)

    def forward(self, features: Tensor) -> Tensor:
        """Mix the channels."""
        mixed = F.gelu(self.conv_0(features))
        filtered = F.gelu(self.conv_1(mixed[:, : self.num_filtered]))
        return self.conv_2(torch.cat((filtered, mixed[:, self.num_filtered :]), dim=1))


class ModulationBlock(nn.Module):
    """Modulation and mixing of features of length 1, each added to its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.smfa = SelfModulation(width)
        self.pcfn = PartialMixer(width)

    def forward(self, features: Tensor) -> Tensor:
        """Refine the features."""
        features = features + self.smfa(F.normalize(features))
        return features + self.pcfn(F.normalize(features))


@recogniser
def recognise(state: State) -> Recognised:
    """Tell whether a state dict is a SMFANet."""
    width, channels = shape(state, "to_feat.weight", 4)[:2]
    require(channels == 3)
    require(shape(state, "feats.0.smfa.belt", 4)[1] == width)
    require(shape(state, "feats.0.pcfn.conv_1.weight", 4)[0] == width // 2)
    num_blocks = count(state, r"feats\.\d+\.smfa\.alpha")
    scale = pixel_shuffle_factor(shape(state, "to_img.0.weight", 4)[0], 3)
    name = "smfanet-plus" if width == PLUS["width"] else "smfanet"
    return name, scale, {"num_blocks": num_blocks, "width": width}


PLUS = {"num_blocks": 12, "width": 48}


class SMFANet(Network):
    """Self-modulation feature aggregation network; parameter names are the official ones.

    The variance is that of the whole image, so that tiles are approximate. Cells are counted from
    the upper left corner, and those at the other edges may be cut off; the official network has
    cells of about equal size, which is the same where both sides are multiples of 8.

    Args:
        scale: 2, 3 or 4.
        num_blocks: Modulation blocks.
        width: Channels of every block, an even number.
    """

    def __init__(self, *, scale: int, num_blocks: int = 8, width: int = 36) -> None:
        super().__init__()
        self.info = NetworkInfo(
            scale=scale,
            task="super-resolution",
            feature_channels=width,
            feature_scale=scale,
            feature_receptive_radius=None,
            receptive_radius=None,
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
    SMFANet,
    {
        "smfanet": Variant("8 blocks of 36 channels."),
        "smfanet-plus": Variant("12 blocks of 48 channels.", PLUS),
    },
    scales=(2, 3, 4),
    paper="Zheng et al., SMFANet: A Lightweight Self-Modulation Feature Aggregation Network for "
    "Efficient Image Super-Resolution, ECCV 2024",
    year=2024,
    recognise=recognise,
)
