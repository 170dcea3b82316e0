"""Fused residual blocks compute what their layers compute, forwards and backwards."""

import copy

import torch
from torch import nn

from musigma.kernels.conv3x3 import is_plain_conv3x3
from musigma.kernels.fused_blocks import (
    FusedResidualBlock,
    block_backward,
    block_forward,
    is_fusible,
)
from musigma.networks.super_resolution.edsr import ResidualBlock


def block_and_features():
    torch.manual_seed(0)
    block = ResidualBlock(16, res_scale=1.0)
    return block, torch.randn(2, 16, 7, 5).to(memory_format=torch.channels_last)


def test_a_fused_block_is_its_layers():
    block, features = block_and_features()
    fused = copy.deepcopy(block)
    fused.__class__ = FusedResidualBlock
    torch.testing.assert_close(fused(features), block(features), rtol=1e-4, atol=1e-5)


def test_its_gradients_are_those_of_autograd():
    block, features = block_and_features()
    features.requires_grad_()
    first, _, last = block.body
    between = first(features).relu()
    between.retain_grad()
    output = features + last(between)
    gradient = torch.randn_like(output)
    output.backward(gradient)
    with torch.no_grad():
        found, kept = block_forward(features, first.weight, first.bias, last.weight, last.bias)
        torch.testing.assert_close(found, output, rtol=1e-4, atol=1e-5)
        back, inner = block_backward(gradient, kept, first.weight, last.weight)
    torch.testing.assert_close(back, features.grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(inner, between.grad * (between > 0), rtol=1e-4, atol=1e-5)


def test_which_blocks_are_fusible():
    block, _ = block_and_features()
    assert is_fusible(block, ResidualBlock, is_plain_conv3x3)
    assert not is_fusible(ResidualBlock(16, res_scale=0.1), ResidualBlock, is_plain_conv3x3)
    assert not is_fusible(block, ResidualBlock, lambda _: False)
    assert not is_fusible(nn.Identity(), ResidualBlock, is_plain_conv3x3)
