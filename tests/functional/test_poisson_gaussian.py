"""Poisson-Gaussian noise: its estimate against made noise, counted light, and a real microscope."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats

from musigma.functional.noise import clipped_moments, estimate_noise_std
from musigma.functional.poisson_gaussian import (
    PoissonGaussian,
    estimate_poisson_gaussian,
    growth_of,
    level_of,
)
from musigma.functional.sensor_noise import sensor_noise
from musigma.types import ImageError


def cells(side=384, seed=0):
    """A dark ground with soft bright spots of many sizes, as a microscope sees it."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:side, 0:side]
    picture = np.full((side, side), 0.06)
    for _ in range(40):
        row, column, size = random.uniform(0, side), random.uniform(0, side), random.uniform(4, 30)
        height = random.uniform(0.05, 0.5)
        picture += height * np.exp(-((y - row) ** 2 + (x - column) ** 2) / (2 * size**2))
    return torch.from_numpy(picture.clip(0, 0.9)).float()[None, None]


def saved(image):
    """As an 8-bit file holds it."""
    return (image.clamp(0, 1) * 255).round() / 255


@pytest.mark.parametrize(("gain", "std"), [(0.5, 3), (2, 5), (8, 4), (20, 6)])
def test_gain_and_read_noise_of_a_saved_picture(gain, std):
    clean, generator = cells(), torch.Generator().manual_seed(1)
    noisy = saved(sensor_noise(clean, gain=gain, std=std, generator=generator))
    noise = estimate_poisson_gaussian(noisy)
    assert noise.grows
    assert noise.gain == pytest.approx(gain, rel=0.12)
    for signal in (0.1, 0.4, 0.7):
        true = gain * signal * 255 + std**2
        estimate = float(noise.variance(torch.tensor(signal))) * 255**2
        assert estimate == pytest.approx(true, rel=0.12)


def test_counted_light_on_a_black_level():
    clean = cells(seed=2)
    random, gain, black = np.random.default_rng(3), 6.0, 10.0
    counts = random.poisson((clean.numpy() * 255 - black).clip(0) / gain)
    noise = estimate_poisson_gaussian(torch.from_numpy(counts * gain + black).float() / 255)
    assert noise.gain == pytest.approx(gain, rel=0.1)
    assert noise.black == pytest.approx(black, abs=4)
    assert str(noise).startswith("variance ")


def test_noise_of_one_level_does_not_grow():
    generator = torch.Generator().manual_seed(4)
    noisy = saved(sensor_noise(cells(), std=12, generator=generator))
    noise = estimate_poisson_gaussian(noisy)
    bright, dark = noise.variance(torch.tensor([0.7, 0.1])) * 255**2
    assert float(dark) == pytest.approx(144, rel=0.12)
    assert float(bright) < 1.25 * float(dark)
    assert growth_of(noisy) == ""


def test_clipping_is_put_back():
    # On a ground of almost no light, half of the noise is below 0 and cut off.
    clean = (cells(seed=5) - 0.06).clamp(min=0.005)
    generator = torch.Generator().manual_seed(6)
    noise = estimate_poisson_gaussian(
        saved(sensor_noise(clean, gain=2, std=8, generator=generator))
    )
    dark = float(noise.variance(torch.tensor(0.005))) * 255**2
    assert dark == pytest.approx(64, rel=0.3)
    assert noise.gain == pytest.approx(2, rel=0.2)


def test_moments_of_clipped_noise_are_those_of_scipy():
    clean, std = torch.tensor([0.02, 0.5, 0.95]).double(), torch.tensor([0.05, 0.2, 0.1]).double()
    mean, variance = clipped_moments(clean, std)
    for index in range(3):
        normal = stats.norm(float(clean[index]), float(std[index]))
        first = normal.expect(lambda x: np.clip(x, 0, 1))
        second = normal.expect(lambda x: np.clip(x, 0, 1) ** 2)
        assert float(mean[index]) == pytest.approx(first, abs=1e-4)
        assert float(variance[index]) == pytest.approx(second - first**2, abs=1e-4)


def test_growth_is_told_of_gray_pictures_that_are_large_enough():
    generator = torch.Generator().manual_seed(7)
    noisy = sensor_noise(cells(), gain=8, std=2, generator=generator)
    assert growth_of(noisy).startswith("variance ")
    assert growth_of(noisy.expand(1, 3, -1, -1)) == ""
    assert growth_of(noisy[..., :40, :40]) == ""
    assert growth_of(noisy[..., :5, :5]) == ""
    assert growth_of(torch.full((1, 1, 128, 128), 0.5)) == ""


@pytest.mark.parametrize("num_channels", [1, 3])
def test_a_denoiser_is_told_the_mean_of_noise_that_grows(num_channels):
    """Flat parts are dark here: they had less than three quarters of it, and that was told."""
    clean = cells(256, seed=8).repeat(1, num_channels, 1, 1)
    clean = torch.where(clean > 0.3, clean, clean / 2)
    generator = torch.Generator().manual_seed(9)
    noisy = saved(sensor_noise(clean, gain=4, std=2, generator=generator))
    true = float((4 * 255 * clean + 2**2).mean().sqrt())
    flat = estimate_noise_std(noisy)
    assert flat < 0.75 * true
    assert level_of(noisy, flat) == pytest.approx(true, rel=0.1)


def test_texture_and_white_noise_are_not_taken_for_noise_that_grows():
    y, x = torch.meshgrid(torch.arange(160), torch.arange(192), indexing="ij")
    bright = (x > 96) * 0.5 + 0.2
    texture = saved((bright * (1 + 0.1 * torch.sin(2.1 * x) * torch.cos(1.7 * y)))[None, None])
    assert level_of(texture, 0.4) == 0.4
    generator = torch.Generator().manual_seed(10)
    noisy = saved(sensor_noise(cells(256), std=12, generator=generator))
    assert level_of(noisy, 12.0) == 12.0
    assert level_of(noisy[..., :40, :40], 11.0) == 11.0


def test_what_is_no_picture_is_refused():
    with pytest.raises(ImageError, match="expected one float image"):
        estimate_poisson_gaussian(torch.zeros(2, 1, 64, 64))
    with pytest.raises(ImageError, match="40 x 40 pixels are too few"):
        estimate_poisson_gaussian(torch.zeros(1, 1, 40, 40))


def test_variance_is_that_of_the_model():
    noise = PoissonGaussian(gain=4.0, std=0.0, black=51.0)
    levels = noise.variance(torch.tensor([0.1, 0.2, 0.4])) * 255**2
    assert levels.tolist() == pytest.approx([0, 0, 204], abs=1e-3)


@pytest.mark.skipif(
    "MUSIGMA_W2S" not in os.environ, reason="needs $MUSIGMA_W2S (docs/microscopy.md)"
)
@pytest.mark.parametrize("name", ["003_0", "033_1", "063_2", "077_0"])
def test_a_microscope_is_as_its_average_of_400_frames_says(name):
    folder = Path(os.environ["MUSIGMA_W2S"])
    noisy = np.asarray(Image.open(folder / f"images_avg1_8bit/input_avg1_{name}.tif"), float)
    mean = np.asarray(Image.open(folder / f"images_avg400_8bit/target_avg400_{name}.tif"))
    noise = estimate_poisson_gaussian(torch.from_numpy(noisy / 255)[None, None])
    for level in (np.percentile(mean, 30), np.percentile(mean, 90)):
        members = noisy[abs(mean - level) <= 1]
        estimate = float(noise.variance(torch.tensor(members.mean() / 255))) * 255**2
        assert estimate == pytest.approx(members.var(), rel=0.15)
