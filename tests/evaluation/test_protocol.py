"""The protocols do what they say; the expected values are worked out here with NumPy."""

import os

import numpy as np
import pytest
import torch
from skimage.metrics import structural_similarity

from musigma.datasets.catalog import find_dataset
from musigma.evaluation import denoising, protocol_for, restoration, super_resolution
from musigma.evaluation.restored_pairs import read_pair
from musigma.functional import fidelity
from musigma.networks import create
from musigma.types import ConfigError


def levels(*shape, seed):
    return np.random.default_rng(seed).integers(0, 256, shape)


def to_image(array):
    return torch.from_numpy(array / 255).permute(2, 0, 1)[None].float()


def luma(rgb):
    """BT.601 studio swing of 8-bit RGB, not rounded."""
    return rgb @ np.array([65.481, 128.553, 24.966]) / 255 + 16


def psnr(image, reference):
    return 10 * np.log10(255**2 / np.mean((image - reference) ** 2))


def ssim(image, reference):
    options = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
    _, whole = structural_similarity(image, reference, data_range=255, full=True, **options)
    return whole[5:-5, 5:-5].mean()  # the positions where the window lies inside


def test_super_resolution_is_measured_on_unrounded_luma_of_the_rounded_result():
    target, noise = levels(40, 36, 3, seed=0), levels(40, 36, 3, seed=1)
    result = target + (noise - 128) / np.sqrt(50)  # between the levels of 8 bits
    result = result.clip(0, 255)
    shown = np.floor(result + 0.5)
    inside = np.s_[3:-3, 3:-3]
    scores = super_resolution(3).fidelity(to_image(result), to_image(target))
    assert scores.keys() == {"psnr_y", "ssim_y"}
    ours, theirs = luma(shown)[inside], luma(target)[inside]
    assert scores["psnr_y"] == pytest.approx(psnr(ours, theirs), abs=1e-4)
    assert scores["ssim_y"] == pytest.approx(ssim(ours, theirs), abs=1e-6)


def test_denoising_is_measured_on_every_channel_and_pixel():
    target, noise = levels(31, 37, 3, seed=0), levels(31, 37, 3, seed=1)
    result = 0.8 * target + 0.2 * noise
    scores = denoising(25, channels=3).fidelity(to_image(result), to_image(target))
    assert scores.keys() == {"psnr", "ssim"}
    assert scores["psnr"] == pytest.approx(psnr(np.floor(result + 0.5), target), abs=1e-4)


def test_a_result_beyond_white_is_white():
    image = torch.rand(1, 3, 40, 40, generator=torch.Generator().manual_seed(0)).round()
    beyond = torch.where(image == 1, 1.7, -0.4)
    scores = super_resolution(2).fidelity(beyond, image)
    assert scores["psnr_y"] == float("inf")
    assert scores["ssim_y"] == pytest.approx(1)


def test_pairs_for_super_resolution_are_cropped_color():
    low, target = super_resolution(4).pair(torch.rand(1, 1, 37, 31), "any")
    assert low.shape == (1, 3, 9, 7)
    assert target.shape == (1, 3, 36, 28)


def test_noise_depends_on_name_and_seed_alone():
    image = torch.full((1, 3, 40, 50), 0.99)
    protocol = denoising(50, channels=3)
    first, again = protocol.pair(image, "a").degraded, protocol.pair(image, "a").degraded
    assert torch.equal(first, again)
    assert not torch.equal(first, protocol.pair(image, "b").degraded)
    assert not torch.equal(first, denoising(50, channels=3, seed=1).pair(image, "a").degraded)
    assert first.max() > 1  # not clipped
    assert ((first - image) * 255).std().item() == pytest.approx(50, rel=0.03)
    assert torch.equal(protocol.pair(image, "a").target, image)


def test_gray_denoisers_see_gray():
    low, target = denoising(15, channels=1).pair(torch.rand(1, 3, 20, 20), "a")
    assert low.shape == target.shape == (1, 1, 20, 20)


@pytest.mark.parametrize("scale", [1, 0, -2])
def test_a_scale_that_does_not_enlarge(scale):
    with pytest.raises(ConfigError, match=f"scale of 2 or more, got {scale}"):
        super_resolution(scale)


@pytest.mark.parametrize("noise_std", [-1, 300, float("nan")])
def test_a_noise_level_outside_eight_bits(noise_std):
    with pytest.raises(ConfigError, match=r"must lie in 0\.\.255"):
        denoising(noise_std, channels=3)


def test_which_protocol_is_decided_in_one_place():
    enlarges, luma = create("bicubic", scale=2), create("vdsr-y", scale=2)
    assert protocol_for(enlarges) == super_resolution(2)
    assert protocol_for(enlarges, degradation="bicubic") == super_resolution(2)
    assert protocol_for(luma) == super_resolution(2, luma_only=True)
    denoiser = create("dncnn", scale=1)
    assert protocol_for(denoiser, noise_std=50) == denoising(50, channels=1)
    degraded = protocol_for(enlarges, degradation="area | jpeg(75)")
    assert (degraded.name, degraded.measured_on, degraded.shave) == ("degraded", "y", 2)
    assert degraded.as_json()["degradation"] == "area | jpeg(75)"


def test_scale_1_is_not_only_for_denoisers():
    network = create("dps", scale=1)
    assert protocol_for(network, pairs=True).measured_on == "both"
    assert protocol_for(network, degradation="jpeg(30)").inputs == "jpeg(30)"
    with pytest.raises(ConfigError, match=r"`noise_std` .* `degrade` .* `low`"):
        protocol_for(network)


def test_a_network_that_enlarges_takes_no_noise_level():
    with pytest.raises(ConfigError, match="the network enlarges; `noise_std`"):
        protocol_for(create("bicubic", scale=2), noise_std=25)


def test_luma_and_all_channels_are_both_measured_at_scale_1():
    target, noise = levels(31, 37, 3, seed=0), levels(31, 37, 3, seed=1)
    result = 0.8 * target + 0.2 * noise
    images = to_image(result), to_image(target)
    both = restoration(None, scale=1).fidelity(*images)
    assert both.keys() == {"psnr_y", "ssim_y", "psnr", "ssim"}
    shown = np.floor(result + 0.5)
    assert both["psnr"] == pytest.approx(psnr(shown, target), abs=1e-4)
    assert both["psnr_y"] == pytest.approx(psnr(luma(shown), luma(target)), abs=1e-4)


def test_a_protocol_is_printed_in_full():
    printed = super_resolution(2).as_json()
    assert printed["scale"] == printed["shave"] == 2
    assert printed["measured_on"] == "y"
    assert all(isinstance(value, str | int | float | None) for value in printed.values())


@pytest.mark.skipif(not os.environ.get("MUSIGMA_DATA"), reason="MUSIGMA_DATA is not set")
def test_real_noise_has_the_published_psnr():
    protocol = restoration(None, scale=1)
    values = []
    for item in find_dataset("PolyU", scale=1).items:
        degraded, target = read_pair(item, protocol)
        values.append(fidelity.psnr(degraded, target, data_range=1, shave=0).item())
    assert len(values) == 100
    assert np.mean(values) == pytest.approx(35.97, abs=0.01)


@pytest.mark.skipif(not os.environ.get("MUSIGMA_DATA"), reason="MUSIGMA_DATA is not set")
@pytest.mark.parametrize("scale", [2, 3, 4])
def test_published_inputs_are_those_that_are_made(scale):
    published = find_dataset("Set5", scale=scale)
    if published.inputs != "published":
        pytest.skip("this copy of Set5 has no LR_bicubic folder")
    protocol = super_resolution(scale)
    for made, read in zip(find_dataset("Set5").items, published.items, strict=True):
        assert torch.equal(read_pair(made, protocol).degraded, read_pair(read, protocol).degraded)
