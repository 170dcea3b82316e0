"""SPAN: plain 3x3 convolutions whose result is also the attention on it; and SPAN-S."""

import re

import torch
import torch.nn.functional as F  # noqa: N812 - the name that the field uses
from torch import Tensor, nn

from musigma.networks.base import Network, NetworkInfo, Settings
from musigma.networks.layers import MeanShift, conv3x3
from musigma.networks.registry import Variant, register_variants
from musigma.networks.state_dict import (
    RELEASED_RANGE,
    Recognised,
    State,
    count,
    pixel_shuffle_factor,
    recogniser,
    require,
    shape,
    tensor,
)

OFFICIAL_PART = re.compile(r"(.+)\.(?:sk|conv\.[012]|eval_conv)\.(?:weight|bias)")
"""Key of a part of an official convolution; the group is the name of the convolution."""

SMALL_WIDTH = 48
"""Channels of SPAN-S."""

NO_NORM = "no_norm"
"""A key by which files of the community say that the network takes images as they are."""


def merged(
    expand: tuple[Tensor, Tensor],
    spread: tuple[Tensor, Tensor],
    shrink: tuple[Tensor, Tensor],
    skip: tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor]:
    """Return weight and bias of the one 3x3 convolution that equals the official training form.

    That form is a 1x1, a 3x3 and a 1x1 convolution in a row, and a 1x1 convolution beside them.
    The image is padded before the first of them, so that the sum is one convolution even at the
    border. Computed in float64.

    Args:
        expand: Weight and bias of the first 1x1 convolution.
        spread: Those of the 3x3 convolution.
        shrink: Those of the last 1x1 convolution.
        skip: Those of the 1x1 convolution beside them.

    Example:
        >>> ones = torch.ones(1, 1, 1, 1), torch.ones(1)
        >>> weight, bias = merged(ones, (torch.ones(1, 1, 3, 3), torch.ones(1)), ones, ones)
        >>> weight[0, 0].tolist(), bias.tolist()
        ([[1.0, 1.0, 1.0], [1.0, 2.0, 1.0], [1.0, 1.0, 1.0]], [12.0])
    """
    dtype = spread[0].dtype
    (first, first_bias), (middle, middle_bias), (last, last_bias), (beside, beside_bias) = (
        (weight.double(), bias.double()) for weight, bias in (expand, spread, shrink, skip)
    )
    outer, inner = last.flatten(1), first.flatten(1)
    weight = torch.einsum("om,mnhw,ni->oihw", outer, middle, inner) + F.pad(beside, (1, 1, 1, 1))
    bias = outer @ (middle.sum((2, 3)) @ first_bias + middle_bias) + last_bias + beside_bias
    return weight.to(dtype), bias.to(dtype)


def initial_conv(in_channels: int, out_channels: int) -> nn.Conv2d:
    """A 3x3 convolution that starts with the weights with which the official form starts.

    Most of such a start is the 1x1 convolution beside the others. PyTorch's own start would be
    another one.
    """
    parts = (
        nn.Conv2d(in_channels, 2 * in_channels, kernel_size=1),
        nn.Conv2d(2 * in_channels, 2 * out_channels, kernel_size=3),
        nn.Conv2d(2 * out_channels, out_channels, kernel_size=1),
        nn.Conv2d(in_channels, out_channels, kernel_size=1),
    )
    conv = conv3x3(in_channels, out_channels)
    assert conv.bias is not None
    if conv.weight.is_meta:  # without values; PyTorch takes seconds for sums of such tensors
        return conv
    with torch.no_grad():
        weight, bias = merged(*((part.weight, _bias(part)) for part in parts))
        conv.weight.copy_(weight)
        conv.bias.copy_(bias)
    return conv


def _bias(conv: nn.Conv2d) -> Tensor:
    assert conv.bias is not None
    return conv.bias


class AttentionBlock(nn.Module):
    """Three convolutions; an odd function of their result weighs the sum of result and input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.c1_r = initial_conv(width, width)
        self.c2_r = initial_conv(width, width)
        self.c3_r = initial_conv(width, width)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return the refined features, and what is between the first two convolutions."""
        first = F.silu(self.c1_r(features))
        residual = self.c3_r(F.silu(self.c2_r(first)))
        # sigmoid(x) - 1/2, but small values do not cancel in half precision.
        attention = 0.5 * torch.tanh(0.5 * residual)
        return (features + residual) * attention, first


def adapt(state: State) -> dict[str, Tensor]:
    """Merge the parts of each official convolution into one; others keep their names.

    Official files hold the parts and, beside them, a merged copy that may be older than they are.
    Files of others hold the merged copy alone.
    """
    parts = {key: OFFICIAL_PART.fullmatch(key) for key in state}
    adapted = {key: state[key] for key, part in parts.items() if part is None and key != NO_NORM}
    for name in dict.fromkeys(part[1] for part in parts.values() if part):
        adapted[f"{name}.weight"], adapted[f"{name}.bias"] = _merge_layer(state, name)
    return adapted


def _merge_layer(state: State, name: str) -> tuple[Tensor, Tensor]:
    if f"{name}.sk.weight" not in state:
        return tensor(state, f"{name}.eval_conv.weight"), tensor(state, f"{name}.eval_conv.bias")
    layers = [f"{name}.conv.{index}" for index in range(3)] + [f"{name}.sk"]
    parts = [(tensor(state, f"{part}.weight"), tensor(state, f"{part}.bias")) for part in layers]
    kernels = [shape(state, f"{part}.weight", 4) for part in layers]
    (first, *_), (middle, *_), (last, *_), (_, channels, *_) = kernels
    expected = [(first, channels, 1, 1), (middle, first, 3, 3)]
    expected += [(last, middle, 1, 1), (last, channels, 1, 1)]
    require(kernels == expected)
    require(all(tuple(bias.shape) == weight.shape[:1] for weight, bias in parts))
    return merged(*parts)


@recogniser
def recognise(state: State) -> Recognised:
    """Tell whether a state dict is a SPAN: official, merged by others, or ours."""
    parts = ("sk.weight", "eval_conv.weight", "weight")
    part = next((part for part in parts if f"conv_1.{part}" in state), "weight")
    width, channels = shape(state, f"conv_1.{part}", 4)[:2]
    require(channels == 3)
    require(shape(state, "conv_cat.weight", 4)[:2] == (width, 4 * width))
    num_blocks = count(state, r"block_\d+\.c1_r\." + re.escape(part))
    scale = pixel_shuffle_factor(shape(state, "upsampler.0.weight", 4)[0], 3)
    settings: Settings = {"num_blocks": num_blocks, "width": width}
    if NO_NORM in state:
        settings["normalises"] = False
    return "span-s" if width == SMALL_WIDTH else "span", scale, settings


class SPAN(Network):
    """Swift parameter-free attention network, in its merged form.

    While it is trained officially, each 3x3 convolution is four convolutions whose sum is linear.
    Here it is the one convolution that equals them, in training as well. Parameter names are those
    of the official release without the names of the parts.

    Args:
        scale: 2, 3 or 4.
        num_blocks: Attention blocks.
        width: Channels of every block.
        value_range: Range into which the image is stretched before the first convolution. The
            result is in 0 to 1 in any case. Official weights expect 255.
        normalises: Whether the mean color is subtracted and the image stretched, as official
            weights expect. Many files of the community take the image as it is.
    """

    def __init__(
        self,
        *,
        scale: int,
        num_blocks: int = 6,
        width: int = 52,
        value_range: float = RELEASED_RANGE,
        normalises: bool = True,
    ) -> None:
        super().__init__()
        trunk_radius = 2 + 3 * num_blocks
        self.info = NetworkInfo(
            scale=scale,
            task="super-resolution",
            feature_channels=width,
            feature_scale=scale,
            feature_receptive_radius=trunk_radius,
            receptive_radius=trunk_radius + 1,
        )
        self.shift = (
            MeanShift(value_range=value_range)
            if normalises
            else MeanShift(value_range=1.0, mean=(0.0, 0.0, 0.0))
        )
        self.conv_1 = initial_conv(3, width)
        self.blocks = [f"block_{index}" for index in range(1, num_blocks + 1)]
        for name in self.blocks:
            self.add_module(name, AttentionBlock(width))
        self.conv_cat = nn.Conv2d(4 * width, width, kernel_size=1)
        self.conv_2 = initial_conv(width, width)
        last = conv3x3(width, 3 * scale**2)
        if not last.weight.is_meta:
            # The result is in 0 to 1, while features grow with the range: without this, training
            # would start with a result that is far too large.
            last.weight.data /= self.shift.value_range
        self.upsampler = nn.Sequential(last, nn.PixelShuffle(scale))

    def features(self, degraded: Tensor) -> Tensor:
        """Return the fusion of the first features with those of the first and the last block."""
        first = last = self.conv_1(self.shift(degraded))
        outputs = []
        for name in self.blocks:
            last, inner = self.get_submodule(name)(last)
            outputs.append(last)
        return self.conv_cat(torch.cat((first, self.conv_2(last), outputs[0], inner), dim=1))

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:  # noqa: ARG002
        """Turn the features into the sub-pixels of the image."""
        return self.upsampler(features)


register_variants(
    SPAN,
    {
        "span": Variant("6 blocks of 52 channels; only 3x3 convolutions and products."),
        "span-s": Variant(
            "6 blocks of 48 channels; only 3x3 convolutions and products.", {"width": SMALL_WIDTH}
        ),
    },
    scales=(2, 3, 4),
    paper="Wan et al., Swift Parameter-free Attention Network for Efficient Super-Resolution, "
    "CVPRW 2024",
    year=2024,
    recognise=recognise,
    adapt=adapt,
)
