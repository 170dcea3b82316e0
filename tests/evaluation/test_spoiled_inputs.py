"""Spoiled inputs are pictures of 8 bits, unlike what they were made from, and repeatable."""

import pytest
import torch

from helpers.natural import natural
from musigma.evaluation.spoiled_inputs import SPOILERS
from musigma.functional.color import quantise


@pytest.mark.parametrize("name", SPOILERS)
@pytest.mark.parametrize("num_channels", [1, 3])
def test_an_input_is_spoiled_in_the_same_way_again(name, num_channels):
    image = quantise(natural(48, 40)[:, :num_channels])
    first, again = (SPOILERS[name](image, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first, again)
    assert first.shape == image.shape
    assert torch.equal(first, quantise(first))
    changed = (first - image).abs().mean()
    assert changed > 1e-3 or (name == "colour_noise" and num_channels == 1)
    assert changed < 0.2


def test_noise_of_the_colors_leaves_their_mean():
    image = torch.full((1, 3, 64, 64), 0.5)
    spoiled = SPOILERS["colour_noise"](image, torch.Generator().manual_seed(0))
    assert (spoiled.mean(1) - 0.5).abs().max() < 1 / 255
    assert (spoiled - 0.5).std() > 5 / 255
