import sys

import pytest
import torch

from musigma.functional.noise import image_generator
from musigma.functional.sensor_noise import sensor_noise
from musigma.model import load
from musigma.networks import card, create, with_sigma
from musigma.networks.denoising.wnnm import wnnm
from musigma.prediction.predict import predict, with_noise_map
from musigma.types import ConfigError


def noisy_stripes(num_channels, height=37, width=31):
    """Slanting stripes with noise of level 25, and the stripes without it."""
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    shades = torch.arange(1, num_channels + 1).view(-1, 1, 1)
    target = 0.5 + 0.1 * shades * torch.sin(0.9 * x + 0.4 * y)
    generator = image_generator("stripes", 0)
    return sensor_noise(target[None], std=25, generator=generator), target[None]


def psnr(image, target):
    return -10 * (image - target).square().mean().log10().item()


@pytest.mark.parametrize("name", ["wnnm", "wnnm-colour", "bm3d", "bm3d-colour"])
def test_denoises_through_the_common_path(name):
    if name.startswith("bm3d"):
        pytest.importorskip("bm3d")
    network = load(name).network
    noisy, target = noisy_stripes(network.out_channels)
    mean, sigma = predict(network, noisy, noise_std=25)
    assert sigma is None
    # The input has 20.2 dB; stripes that repeat gain at least 5 (both algorithms gave more).
    assert psnr(mean, target) > psnr(noisy, target) + 5


def test_each_image_of_a_batch_has_its_own_level():
    network = create("wnnm", scale=1)
    noisy, _ = noisy_stripes(1, 20, 22)
    batch = torch.cat([with_noise_map(noisy, 25), with_noise_map(noisy, 0)])
    mean = network(batch).mean
    torch.testing.assert_close(mean[0], wnnm(noisy[0], noise_std=25))
    torch.testing.assert_close(mean[1], noisy[0])


@pytest.mark.parametrize("name", ["wnnm", "bm3d-colour"])
@pytest.mark.parametrize("size", [(1, 1), (5, 9)])
def test_small_and_flat_images(name, size):
    if name.startswith("bm3d"):
        pytest.importorskip("bm3d")
    network = create(name, scale=1)
    flat = torch.full((1, network.out_channels, *size), 0.4)
    torch.testing.assert_close(network(with_noise_map(flat, 25)).mean, flat, rtol=0, atol=1e-3)


def test_takes_a_sigma_branch_and_half_precision():
    network = with_sigma(create("wnnm-colour", scale=1), width=8, depth=1).eval()
    noisy, _ = noisy_stripes(3, 13, 11)
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        mean, sigma = network(with_noise_map(noisy, 25))
    assert mean.dtype == sigma.dtype == torch.float32
    assert mean.shape == sigma.shape == (1, 3, 13, 11)


def test_cards_say_that_nothing_is_learned():
    costs = card("bm3d", scale=1)
    assert (costs.params, costs.macs_g, costs.tiling) == (0, 0, "approximate")


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "bm3d", None)
    with pytest.raises(ConfigError, match="pip install bm3d"):
        create("bm3d", scale=1)(torch.rand(1, 2, 9, 9))
