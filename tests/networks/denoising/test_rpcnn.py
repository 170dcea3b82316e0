"""RPCNN by the sizes of its release, the Haar transform, and matches that are known."""

import numpy as np
import pytest
import torch

from musigma.networks import create, num_params
from musigma.networks.denoising.rpcnn import haar_basis, shifted
from musigma.prediction.predict import predict


def test_parameters_by_hand():
    # ayanc/rpcnn, net/net.py and net/rnet.py; the paper prints no number.
    def conv(inner, outer, size):
        return size * size * inner * outer + outer

    encoder = conv(3, 16, 2) + conv(16, 24, 3) + conv(24, 48, 3) + conv(48, 96, 3)
    encoder += conv(96, 64, 3) + conv(64, 64, 3) + conv(64, 32, 3) + conv(32, 32, 3)
    encoder += conv(192, 64, 1) + 5 * conv(64, 64, 1) + conv(320, 256, 1) + 320 * 256
    verdict = conv(256, 128, 1) + conv(128, 64, 1) + conv(64, 32, 1) + conv(32, 30, 1)
    refine = conv(6, 64, 3) + 5 * conv(64, 64, 3) + conv(64, 3, 3)
    assert num_params(create("rpcnn", scale=1)) == encoder + verdict + refine


@pytest.mark.parametrize("channels", [1, 3])
def test_basis_is_orthonormal(channels):
    basis, band = haar_basis(channels)
    flat = basis.flatten(1).double()
    torch.testing.assert_close(flat @ flat.T, torch.eye(len(flat)).double(), rtol=0, atol=1e-6)
    # Three directions of 4x4, 2x2 and one coefficient, and the mean, of each color.
    assert torch.bincount(band).tolist() == ([16] * 3 + [4] * 3 + [1] * 3 + [1]) * channels


def test_basis_is_the_haar_transform_level_by_level():
    patch = np.random.default_rng(0).normal(size=(8, 8))
    basis, band = haar_basis(1)
    actual = (basis[:, 0].double().numpy() * patch).sum((1, 2))
    mean = patch
    for level in range(3):
        a, b = mean[0::2, 0::2], mean[0::2, 1::2]
        c, d = mean[1::2, 0::2], mean[1::2, 1::2]
        # The filters of the release: [[-1, 1], [-1, 1]], [[-1, -1], [1, 1]], [[-1, 1], [1, -1]].
        for direction, values in enumerate((b + d - a - c, c + d - a - b, b + c - a - d)):
            ours = actual[band.numpy() == 3 * level + direction]
            np.testing.assert_allclose(ours, values.ravel() / 2, atol=1e-6)
        mean = (a + b + c + d) / 2
    np.testing.assert_allclose(actual[-1], mean[0, 0], atol=1e-6)


def test_every_place_meets_all_of_its_window():
    position = torch.arange(9)
    met = torch.stack([shifted(position, step, 5)[0] for step in range(-2, 3)])
    assert all(shifted(position, step, 5)[1].all() for step in range(-2, 3))
    for number, places in enumerate(met.T.tolist()):
        first = min(max(number - 2, 0), 4)
        assert sorted(places) == list(range(first, first + 5))
    target, exists = shifted(torch.arange(2), 2, 5)
    assert exists.tolist() == [False, False]
    assert target.tolist() == [0, 1]


def known_verdict(network, weight):
    """Make the comparing network give one weight to all."""
    last = network.matcher.verdict[-1]
    torch.nn.init.zeros_(last.weight)
    torch.nn.init.constant_(last.bias, torch.logit(torch.tensor(weight)).item())
    return network.double()


def test_without_matches_the_image_stays():
    network = known_verdict(create("rpcnn", scale=1, width=8, window=3), 1e-12)
    image = torch.rand(1, 3, 11, 13, dtype=torch.float64)
    torch.testing.assert_close(network.average(image), image, rtol=0, atol=1e-6)


def test_where_all_match_patches_are_the_mean_of_their_window():
    network = known_verdict(create("rpcnn-grey", scale=1, width=8, window=3), 0.5)
    image = torch.rand(1, 1, 12, 10, dtype=torch.float64)
    patches = torch.nn.functional.unfold(image, 8).view(64, 5, 3)
    mixed = torch.zeros_like(patches)
    for y, x in np.ndindex(5, 3):
        top = min(max(y - 1, 0), 2)
        around = patches[:, top : top + 3, 0:3].flatten(1)
        # Nine patches count a half each, the patch itself one more.
        mixed[:, y, x] = (patches[:, y, x] + around.sum(1) / 2) / (1 + 9 / 2)
    fold = torch.nn.functional.fold
    total = fold(mixed.view(1, 64, 15), (12, 10), 8)
    count = fold(torch.ones(1, 64, 15, dtype=torch.float64), (12, 10), 8)
    torch.testing.assert_close(network.average(image), total / count, rtol=0, atol=1e-6)


def test_tiles_give_the_whole():
    torch.manual_seed(0)
    network = create("rpcnn-grey", scale=1, width=8, window=5).eval()
    image = torch.rand(1, 1, 41, 97)
    whole = predict(network, image, tile=200)
    tiled = predict(network, image, tile=20, memory=2**26)
    torch.testing.assert_close(tiled.mean, whole.mean, rtol=0, atol=1e-5)
