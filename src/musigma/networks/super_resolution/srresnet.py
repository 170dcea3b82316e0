"""SRResNet: residual blocks with batch normalization; and the plain form of the RealSR paper."""

import math

from torch import Tensor, nn

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.bicubic_layer import enlarge, radius_before_enlarging
from musigma.networks.layers import conv3x3, enlarging_steps, pad_to_cells
from musigma.networks.registry import Variant, register_variants
from musigma.networks.tile_exact_layers import WideConv2d

CELL = 4
"""Pixels per side that the RealSR form turns into the channels of one pixel."""


class NormalizedBlock(nn.Module):
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
        trunk_radius = 4 + 2 * num_blocks + 1
        self.info = NetworkInfo(
            scale=scale,
            task="super-resolution",
            feature_channels=width,
            feature_scale=scale,
            feature_receptive_radius=trunk_radius,
            # The 9x9 convolution reaches two input pixels, the upsampler one more.
            receptive_radius=trunk_radius + 3,
        )
        self.head = nn.Sequential(WideConv2d(3, width, kernel_size=9), nn.PReLU())
        self.body = nn.Sequential(
            *[NormalizedBlock(width) for _ in range(num_blocks)],
            conv3x3(width, width, bias=False),
            nn.BatchNorm2d(width),
        )
        layers: list[nn.Module] = []
        for step in enlarging_steps(scale):
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
    """SRResNet for pairs of equal size: it works on 4x4 cells of the enlarged image.

    The trunk is that of the RealSR authors' release (cells, 16 plain blocks, no normalization). The
    two layers after it are not published; with a convolution and the sub-pixels the network has the
    1.31 M parameters of the table.

    Args:
        scale: 1 for an image of the final size, as RealSR has them; 2, 3 or 4 to enlarge it first.
        num_blocks: Residual blocks.
        width: Channels of every block.
    """

    def __init__(self, *, scale: int, num_blocks: int = 16, width: int = 64) -> None:
        super().__init__()
        common = math.gcd(CELL, scale)
        # A pixel sees whole cells, and so up to `CELL - common` pixels beyond the convolutions.
        trunk_radius = (2 + 2 * num_blocks) * CELL + CELL - common
        self.info = NetworkInfo(
            scale=scale,
            task="restoration" if scale == 1 else "super-resolution",
            feature_channels=width,
            feature_scale=CELL,
            feature_receptive_radius=radius_before_enlarging(trunk_radius, scale),
            receptive_radius=radius_before_enlarging(trunk_radius + 2 * CELL, scale),
            size_multiple=CELL // common,
        )
        self.head = conv3x3(3 * CELL**2, width)
        blocks = [PlainBlock(width) for _ in range(num_blocks)]
        self.body = nn.Sequential(*blocks, conv3x3(width, width))
        self.tail = nn.Sequential(
            conv3x3(width, width),
            nn.ReLU(inplace=True),
            conv3x3(width, 3 * CELL**2),
            nn.PixelShuffle(CELL),
        )

    def features(self, degraded: Tensor) -> Tensor:
        """Return the sum of the first and the last features of the trunk."""
        image = pad_to_cells(enlarge(degraded, self.scale), CELL)
        first = self.head(nn.functional.pixel_unshuffle(image, CELL))
        return first + self.body(first)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Turn the features into the pixels of each cell."""
        height, width = degraded.shape[-2:]
        return self.tail(features)[..., : height * self.scale, : width * self.scale]


register_variants(
    SRResNet,
    {"srresnet": Variant("16 blocks of 64 channels.")},
    scales=(2, 3, 4),
    paper="Ledig et al., Photo-Realistic Single Image Super-Resolution Using a GAN, CVPR 2017",
    year=2017,
)
register_variants(
    SRResNetRealSR,
    {"srresnet-realsr": Variant("16 blocks of 64 channels on 4x4 cells.")},
    scales=(1, 2, 3, 4),
    paper="Cai et al., Toward Real-World Single Image Super-Resolution, ICCV 2019",
    year=2019,
)
