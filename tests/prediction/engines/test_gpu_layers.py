"""Layers as a GPU likes them compute what they computed."""

import copy

import pytest
import torch
from torch import nn

from helpers.networks import build, image_for, one_of_each_class
from musigma.networks import create, with_sigma
from musigma.prediction.engines.gpu_layers import adapt_to_gpu


def always(cases: list) -> bool:
    return True


def never(cases: list) -> bool:
    return False


@pytest.mark.parametrize(("name", "scale"), one_of_each_class())
def test_every_network_stays_what_it_is(name, scale):
    network = build(name, scale, sigma=True)
    worker = copy.deepcopy(network)
    tiles = image_for(network, 24, 16)
    with torch.inference_mode():
        adapt_to_gpu(worker, tiles, is_faster=always)
        for ours, theirs in zip(worker(tiles), network(tiles), strict=True):
            assert ours.shape == theirs.shape
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_which_layers_are_fused_and_widened():
    network = with_sigma(create("edsr-baseline", scale=2, num_blocks=2), width=32)
    adapt_to_gpu(network, torch.zeros(1, 3, 9, 8), is_faster=always)
    convolutions = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d)]
    assert all(layer.out_channels % 8 == 0 for layer in convolutions)
    names = [type(layer).__name__ for layer in network.modules()]
    assert names.count("FusedResidualBlock") == 2
    assert names.count("_Widened") == 2  # what writes the mean, and what writes sigma
    # Of the branch four with a PReLU and the last; of the mean the last three.
    assert names.count("_OwnConv") == 5 + 3
    assert "PReLU" not in names


def test_nothing_is_fused_where_our_kernel_is_slower():
    network = with_sigma(create("edsr-baseline", scale=2, num_blocks=2), width=32)
    adapt_to_gpu(network, torch.zeros(1, 3, 9, 8), is_faster=never)
    names = {type(layer).__name__ for layer in network.modules()}
    assert not names & {"FusedResidualBlock", "_OwnConv"}


def test_scaled_residuals_and_dropout_are_left_alone():
    for settings in ({"res_scale": 0.1}, {"dropout": 0.2}):
        network = create("edsr-baseline", scale=2, num_blocks=1, **settings)
        adapt_to_gpu(network, torch.zeros(1, 3, 9, 8), is_faster=always)
        assert "FusedResidualBlock" not in [type(layer).__name__ for layer in network.modules()]
