"""The measured receptive radius against networks whose radius is known by hand."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from musigma.networks import Network, NetworkInfo, create, measure_receptive_radius, with_sigma
from musigma.networks.receptive_field import radius_through
from musigma.types import ConfigError


class Stack(Network):
    """Convolutions of given sizes; the stated radius may be wrong."""

    def __init__(self, sizes, *, stated=0):
        super().__init__()
        self.info = NetworkInfo(
            scale=1,
            task="denoising",
            feature_channels=3,
            feature_scale=1,
            feature_receptive_radius=stated,
            receptive_radius=stated,
        )
        self.body = nn.Sequential(*(nn.Conv2d(3, 3, size, padding=size // 2) for size in sizes))

    def features(self, degraded):
        return self.body[:-1](degraded)

    def reconstruct(self, features, degraded):
        return self.body[-1](features)


@pytest.mark.parametrize("stated", [0, 6, 100])
def test_the_stated_radius_does_not_matter(stated):
    network = Stack([5, 3, 7], stated=stated)
    assert measure_receptive_radius(network) == 6
    assert measure_receptive_radius(network, of="features") == 3


def test_the_network_stays_as_it_is():
    network = Stack([3, 3]).train()
    measure_receptive_radius(network)
    assert network.training
    assert {weight.dtype.itemsize for weight in network.parameters()} == {4}
    assert all(weight.grad is None for weight in network.parameters())


def test_a_network_that_sees_everything_has_no_radius():
    network = create("rcan", scale=2, num_groups=1, num_blocks=1, width=16)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if "conv_du" in name and name.endswith("bias"):
                weight.fill_(1.0)  # a dead ReLU would hide what the attention sees
    assert measure_receptive_radius(network, limit=64) is None


def test_sigma_needs_a_branch():
    network = Stack([3, 3])
    with pytest.raises(ConfigError, match=r"with_sigma\(network\) adds one"):
        measure_receptive_radius(network, of="sigma")
    branched = with_sigma(network, width=4, depth=2)
    assert measure_receptive_radius(branched, of="sigma") == 1 + 3


@pytest.mark.parametrize("num_blocks", [1, 2])
def test_followed_and_measured_radii_of_a_u_net_agree(num_blocks):
    network = create("drunet", scale=1, num_blocks=num_blocks, widths=(4, 4, 4, 4))
    network.info = replace(network.info, receptive_radius=0)
    blocks = 2 * num_blocks
    steps = [1, *(blocks, "halve") * 3, blocks, *("double", blocks) * 3, 1]
    assert measure_receptive_radius(network) == radius_through(steps, cell=8)
