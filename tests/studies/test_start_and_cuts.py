"""What trainings begin with: cuts of photographs, and weights for a wider network."""

import numpy as np
import torch
from PIL import Image

from musigma.networks import create, with_sigma
from studies.data_sets.detailed_cuts import cuts
from studies.training_runs.widened_start import widened


def test_cuts_are_the_most_detailed_squares_and_do_not_overlap():
    # Flat, but for two squares of noise of which one is stronger.
    pixels = np.full((256, 320, 3), 128, dtype=np.uint8)
    noise = np.random.default_rng(0).integers(-60, 60, (64, 64, 3))
    pixels[32:96, 48:112] = 128 + noise
    pixels[160:224, 224:288] = 128 + noise // 2
    found = cuts(Image.fromarray(pixels), side=64, most=3, least_detail=1.0)
    assert [cut.size for cut in found] == [(64, 64)] * 2
    assert np.array_equal(np.asarray(found[0]), pixels[32:96, 48:112])
    assert np.array_equal(np.asarray(found[1]), pixels[160:224, 224:288])


def test_a_photograph_smaller_than_a_cut_gives_none():
    assert cuts(Image.new("RGB", (60, 90)), side=64, most=3, least_detail=0) == []


def test_a_widened_network_computes_what_the_narrow_one_computes():
    torch.manual_seed(0)
    for scale in (2, 4):
        narrow = with_sigma(create("edsr-baseline", scale=scale, num_blocks=3, width=8), width=4)
        wide = with_sigma(create("edsr-baseline", scale=scale, num_blocks=3, width=12), width=4)
        image = torch.rand(1, 3, 10, 9)
        expected, ours = narrow(image), widened(narrow, wide)(image)
        assert torch.allclose(ours.mean, expected.mean, atol=1e-6)
        assert torch.allclose(ours.sigma, expected.sigma, atol=1e-6)


def test_a_block_that_does_nothing_can_be_left_out():
    torch.manual_seed(0)
    narrow = create("edsr-baseline", scale=2, num_blocks=3, width=8)
    with torch.no_grad():
        for weight in narrow.body[1].parameters():
            weight.zero_()
    wide = create("edsr-baseline", scale=2, num_blocks=2, width=12)
    image = torch.rand(1, 3, 10, 9)
    ours = widened(narrow, wide, left_out=[1])(image).mean
    assert torch.allclose(ours, narrow(image).mean, atol=1e-6)
