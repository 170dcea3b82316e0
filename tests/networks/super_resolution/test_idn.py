import pytest
import torch

from musigma.networks import card, create
from musigma.networks.bicubic_layer import enlarge


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_parameters_by_hand(scale):
    # The official IDN_x2_deploy.prototxt layer by layer (weights + biases), with three colors at
    # both ends; with one, 552,769: the 553K that Hui et al. and later tables print.
    block = (
        (64 * 9 + 1) * 48  # conv3_1
        + (12 * 9 + 1) * 32  # conv3_2, four groups
        + (32 * 9 + 1) * 64  # conv3_3
        + (48 * 9 + 1) * 64  # conv3_4
        + (16 * 9 + 1) * 48  # conv3_5, four groups
        + (48 * 9 + 1) * 80  # conv3_6
        + (80 + 1) * 64  # down1
    )
    one_color = (9 + 1) * 64 + (64 * 9 + 1) * 64 + 4 * block + 64 * 17**2 + 1
    assert one_color == 552_769
    three_colors = one_color + 2 * 9 * 64 + 2 * (64 * 17**2 + 1)
    assert card("idn", scale=scale).params == three_colors


def test_block_keeps_the_first_quarter_and_joins_it_with_its_input():
    torch.manual_seed(0)
    block = create("idn", scale=2, num_blocks=1, width=16).body[0]
    features = torch.rand(1, 16, 6, 5)
    middle = block.first(features)
    joined = torch.cat((features, middle[:, :4]), dim=1)
    expected = block.compress(joined + block.second(middle[:, 4:]))
    assert torch.equal(block(features), expected)


def test_without_a_correction_it_is_bicubic():
    network = create("idn", scale=3, num_blocks=1, width=16)
    torch.nn.init.zeros_(network.upsample.weight)
    torch.nn.init.zeros_(network.upsample.bias)
    degraded = torch.rand(1, 3, 7, 5)
    assert torch.equal(network(degraded).mean, enlarge(degraded, 3))
