"""IDN: blocks that keep a part of their features and distil the rest, then one deconvolution."""

from math import ceil

import torch
from torch import Tensor, nn

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.bicubic_layer import enlarge
from musigma.networks.registry import register
from musigma.networks.tile_exact_layers import SubPixelDeconv2d

SLOPE = 0.05


def conv_act(in_channels: int, out_channels: int, *, groups: int = 1) -> nn.Sequential:
    """A 3x3 convolution and its leaky activation."""
    conv = nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, groups=groups)
    return nn.Sequential(conv, nn.LeakyReLU(SLOPE, inplace=True))


class DistillationBlock(nn.Module):
    """An enhancement unit of twice three convolutions and a compression unit.

    A quarter of the features skips the second three and is concatenated with the input.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.kept = step = width // 4
        self.first = nn.Sequential(
            conv_act(width, width - step),
            conv_act(width - step, width - 2 * step, groups=4),
            conv_act(width - 2 * step, width),
        )
        self.second = nn.Sequential(
            conv_act(width - step, width),
            conv_act(width, width - step, groups=4),
            conv_act(width - step, width + step),
        )
        self.compress = nn.Sequential(
            nn.Conv2d(width + step, width, kernel_size=1), nn.LeakyReLU(SLOPE, inplace=True)
        )

    def forward(self, features: Tensor) -> Tensor:
        """Distil the features."""
        middle = self.first(features)
        kept, passed = middle[:, : self.kept], middle[:, self.kept :]
        return self.compress(torch.cat((features, kept), dim=1) + self.second(passed))


@register(
    "idn",
    scales=(2, 3, 4),
    summary="4 blocks of 64 channels.",
    paper="Hui et al., Fast and Accurate Single Image Super-Resolution via Information "
    "Distillation Network, CVPR 2018",
    year=2018,
)
class IDN(Network):
    """Information distillation network, on RGB; it corrects the bicubically enlarged image.

    Args:
        scale: 2, 3 or 4.
        num_blocks: Distillation blocks.
        width: Channels of the features, a multiple of 16 (four groups of a quarter).
    """

    def __init__(self, *, scale: int, num_blocks: int = 4, width: int = 64) -> None:
        super().__init__()
        trunk_radius = 2 + 6 * num_blocks
        self.info = NetworkInfo(
            scale=scale,
            task="super-resolution",
            feature_channels=width,
            feature_scale=scale,
            feature_receptive_radius=trunk_radius,
            # The kernel of the deconvolution reaches 8 pixels of the enlarged image.
            receptive_radius=trunk_radius + ceil(8 / scale),
        )
        self.head = nn.Sequential(conv_act(3, width), conv_act(width, width))
        self.body = nn.Sequential(*[DistillationBlock(width) for _ in range(num_blocks)])
        self.upsample = SubPixelDeconv2d(
            width, 3, kernel_size=17, stride=scale, padding=8, output_padding=scale - 1
        )

    def features(self, degraded: Tensor) -> Tensor:
        """Return the input of the deconvolution."""
        return self.body(self.head(degraded))

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Add the enlarged residual to the enlarged image."""
        return enlarge(degraded, self.scale) + self.upsample(features)
