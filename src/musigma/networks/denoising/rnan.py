"""RNAN: residual blocks whose values are weighted by masks, two of them by non-local ones."""

import torch
from torch import Tensor, nn

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.layers import conv3x3
from musigma.networks.registry import Variant, register_variants
from musigma.networks.state_dict import (
    RELEASED_RANGE,
    Recognised,
    State,
    count,
    recogniser,
    require,
    shape,
)

MANY_PAIRS = 2**24
"""Pairs of positions compared at once: 64 MiB of similarities."""


class ResidualBlock(nn.Module):
    """Conv, ReLU, Conv, added to the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv3x3(width, width), nn.ReLU(), conv3x3(width, width))

    def forward(self, features: Tensor) -> Tensor:
        """Refine the features."""
        return features + self.body(features)


def share_out(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Distribute each value among all positions by the similarity of their queries to its key.

    The paper lets each position take a mean of all values. The official code, and so its weights,
    normalizes along the other side of the matrix: the parts of each *value* sum to one.

    All are ``(N, positions, channels)``, as is the result.
    """
    # A part of the keys at a time, because the matrix of all pairs is too large for most images.
    # Compiled graphs have no loops whose length depends on the image; meta tensors need no memory.
    at_once = max(1, MANY_PAIRS // query.shape[1])
    if torch.compiler.is_compiling() or query.is_meta or query.shape[1] <= at_once:
        return (query @ key.mT).softmax(dim=1) @ value
    total = torch.zeros_like(value)
    pairs = zip(torch.split(key, at_once, 1), torch.split(value, at_once, 1), strict=True)
    for keys, values in pairs:
        total += (query @ keys.mT).softmax(dim=1) @ values
    return total


class NonLocal(nn.Module):
    """Adds to each position what the others distribute to it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = width // 2
        self.theta = nn.Conv2d(width, inner, kernel_size=1)
        self.phi = nn.Conv2d(width, inner, kernel_size=1)
        self.g = nn.Conv2d(width, inner, kernel_size=1)
        self.W = nn.Conv2d(inner, width, kernel_size=1)
        # The official code starts from 0, where no gradient passes in the first step.
        nn.init.normal_(self.W.weight, std=0.01)

    def forward(self, features: Tensor) -> Tensor:
        """Mix the positions."""
        query, key, value = (
            layer(features).flatten(2).mT for layer in (self.theta, self.phi, self.g)
        )
        mixed = share_out(query, key, value).mT
        return features + self.W(mixed.reshape(*mixed.shape[:2], *features.shape[-2:]))


class Mask(nn.Module):
    """Weights in ``(0, 1)`` for every value, from residual blocks at two resolutions."""

    def __init__(self, width: int, *, non_local: bool) -> None:
        super().__init__()
        first = [NonLocal(width)] if non_local else []
        self.MB_RB1 = nn.Sequential(*first, ResidualBlock(width))
        self.MB_Down = nn.Sequential(nn.Conv2d(width, width, 3, stride=2, padding=1))
        self.MB_RB2 = nn.Sequential(ResidualBlock(width), ResidualBlock(width))
        self.MB_Up = nn.Sequential(nn.ConvTranspose2d(width, width, 6, stride=2, padding=2))
        self.MB_RB3 = nn.Sequential(ResidualBlock(width))
        self.MB_1x1conv = nn.Sequential(nn.Conv2d(width, width, kernel_size=1))

    def forward(self, features: Tensor) -> Tensor:
        """Return the weights."""
        fine = self.MB_RB1(features)
        height, width = fine.shape[-2:]
        # An odd side becomes one pixel too long: it is halved, rounded up, and doubled.
        coarse = self.MB_Up(self.MB_RB2(self.MB_Down(fine)))[..., :height, :width]
        return torch.sigmoid(self.MB_1x1conv(self.MB_RB3(fine + coarse)))


class Trunk(nn.Module):
    """Two residual blocks, under the name of the official release."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(ResidualBlock(width), ResidualBlock(width))

    def forward(self, features: Tensor) -> Tensor:
        """Refine the features."""
        return self.body(features)


class Attention(nn.Module):
    """A trunk weighted by a mask, added to the input of both."""

    def __init__(self, width: int, *, non_local: bool) -> None:
        super().__init__()
        self.RA_RB1 = nn.Sequential(ResidualBlock(width))
        self.RA_TB = nn.Sequential(Trunk(width))
        self.RA_MB = nn.Sequential(Mask(width, non_local=non_local))
        self.RA_tail = nn.Sequential(ResidualBlock(width), ResidualBlock(width))

    def forward(self, features: Tensor) -> Tensor:
        """Refine the features."""
        seen = self.RA_RB1(features)
        return self.RA_tail(seen + self.RA_TB(seen) * self.RA_MB(seen))


class Group(nn.Module):
    """An attention and a convolution."""

    def __init__(self, width: int, *, non_local: bool = False) -> None:
        super().__init__()
        self.body = nn.Sequential(Attention(width, non_local=non_local), conv3x3(width, width))

    def forward(self, features: Tensor) -> Tensor:
        """Refine the features."""
        return self.body(features)


class RNAN(Network):
    """Residual non-local attention network, without a noise map; names are the official ones.

    Args:
        scale: 1.
        channels: 1 for gray images, 3 for color.
        num_groups: Groups, of which the first and the last are non-local.
        width: Channels of every block.
        value_range: Range the layers work in. Official weights expect 255.
    """

    def __init__(
        self,
        *,
        scale: int,
        channels: int = 3,
        num_groups: int = 10,
        width: int = 64,
        value_range: float = 1.0,
    ) -> None:
        super().__init__()
        self.info = NetworkInfo(
            scale=scale,
            task="denoising",
            in_channels=channels,
            out_channels=channels,
            feature_channels=width,
            feature_scale=scale,
            feature_receptive_radius=None,
            receptive_radius=None,
            size_multiple=2,
            fixed_activation_floats=2 * MANY_PAIRS,
        )
        self.value_range = value_range
        self.head = nn.Sequential(conv3x3(channels, width))
        self.body_nl_low = nn.Sequential(Group(width, non_local=True))
        groups = (Group(width) for _ in range(num_groups - 2))
        self.body = nn.Sequential(*groups, conv3x3(width, width))
        self.body_nl_high = nn.Sequential(Group(width, non_local=True))
        self.tail = nn.Sequential(conv3x3(width, channels))

    def features(self, degraded: Tensor) -> Tensor:
        """Return the input of the last convolution."""
        first = self.body_nl_low(self.head(degraded * self.value_range))
        return self.body_nl_high(self.body(first))

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Add the predicted residual to the image."""
        return degraded + self.tail(features) / self.value_range


@recogniser
def recognise(state: State) -> Recognised:
    """Tell whether a state dict is an RNAN; official ones work in 0..255."""
    shape(state, "head.0.weight", 4)
    shape(state, "body_nl_low.0.body.0.RA_MB.0.MB_RB1.0.theta.weight", 4)
    # The release for super-resolution has another tail.
    channels, width = shape(state, "tail.0.weight", 4)[:2]
    require(channels in (1, 3))
    num_local = count(state, r"body\..*MB_Up\.0\.weight")
    settings = {"num_groups": num_local + 2, "width": width, "value_range": RELEASED_RANGE}
    return "rnan" if channels == 3 else "rnan-grey", 1, settings


register_variants(
    RNAN,
    {
        "rnan": Variant("For color images: two non-local and eight local groups of 64 channels."),
        "rnan-grey": Variant("For gray images.", {"channels": 1}),
    },
    scales=(1,),
    paper="Zhang et al., Residual Non-local Attention Networks for Image Restoration, ICLR 2019",
    year=2019,
    recognise=recognise,
)
