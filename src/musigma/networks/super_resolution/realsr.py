"""The networks of the RealSR benchmark: DPS, KPN and LP-KPN on luma, and its smaller RCAN.

The images of a RealSR pair have equal sizes, because the low-resolution photograph is registered to
the other one. So these networks refine an image of the final size: ``scale=1`` is the setting of
the paper, and the other scales first enlarge the image by bicubic interpolation. To work at a
quarter of the size, the networks fold squares of 4x4 pixels into channels.
"""

import math
from abc import abstractmethod
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from musigma.networks.base import Network, NetworkInfo, Task
from musigma.networks.bicubic_layer import enlarge, radius_before_enlarging
from musigma.networks.layers import conv3x3, pad_to_cells, set_to_zero
from musigma.networks.registry import Variant, register_variants
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


def task_at(scale: int) -> Task:
    """Return the task: at scale 1 the networks restore one photograph of a real pair."""
    return "restoration" if scale == 1 else "super-resolution"


def luma(image: Tensor) -> Tensor:
    """Return the BT.601 luma of RGB, ``(N, 1, H, W)`` in ``[0, 1]``."""
    red, green, blue = image.chunk(3, dim=1)
    return 0.299 * red + 0.587 * green + 0.114 * blue


def filter_pixels(image: Tensor, kernels: Tensor) -> Tensor:
    """Filter each pixel with a kernel of its own: the kernel's product with the square around it.

    Args:
        image: ``(N, 1, H, W)``; zero outside.
        kernels: ``(N, k^2, H, W)``: each kernel row by row, with odd k.
    """
    size = math.isqrt(kernels.shape[1])
    height = image.shape[-2]
    padded = F.pad(image, (size // 2,) * 4)
    result = torch.zeros_like(image)
    # One row of the kernels at a time, because all neighbors would need k^2 images of memory.
    for row in range(size):
        neighbors = padded[:, 0, row : row + height].unfold(-1, size, 1)
        weights = kernels[:, row * size : (row + 1) * size].movedim(1, -1)
        result = result + (neighbors * weights).sum(-1).unsqueeze(1)
    return result


def folded_radius(scale: int, *, square_radius: int, pixel_radius: int) -> int:
    """Receptive radius, in input pixels, of layers on folded squares and then on pixels.

    Args:
        scale: Zoom factor before folding.
        square_radius: Radius of the layers on squares, in squares.
        pixel_radius: Radius of the layers on pixels of the final size.
    """
    # The network sees the whole square of the furthest pixel.
    rest = FOLD - 1 - (pixel_radius - 1) % math.gcd(FOLD, scale)
    return radius_before_enlarging(pixel_radius + rest + FOLD * square_radius, scale)


def pixel_head(width: int, zoom: int, out_channels: int, *, zero: bool) -> nn.Sequential:
    """Unfold features by a factor and turn them into `out_channels` values for each pixel.

    Args:
        width: Channels of the features.
        zoom: The factor.
        out_channels: Values for each pixel.
        zero: Whether all values are zero before training.
    """
    head = nn.Sequential(
        nn.PixelShuffle(zoom),
        conv3x3(width // zoom**2, width),
        nn.ReLU(inplace=True),
        conv3x3(width, width),
        nn.ReLU(inplace=True),
        conv3x3(width, out_channels),
    )
    if zero:
        set_to_zero(head[-1])
    return head


class LumaNetwork(Network):
    """The trunk that DPS, KPN and LP-KPN share, with the layers of the authors' release.

    It restores luma, the channel that the paper measures, and leaves chroma as it is.

    Args:
        scale: 1 for an image of the final size; 2, 3 or 4 to enlarge it first.
        num_blocks: Residual blocks.
        width: Channels of every block.
        residual: Whether the network predicts a change of the image, which is zero before training.
            The authors' release does not; it helps short trainings.

    Attributes:
        tail_square_radius: Radius of the layers after the trunk, in squares.
        tail_pixel_radius: Radius of the layers after those, in pixels.
    """

    tail_square_radius: int = 0
    tail_pixel_radius: int = 3

    def __init__(
        self, *, scale: int, num_blocks: int = 16, width: int = 64, residual: bool = False
    ) -> None:
        super().__init__()
        self.residual = residual
        trunk_radius = 2 + 2 * num_blocks
        self.info = NetworkInfo(
            scale=scale,
            task=task_at(scale),
            feature_channels=width,
            feature_scale=FOLD,
            feature_receptive_radius=folded_radius(
                scale, square_radius=trunk_radius, pixel_radius=0
            ),
            receptive_radius=folded_radius(
                scale,
                square_radius=trunk_radius + self.tail_square_radius,
                pixel_radius=self.tail_pixel_radius,
            ),
            size_multiple=FOLD // math.gcd(FOLD, scale),
        )
        self.head = conv3x3(FOLD**2, width)
        blocks = [ResidualBlock(width) for _ in range(num_blocks)]
        self.body = nn.Sequential(*blocks, conv3x3(width, width))

    @abstractmethod
    def restore(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Return the restored luma or its change, perhaps padded below and to the right."""

    def features(self, degraded: Tensor) -> Tensor:
        """Return the sum of the first and the last features of the trunk."""
        folded = F.pixel_unshuffle(pad_to_cells(luma(final_size(degraded, self.scale)), FOLD), FOLD)
        first = self.head(folded)
        return first + self.body(first)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Change the luma of the enlarged image."""
        image = final_size(degraded, self.scale)
        height, width = image.shape[-2:]
        degraded = luma(image)
        restored = self.restore(features, degraded)[..., :height, :width]
        return image + (restored if self.residual else restored - degraded)


class DPS(LumaNetwork):
    """Direct pixel synthesis: the trunk's features become pixels.

    The authors' release does not contain it; here the layers after the trunk are those of KPN.
    """

    def __init__(
        self, *, scale: int, num_blocks: int = 16, width: int = 64, residual: bool = False
    ) -> None:
        super().__init__(scale=scale, num_blocks=num_blocks, width=width, residual=residual)
        self.pixels = pixel_head(width, FOLD, 1, zero=residual)

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
        residual: As that of `LumaNetwork`.
    """

    def __init__(
        self,
        *,
        scale: int,
        num_blocks: int = 16,
        width: int = 64,
        kernel_size: int = 19,
        residual: bool = False,
    ) -> None:
        super().__init__(scale=scale, num_blocks=num_blocks, width=width, residual=residual)
        self.kernels = pixel_head(width, FOLD, kernel_size**2, zero=residual)

    def restore(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Return the filtered luma."""
        height, width = degraded.shape[-2:]
        return filter_pixels(degraded, self.kernels(features)[..., :height, :width])


class LPKPN(LumaNetwork):
    """Kernel prediction on a Laplacian pyramid of three levels, so that small kernels are enough.

    Args:
        scale: This, the blocks and the width are those of `LumaNetwork`.
        num_blocks: See above.
        width: See above.
        kernel_size: Side of the kernels, odd.
        residual: As that of `LumaNetwork`.
    """

    # The coarsest level sees furthest: three convolutions, then two upsamplings of two pixels each.
    tail_square_radius = 3
    tail_pixel_radius = 2 * 2 + 2
    blur: Tensor

    def __init__(
        self,
        *,
        scale: int,
        num_blocks: int = 16,
        width: int = 64,
        kernel_size: int = 5,
        residual: bool = False,
    ) -> None:
        super().__init__(scale=scale, num_blocks=num_blocks, width=width, residual=residual)
        self.kernels = nn.ModuleList(
            pixel_head(width, zoom, kernel_size**2, zero=residual) for zoom in (FOLD, 2, 1)
        )
        binomial = torch.tensor([1.0, 4.0, 6.0, 4.0, 1.0]) / 16
        self.register_buffer("blur", torch.outer(binomial, binomial)[None, None], persistent=False)

    def restore(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Filter each level of the pyramid and add the levels up again."""
        image = pad_to_cells(degraded, FOLD)
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
        # A transposed convolution with 4 times the blur (for the zeros between the pixels), written
        # as sums, whose rounding does not depend on where a tile ends.
        for dim in (2, 3):
            size = image.shape[dim]
            padded = F.pad(image, (0, 0, 1, 1) if dim == 2 else (1, 1, 0, 0))
            before, after = padded.narrow(dim, 0, size), padded.narrow(dim, 2, size)
            even, odd = (before + after) / 8 + image * 0.75, (image + after) / 2
            image = torch.stack((even, odd), dim + 1).flatten(dim, dim + 1)
        return image


class RealSRRCAN(RCAN):
    """RCAN on all three folded colors, with the upsampler of x4 to undo the folding.

    The paper tells neither the number of groups and blocks nor what is done with color. This form
    has 8.175M parameters, nearest to the printed 8.18M (on luma alone it would have 8.155M).

    Args:
        scale: 1 for an image of the final size; 2, 3 or 4 to enlarge it first.
        num_groups: Residual groups.
        num_blocks: Attention blocks of a group.
        width: Channels of every block.
        reduction: Width divided by the channels inside the attention.
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
        self.info = replace(
            self.info,
            scale=scale,
            task=task_at(scale),
            size_multiple=FOLD // math.gcd(FOLD, scale),
        )
        self.head = nn.Sequential(conv3x3(3 * FOLD**2, width))

    def features(self, degraded: Tensor) -> Tensor:
        """Return the sum of the first and the last features of the trunk."""
        image = pad_to_cells(final_size(self.shift(degraded), self.scale), FOLD)
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

register_variants(
    DPS, {"dps": Variant("16 blocks of 64 channels.")}, scales=SCALES, paper=PAPER, year=2019
)
register_variants(
    KPN, {"kpn": Variant("Kernels of 19x19 pixels.")}, scales=SCALES, paper=PAPER, year=2019
)
register_variants(
    LPKPN,
    {"lp-kpn": Variant("Kernels of 5x5 pixels on three levels.")},
    scales=SCALES,
    paper=PAPER,
    year=2019,
)
register_variants(
    RealSRRCAN,
    {"rcan-realsr": Variant("10 groups of 10 blocks.")},
    scales=SCALES,
    paper=PAPER,
    year=2019,
)
