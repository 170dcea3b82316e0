"""MWCNN: a U-Net that goes down by the Haar wavelet transform and up by its inverse."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name that the field uses
from torch import Tensor, nn

from musigma.networks.base import Network
from musigma.networks.registry import Recognised, register

CELL = 8
"""Pixels per side that become one at the coarsest of the four resolutions."""


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
    # Pixel shuffle wants the four places of a channel one after the other.
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

    This is the form of the journal version (three levels, 64 to 512 channels, dilated); the first
    release, for MatConvNet, has 160 to 256 channels.

    Args:
        scale: 1.
        channels: 1 for grey images, 3 for colour.
        width: Channels at the finest resolution; each coarser one has twice as many.
        value_range: Range the layers work in. Official weights expect 255.
    """

    size_multiple = CELL

    def __init__(
        self, *, scale: int, channels: int = 3, width: int = 64, value_range: float = 1.0
    ) -> None:
        super().__init__()
        self.scale = self.feature_scale = scale
        self.in_channels = self.out_channels = channels
        self.feature_channels = width
        self.feature_receptive_radius = _reach(0)
        self.receptive_radius = _reach(1)
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
        """Return what the last convolution sees; its sides are multiples of eight."""
        first = self.d_l0(self.head(pad_to_cells(degraded) * self.value_range))
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


def pad_to_cells(image: Tensor) -> Tensor:
    """Repeat the last row and column until both sides are multiples of eight."""
    height, width = (CELL * ((side + CELL - 1) // CELL) for side in image.shape[-2:])
    # More than enough and a cut, which compilers see through sooner than a padding of any size.
    padded = F.pad(image, (0, CELL - 1, 0, CELL - 1), mode="replicate")
    return padded[..., :height, :width]


def _reach(last: int) -> int:
    """How far the layers see after which `last` further pixels are seen, from the worst place.

    Both ways alike: a cell of eight pixels is the mirror image of itself.
    """
    reaches = []
    for pixel in range(CELL):
        place = pixel + last + 3
        for convolutions in (4, 4):
            place = place // 2 + convolutions
        place = place // 2 + 1 + 5 + 5 + 1
        for convolutions in (4, 4):
            place = 2 * place + 1 + convolutions
        reaches.append(2 * place + 1 + 4 - pixel)
    return max(reaches)


def recognise(state: Mapping[str, Tensor]) -> Recognised | None:
    """Tell from its keys whether a state dict is an MWCNN; official ones work in 0..255."""
    head, tail = "head.0.body.0.weight", "tail.0.weight"
    if not {head, "pro_l3.3.body.0.weight", "i_l0.0.body.2.weight", tail} <= state.keys():
        return None
    name = "mwcnn" if state[tail].shape[0] == 3 else "mwcnn-grey"
    return name, 1, {"width": state[head].shape[0], "value_range": 255.0}


FACTS: dict[str, Any] = {
    "scales": (1,),
    "paper": "Liu et al., Multi-Level Wavelet Convolutional Neural Networks, IEEE Access 2019",
    "year": 2019,
}


@register("mwcnn", recognise=recognise, **FACTS)
def mwcnn(*, scale: int, **settings: Any) -> MWCNN:
    """For colour images."""
    return MWCNN(scale=scale, **settings)


@register("mwcnn-grey", **FACTS)
def mwcnn_grey(*, scale: int, **settings: Any) -> MWCNN:
    """For grey images."""
    return MWCNN(scale=scale, **{"channels": 1, **settings})
