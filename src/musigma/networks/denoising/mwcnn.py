"""MWCNN: a U-Net that goes down by the Haar wavelet transform and up by its inverse."""

import torch
import torch.nn.functional as F  # noqa: N812 - the name that the field uses
from torch import Tensor, nn

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.layers import pad_to_cells
from musigma.networks.receptive_field import Step, radius_through
from musigma.networks.registry import Variant, register_variants
from musigma.networks.state_dict import (
    RELEASED_RANGE,
    Recognised,
    State,
    recogniser,
    require,
    shape,
)

CELL = 8
"""Pixels per side that become one at the coarsest of the four resolutions."""

STEPS: list[Step] = [4, "halve", 4, "halve", 4, "halve", 12, "double", 4, "double", 4, "double", 3]
"""Radii of the convolutions at each resolution, for the receptive radius."""


def haar(image: Tensor) -> Tensor:
    """Return the orthonormal Haar transform, ``(N, 4 C, H / 2, W / 2)``; H and W are even.

    The order is that of the official weights: means, then differences from left to right, from top
    to bottom, and along the diagonals, each of all channels.

    Example:
        >>> haar(torch.tensor([[[[1.0, 2.0], [5.0, 10.0]]]])).flatten().tolist()
        [9.0, 3.0, 6.0, 2.0]
    """
    top, bottom = image[..., 0::2, :] / 2, image[..., 1::2, :] / 2
    total, fall = top + bottom, bottom - top
    left, right = total[..., 0::2], total[..., 1::2]
    left_fall, right_fall = fall[..., 0::2], fall[..., 1::2]
    bands = (left + right, right - left, left_fall + right_fall, right_fall - left_fall)
    return torch.cat(bands, dim=1)


def inverse_haar(bands: Tensor) -> Tensor:
    """Undo `haar`.

    Example:
        >>> image = torch.rand(1, 3, 6, 4)
        >>> torch.allclose(inverse_haar(haar(image)), image, atol=1e-6)
        True
    """
    mean, across, down, diagonal = (bands / 2).chunk(4, dim=1)
    left, right = mean - across, mean + across
    left_fall, right_fall = down - diagonal, down + diagonal
    pixels = (left - left_fall, right - right_fall, left + left_fall, right + right_fall)
    # Pixel shuffle expects the four pixels of a channel one after the other.
    return F.pixel_shuffle(torch.stack(pixels, dim=2).flatten(1, 2), 2)


class Block(nn.Module):
    """Convolutions, one for each dilation, with a ReLU after each."""

    def __init__(self, in_channels: int, out_channels: int, *dilations: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for dilation in dilations:
            layer = nn.Conv2d(in_channels, out_channels, 3, padding=dilation, dilation=dilation)
            # Keeps the variance through 24 layers (He et al. 2015).
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            layers += [layer, nn.ReLU()]
            in_channels = out_channels
        self.body = nn.Sequential(*layers)

    def forward(self, features: Tensor) -> Tensor:
        """Apply the layers."""
        return self.body(features)


class MWCNN(Network):
    """Multi-level wavelet network, without a noise map; names are those of the second release.

    This is the network of the journal paper (three levels, 64 to 512 channels, dilated); the first
    release, for MatConvNet, has 160 to 256 channels.

    Args:
        scale: 1.
        channels: 1 for gray images, 3 for color.
        width: Channels at the finest resolution; each coarser one has twice as many.
        value_range: Range the layers work in. Official weights expect 255.
    """

    def __init__(
        self, *, scale: int, channels: int = 3, width: int = 64, value_range: float = 1.0
    ) -> None:
        super().__init__()
        self.info = NetworkInfo(
            scale=scale,
            task="denoising",
            in_channels=channels,
            out_channels=channels,
            feature_channels=width,
            feature_scale=scale,
            feature_receptive_radius=radius_through(STEPS, cell=CELL),
            receptive_radius=radius_through([*STEPS, 1], cell=CELL),
            size_multiple=CELL,
        )
        self.value_range = value_range
        first, second, third, fourth = (width * 2**level for level in range(4))
        self.head = nn.Sequential(Block(channels, first, 1))
        self.d_l0 = nn.Sequential(Block(first, first, 2, 1))
        self.d_l1 = nn.Sequential(Block(4 * first, second, 1), Block(second, second, 2, 1))
        self.d_l2 = nn.Sequential(Block(4 * second, third, 1), Block(third, third, 2, 1))
        self.pro_l3 = nn.Sequential(
            Block(4 * third, fourth, 1),
            Block(fourth, fourth, 2, 3),
            Block(fourth, fourth, 3, 2),
            Block(fourth, 4 * third, 1),
        )
        self.i_l2 = nn.Sequential(Block(third, third, 2, 1), Block(third, 4 * second, 1))
        self.i_l1 = nn.Sequential(Block(second, second, 2, 1), Block(second, 4 * first, 1))
        self.i_l0 = nn.Sequential(Block(first, first, 2, 1))
        self.tail = nn.Sequential(nn.Conv2d(first, channels, 3, padding=1))

    def features(self, degraded: Tensor) -> Tensor:
        """Return the input of the last convolution; its sides are multiples of eight."""
        first = self.d_l0(self.head(pad_to_cells(degraded, CELL) * self.value_range))
        second = self.d_l1(haar(first))
        third = self.d_l2(haar(second))
        features = inverse_haar(self.pro_l3(haar(third))) + third
        features = inverse_haar(self.i_l2(features)) + second
        features = inverse_haar(self.i_l1(features)) + first
        return self.i_l0(features)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Add the predicted residual to the image."""
        height, width = degraded.shape[-2:]
        return degraded + self.tail(features)[..., :height, :width] / self.value_range


@recogniser
def recognise(state: State) -> Recognised:
    """Tell whether a state dict is an MWCNN; official ones work in 0..255."""
    for key in ("pro_l3.3.body.0.weight", "i_l0.0.body.2.weight"):
        shape(state, key, 4)
    width = shape(state, "head.0.body.0.weight", 4)[0]
    channels = shape(state, "tail.0.weight", 4)[0]
    require(channels in (1, 3))
    name = "mwcnn" if channels == 3 else "mwcnn-grey"
    return name, 1, {"width": width, "value_range": RELEASED_RANGE}


register_variants(
    MWCNN,
    {
        "mwcnn": Variant("For color images."),
        "mwcnn-grey": Variant("For gray images.", {"channels": 1}),
    },
    scales=(1,),
    paper="Liu et al., Multi-Level Wavelet Convolutional Neural Networks, IEEE Access 2019",
    year=2019,
    recognise=recognise,
)
