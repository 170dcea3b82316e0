"""SRResNet: residual blocks with batch normalisation; and its plainer form for the RealSR set."""

import math
from typing import Any

from torch import Tensor, nn

from musigma.functional.geometry import pad_to_multiple
from musigma.networks.base import Network, conv3x3
from musigma.networks.bicubic_layer import enlarge, radius_of
from musigma.networks.registry import register
from musigma.networks.tile_exact_layers import WideConv2d


class NormalisedBlock(nn.Module):
    """Conv, BN, PReLU, Conv, BN, added to the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv3x3(width, width, bias=False),
            nn.BatchNorm2d(width),
            nn.PReLU(),
            conv3x3(width, width, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, features: Tensor) -> Tensor:
        """Refine the features."""
        return features + self.body(features)


class SRResNet(Network):
    """The generator of SRGAN, trained for fidelity alone.

    Args:
        scale: 2, 3 or 4.
        num_blocks: Residual blocks.
        width: Channels of every block.
    """

    def __init__(self, *, scale: int, num_blocks: int = 16, width: int = 64) -> None:
        super().__init__()
        self.scale = self.feature_scale = scale
        self.feature_channels = width
        self.feature_receptive_radius = 4 + 2 * num_blocks + 1
        # The 9x9 convolution reaches two pixels of the small grid, the upsampler one more.
        self.receptive_radius = self.feature_receptive_radius + 3
        self.head = nn.Sequential(WideConv2d(3, width, kernel_size=9), nn.PReLU())
        self.body = nn.Sequential(
            *[NormalisedBlock(width) for _ in range(num_blocks)],
            conv3x3(width, width, bias=False),
            nn.BatchNorm2d(width),
        )
        layers: list[nn.Module] = []
        for step in {2: (2,), 3: (3,), 4: (2, 2)}[scale]:
            layers += [conv3x3(width, width * step**2), nn.PixelShuffle(step), nn.PReLU()]
        self.tail = nn.Sequential(*layers, WideConv2d(width, 3, kernel_size=9))

    def features(self, degraded: Tensor) -> Tensor:
        """Return the sum of the first and the last features of the trunk."""
        first = self.head(degraded)
        return first + self.body(first)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:  # noqa: ARG002
        """Enlarge the features and turn them into an image."""
        return self.tail(features)


class PlainBlock(nn.Module):
    """Conv, ReLU, Conv, added to the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv3x3(width, width), nn.ReLU(inplace=True), conv3x3(width, width)
        )

    def forward(self, features: Tensor) -> Tensor:
        """Refine the features."""
        return features + self.body(features)


class SRResNetRealSR(Network):
    """SRResNet for pairs of one size: it works on the 4x4 cells of the enlarged image.

    The trunk is that of the RealSR authors' release (cells, 16 plain blocks, no normalisation). The
    two layers after it are not published; a convolution and the sub-pixels make up the 1.31 M
    parameters of the table.

    Args:
        scale: 1 for an image of the final size, as RealSR has them; 2, 3 or 4 to enlarge it first.
        num_blocks: Residual blocks.
        width: Channels of every block.
    """

    cell = 4
    feature_scale = cell

    def __init__(self, *, scale: int, num_blocks: int = 16, width: int = 64) -> None:
        super().__init__()
        self.scale = scale
        self.feature_channels = width
        common = math.gcd(self.cell, scale)
        self.size_multiple = self.cell // common
        num_trunk = 2 + 2 * num_blocks
        # An image pixel sees whole cells, so up to a cell's rest more than the convolutions reach.
        self.feature_receptive_radius = radius_of(num_trunk * self.cell + self.cell - common, scale)
        self.receptive_radius = radius_of((num_trunk + 2) * self.cell + self.cell - common, scale)
        self.head = conv3x3(3 * self.cell**2, width)
        blocks = [PlainBlock(width) for _ in range(num_blocks)]
        self.body = nn.Sequential(*blocks, conv3x3(width, width))
        self.tail = nn.Sequential(
            conv3x3(width, width),
            nn.ReLU(inplace=True),
            conv3x3(width, 3 * self.cell**2),
            nn.PixelShuffle(self.cell),
        )

    def features(self, degraded: Tensor) -> Tensor:
        """Return the sum of the first and the last features of the trunk."""
        image = pad_to_multiple(enlarge(degraded, self.scale), self.cell, mode="replicate")
        first = self.head(nn.functional.pixel_unshuffle(image, self.cell))
        return first + self.body(first)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Turn the features into the pixels of each cell."""
        height, width = degraded.shape[-2:]
        return self.tail(features)[..., : height * self.scale, : width * self.scale]


SRGAN = "Ledig et al., Photo-Realistic Single Image Super-Resolution Using a GAN, CVPR 2017"
REALSR = "Cai et al., Toward Real-World Single Image Super-Resolution, ICCV 2019"


@register("srresnet", scales=(2, 3, 4), paper=SRGAN, year=2017)
def srresnet(*, scale: int, **settings: Any) -> SRResNet:
    """16 blocks of 64 channels."""
    return SRResNet(scale=scale, **settings)


@register("srresnet-realsr", scales=(1, 2, 3, 4), paper=REALSR, year=2019)
def srresnet_realsr(*, scale: int, **settings: Any) -> SRResNetRealSR:
    """16 blocks of 64 channels on 4x4 cells."""
    return SRResNetRealSR(scale=scale, **settings)
