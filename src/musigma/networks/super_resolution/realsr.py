"""The networks of the RealSR benchmark: DPS, KPN and LP-KPN on luma, and its smaller RCAN.

RealSR's pairs have equal sizes, for its low-resolution photographs are registered to the others.
So these networks refine an image of the final size: ``scale=1`` is the paper's setting, and the
other scales first enlarge the image by bicubic interpolation. To work at a quarter of the size,
they fold squares of 4x4 pixels into channels.
"""

import math
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from musigma.networks.base import Network, conv3x3
from musigma.networks.bicubic_layer import enlarge, radius_of
from musigma.networks.registry import register
from musigma.networks.super_resolution.rcan import RCAN

SCALES = (1, 2, 3, 4)
FOLD = 4


class ResidualBlock(nn.Module):
    """Conv, ReLU, Conv, added to the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv3x3(width, width), nn.ReLU(inplace=True), conv3x3(width, width)
        )

    def forward(self, features: Tensor) -> Tensor:
        """Refine the features."""
        return features + self.body(features)


def final_size(degraded: Tensor, scale: int) -> Tensor:
    """Return the image that the networks refine."""
    return degraded if scale == 1 else enlarge(degraded, scale)


def pad_to_fold(image: Tensor) -> Tensor:
    """Repeat the last row and column until both sides are multiples of the fold."""
    height, width = (FOLD * ((side + FOLD - 1) // FOLD) for side in image.shape[-2:])
    # More than enough and a cut, which compilers see through sooner than a padding of any size.
    padded = F.pad(image, (0, FOLD - 1, 0, FOLD - 1), mode="replicate")
    return padded[..., :height, :width]


def luma(image: Tensor) -> Tensor:
    """Return the BT.601 luma of RGB, ``(N, 1, H, W)`` in ``[0, 1]``."""
    red, green, blue = image.chunk(3, dim=1)
    return 0.299 * red + 0.587 * green + 0.114 * blue


def filter_pixels(image: Tensor, kernels: Tensor) -> Tensor:
    """Filter each pixel with a kernel of its own: the kernel's product with the square around it.

    Args:
        image: ``(N, 1, H, W)``; zero outside.
        kernels: ``(N, k^2, H, W)``, each row by row, k odd.
    """
    size = math.isqrt(kernels.shape[1])
    height = image.shape[-2]
    padded = F.pad(image, (size // 2,) * 4)
    result = torch.zeros_like(image)
    # Row by row of the kernels, because all neighbours at once would need k^2 images of memory.
    for row in range(size):
        neighbours = padded[:, 0, row : row + height].unfold(-1, size, 1)
        weights = kernels[:, row * size : (row + 1) * size].movedim(1, -1)
        result = result + (neighbours * weights).sum(-1).unsqueeze(1)
    return result


def radius_of_fold(scale: int, *, depth: int, tail: int) -> int:
    """Radius in input pixels of convolutions on folded squares, then on pixels of the final size.

    Args:
        scale: Zoom factor before folding.
        depth: How many squares the former reach.
        tail: How many pixels the latter reach.
    """
    # From the furthest pixel that the tail sees, the network sees the whole of its square.
    rest = FOLD - 1 - (tail - 1) % math.gcd(FOLD, scale)
    reach = tail + rest + FOLD * depth
    return reach if scale == 1 else radius_of(reach, scale)


def pixel_head(width: int, zoom: int, out_channels: int) -> nn.Sequential:
    """Unfold features by a zoom and turn them into so many values for each pixel."""
    return nn.Sequential(
        nn.PixelShuffle(zoom),
        conv3x3(width // zoom**2, width),
        nn.ReLU(inplace=True),
        conv3x3(width, width),
        nn.ReLU(inplace=True),
        conv3x3(width, out_channels),
    )


class LumaNetwork(Network):
    """The trunk that DPS, KPN and LP-KPN share, layer by layer that of the authors' release.

    It restores luma, the channel that they measure, and leaves chroma as it is.

    Args:
        scale: 1 for an image of the final size; 2, 3 or 4 to enlarge it first.
        num_blocks: Residual blocks.
        width: Channels of every block.

    Attributes:
        tail_depth: Squares that the layers after the trunk reach.
        tail_reach: Pixels that they reach after that.
    """

    feature_scale = FOLD
    tail_depth: int = 0
    tail_reach: int = 3

    def __init__(self, *, scale: int, num_blocks: int = 16, width: int = 64) -> None:
        super().__init__()
        self.scale = scale
        self.feature_channels = width
        self.size_multiple = FOLD // math.gcd(FOLD, scale)
        depth = 2 + 2 * num_blocks
        self.feature_receptive_radius = radius_of_fold(scale, depth=depth, tail=0)
        self.receptive_radius = radius_of_fold(
            scale, depth=depth + self.tail_depth, tail=self.tail_reach
        )
        self.head = conv3x3(FOLD**2, width)
        blocks = [ResidualBlock(width) for _ in range(num_blocks)]
        self.body = nn.Sequential(*blocks, conv3x3(width, width))

    @abstractmethod
    def restore(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Return the restored luma, perhaps with padding below and to the right."""

    def features(self, degraded: Tensor) -> Tensor:
        """Return the sum of the first and the last features of the trunk."""
        folded = F.pixel_unshuffle(pad_to_fold(luma(final_size(degraded, self.scale))), FOLD)
        first = self.head(folded)
        return first + self.body(first)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Change the luma of the enlarged image."""
        image = final_size(degraded, self.scale)
        height, width = image.shape[-2:]
        degraded = luma(image)
        restored = self.restore(features, degraded)[..., :height, :width]
        return image + (restored - degraded)


class DPS(LumaNetwork):
    """Direct pixel synthesis: the trunk's features become pixels.

    The authors' release leaves it out; here the layers after the trunk are those of KPN.
    """

    def __init__(self, *, scale: int, num_blocks: int = 16, width: int = 64) -> None:
        super().__init__(scale=scale, num_blocks=num_blocks, width=width)
        self.pixels = pixel_head(width, FOLD, 1)

    def restore(self, features: Tensor, degraded: Tensor) -> Tensor:  # noqa: ARG002
        """Return the synthesised pixels."""
        return self.pixels(features)


class KPN(LumaNetwork):
    """Kernel prediction: each pixel is filtered with a kernel made from the features.

    Args:
        scale: This, the blocks and the width are those of `LumaNetwork`.
        num_blocks: See above.
        width: See above.
        kernel_size: Side of the kernels, odd.
    """

    def __init__(
        self, *, scale: int, num_blocks: int = 16, width: int = 64, kernel_size: int = 19
    ) -> None:
        super().__init__(scale=scale, num_blocks=num_blocks, width=width)
        self.kernels = pixel_head(width, FOLD, kernel_size**2)

    def restore(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Return the filtered luma."""
        height, width = degraded.shape[-2:]
        return filter_pixels(degraded, self.kernels(features)[..., :height, :width])


class LPKPN(LumaNetwork):
    """Kernel prediction on a Laplacian pyramid of three levels, where small kernels reach far.

    Args:
        scale: This, the blocks and the width are those of `LumaNetwork`.
        num_blocks: See above.
        width: See above.
        kernel_size: Side of the kernels, odd.
    """

    # What sees furthest is the top: three convolutions, then two upsamplings of two pixels each.
    tail_depth = 3
    tail_reach = 2 * 2 + 2
    blur: Tensor

    def __init__(
        self, *, scale: int, num_blocks: int = 16, width: int = 64, kernel_size: int = 5
    ) -> None:
        super().__init__(scale=scale, num_blocks=num_blocks, width=width)
        self.kernels = nn.ModuleList(
            pixel_head(width, zoom, kernel_size**2) for zoom in (FOLD, 2, 1)
        )
        binomial = torch.tensor([1.0, 4.0, 6.0, 4.0, 1.0]) / 16
        self.register_buffer("blur", torch.outer(binomial, binomial)[None, None], persistent=False)

    def restore(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Return the pyramid put together again after filtering each level."""
        image = pad_to_fold(degraded)
        half = self._shrink(image)
        quarter = self._shrink(half)
        levels = (image - self._grow(half), half - self._grow(quarter), quarter)
        fine, middle, coarse = (
            filter_pixels(level, head(features))
            for level, head in zip(levels, self.kernels, strict=True)
        )
        return fine + self._grow(middle + self._grow(coarse))

    def _shrink(self, image: Tensor) -> Tensor:
        return F.conv2d(image, self.blur, stride=2, padding=2)

    def _grow(self, image: Tensor) -> Tensor:
        # The transposed convolution with 4 times the blur, which makes up for the zeros between the
        # pixels, as sums: these round a pixel alike wherever a tile ends.
        for dim in (2, 3):
            size = image.shape[dim]
            padded = F.pad(image, (0, 0, 1, 1) if dim == 2 else (1, 1, 0, 0))
            before, after = padded.narrow(dim, 0, size), padded.narrow(dim, 2, size)
            even, odd = (before + after) / 8 + image * 0.75, (image + after) / 2
            image = torch.stack((even, odd), dim + 1).flatten(dim, dim + 1)
        return image


class RealSRRCAN(RCAN):
    """RCAN on all three folded colours, with the upsampler of x4 to undo the folding.

    RealSR says neither how many groups and blocks there are nor what is done with colour; this form
    has 8.175M parameters, the nearest to the printed 8.18M (on luma alone it would be 8.155M).

    Args:
        scale: 1 for an image of the final size; 2, 3 or 4 to enlarge it first.
        num_groups: Residual groups.
        num_blocks: Attention blocks of a group.
        width: Channels of every block.
        reduction: Width over the channels inside the attention.
    """

    def __init__(
        self,
        *,
        scale: int,
        num_groups: int = 10,
        num_blocks: int = 10,
        width: int = 64,
        reduction: int = 16,
    ) -> None:
        super().__init__(
            scale=FOLD,
            num_groups=num_groups,
            num_blocks=num_blocks,
            width=width,
            reduction=reduction,
        )
        self.scale = scale
        self.size_multiple = FOLD // math.gcd(FOLD, scale)
        self.head = nn.Sequential(conv3x3(3 * FOLD**2, width))

    def features(self, degraded: Tensor) -> Tensor:
        """Return the sum of the first and the last features of the trunk."""
        image = pad_to_fold(final_size(self.shift(degraded), self.scale))
        first = self.head(F.pixel_unshuffle(image, FOLD))
        return first + self.body(first)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Unfold the features into an image."""
        height, width = degraded.shape[-2] * self.scale, degraded.shape[-1] * self.scale
        return super().reconstruct(features, degraded)[..., :height, :width]


PAPER = (
    "Cai et al., Toward Real-World Single Image Super-Resolution: A New Benchmark and A New Model, "
    "ICCV 2019"
)


@register("dps", scales=SCALES, paper=PAPER, year=2019)
def dps(*, scale: int, **settings: Any) -> DPS:
    """16 blocks of 64 channels."""
    return DPS(scale=scale, **settings)


@register("kpn", scales=SCALES, paper=PAPER, year=2019)
def kpn(*, scale: int, **settings: Any) -> KPN:
    """Kernels of 19x19 pixels."""
    return KPN(scale=scale, **settings)


@register("lp-kpn", scales=SCALES, paper=PAPER, year=2019)
def lp_kpn(*, scale: int, **settings: Any) -> LPKPN:
    """Kernels of 5x5 pixels on three levels."""
    return LPKPN(scale=scale, **settings)


@register("rcan-realsr", scales=SCALES, paper=PAPER, year=2019)
def rcan_realsr(*, scale: int, **settings: Any) -> RealSRRCAN:
    """10 groups of 10 blocks."""
    return RealSRRCAN(scale=scale, **settings)
