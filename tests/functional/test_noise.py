import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats

from helpers.natural import natural
from musigma.degradations import parse
from musigma.degradations.pairs import make_pair
from musigma.functional.jpeg import jpeg
from musigma.functional.noise import (
    estimate_noise_std,
    image_generator,
    noise_of,
    unclipped_share,
)
from musigma.functional.picture_statistics import measure
from musigma.functional.sensor_noise import sensor_noise
from musigma.types import ImageError


def test_noise_has_the_stated_spread_and_is_not_clipped():
    image = torch.full((1, 3, 256, 256), 0.99)
    noise = sensor_noise(image, std=25, generator=image_generator("a", 0)) - image
    # Four standard errors of a mean and of a standard deviation over n normal values.
    n = noise.numel()
    assert abs(noise.mean()) * 255 < 4 * 25 / math.sqrt(n)
    assert abs(noise.std() * 255 - 25) < 4 * 25 / math.sqrt(2 * n)
    assert (image + noise).max() > 1.2


def test_noise_depends_on_name_and_seed_alone():
    image = torch.rand(1, 3, 37, 31)

    def noisy(name, seed):
        return sensor_noise(image, std=15, generator=image_generator(name, seed))

    before = noisy("baby", 0)
    noisy("bird", 0)
    assert torch.equal(noisy("baby", 0), before)
    assert not torch.equal(noisy("bird", 0), before)
    assert not torch.equal(noisy("baby", 1), before)
    assert torch.equal(noisy(3, 0), noisy("3", 0))


def test_noise_does_not_touch_the_global_generator():
    state = torch.get_rng_state()
    sensor_noise(
        torch.rand(1, 1, 5, 5, generator=image_generator(0, 0)),
        std=5,
        generator=image_generator(1, 0),
    )
    assert torch.equal(torch.get_rng_state(), state)


def test_one_level_per_image():
    image = torch.zeros(3, 1, 37, 31)
    levels = torch.tensor([0.0, 10.0, 50.0])
    noise = sensor_noise(image, std=levels, generator=image_generator(0, 0)) * 255
    unit = sensor_noise(image, std=255, generator=image_generator(0, 0))
    torch.testing.assert_close(noise, unit * levels.view(3, 1, 1, 1))


def test_bad_input_is_refused():
    generator = image_generator(0, 0)
    with pytest.raises(ImageError, match=r"float image \(N, C, H, W\)"):
        sensor_noise(torch.zeros(1, 3, 8, 8, dtype=torch.uint8), std=25, generator=generator)
    with pytest.raises(ImageError, match=r"8-bit levels .* got -1"):
        sensor_noise(torch.zeros(1, 3, 8, 8), std=-1, generator=generator)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_noise_is_the_same_on_a_gpu():
    image = torch.rand(1, 3, 37, 31)
    here = sensor_noise(image, std=25, generator=image_generator("a", 0))
    there = sensor_noise(image.cuda(), std=25, generator=image_generator("a", 0))
    torch.testing.assert_close(there.cpu(), here, rtol=0, atol=1e-6)


def texture(height, width):
    """A code-made picture with smooth shading, edges and fine stripes, in colour."""
    y, x = torch.meshgrid(torch.arange(height) / 64, torch.arange(width) / 64, indexing="ij")
    shading = 0.5 + 0.3 * torch.sin(2 * x + 3 * y)
    edges = 0.1 * torch.sign(torch.sin(5 * x)) * torch.sign(torch.sin(4 * y))
    stripes = 0.05 * torch.sin(60 * x + 25 * y)
    return torch.stack([shading + edges, shading - edges + stripes, 1 - shading])[None]


@pytest.mark.parametrize("num_channels", [1, 3])
@pytest.mark.parametrize("level", [1, 5, 15, 50])
def test_level_is_estimated_within_a_tenth(num_channels, level):
    image = texture(171, 153)[:, :num_channels]
    noisy = sensor_noise(image, std=level, generator=image_generator("texture", 0))
    assert estimate_noise_std(noisy) == pytest.approx(level, rel=0.1)


def test_a_picture_without_noise_has_none():
    assert estimate_noise_std(torch.full((1, 3, 64, 64), 0.3)) == pytest.approx(0, abs=1e-3)
    assert estimate_noise_std(texture(97, 83)) < 0.5


def test_estimate_refuses_what_it_cannot_measure():
    with pytest.raises(ImageError, match="7 x 64 pixels are too few"):
        estimate_noise_std(torch.rand(1, 3, 64, 7))
    with pytest.raises(ImageError, match="5 x 5 pixels are too few"):
        estimate_noise_std(torch.rand(1, 1, 5, 5))
    with pytest.raises(ImageError, match=r"one float image \(1, C, H, W\)"):
        estimate_noise_std(torch.rand(2, 3, 64, 64))


def as_file(image):
    return (image.clamp(0, 1) * 255).round() / 255


@pytest.mark.parametrize("noise_std", [0.05, 0.2])
def test_share_left_by_clipping_against_scipy(noise_std):
    # The censored normal distribution: its moments by numerical integration.
    for clean in (0.0, 0.03, 0.5, 0.9, 1.0):
        noise = stats.norm(clean, noise_std)

        def moment(power, noise=noise):
            inside = noise.expect(lambda x: x**power, lb=0, ub=1)
            return inside + noise.sf(1)

        mean = moment(1)
        expected = (moment(2) - mean**2) / noise_std**2
        found = unclipped_share(torch.tensor([mean], dtype=torch.float64), noise_std)
        assert found.item() == pytest.approx(expected, abs=0.005)


@pytest.mark.parametrize("num_channels", [1, 3])
@pytest.mark.parametrize("level", [5, 25, 50])
def test_level_is_estimated_within_a_tenth_where_a_file_clips(num_channels, level):
    # Half of the picture lies within one or two levels of black: there it looks as weak as 0.58.
    image = texture(171, 153)[:, :num_channels]
    image = torch.cat([image, 0.03 * image], dim=-1)
    generator = image_generator("dark", 0)
    noisy = as_file(sensor_noise(image, std=level, generator=generator))
    assert estimate_noise_std(noisy) == pytest.approx(level, rel=0.1)


@pytest.mark.slow
@pytest.mark.skipif("MUSIGMA_DATA" not in os.environ, reason="MUSIGMA_DATA names no folder")
@pytest.mark.parametrize("num_channels", [1, 3])
@pytest.mark.parametrize("level", [5, 25, 50])
def test_level_is_estimated_within_a_tenth_on_photos(level, num_channels):
    folder = Path(os.environ["MUSIGMA_DATA"]) / "denoising" / "Kodak24"
    paths = sorted(folder.glob("*.png"))
    assert len(paths) == 24
    # A sixth of them: all 24 were within 3.3 % in colour and 7.6 % in grey, clipped or not.
    for path in paths[::6]:
        picture = Image.open(path).convert("RGB" if num_channels == 3 else "L")
        image = torch.tensor(np.asarray(picture)).view(*picture.size[::-1], num_channels)
        image = image.permute(2, 0, 1)[None] / 255
        noisy = sensor_noise(image, std=level, generator=image_generator(path.stem, 0))
        assert estimate_noise_std(noisy) == pytest.approx(level, rel=0.1), path.stem
        assert estimate_noise_std(as_file(noisy)) == pytest.approx(level, rel=0.1), path.stem


@pytest.mark.parametrize(
    "chain", ["noise(15) | jpeg(90)", "noise(25) | jpeg(90)", "noise(15) | jpeg(75)"]
)
def test_noise_in_a_jpeg_is_estimated_and_not_white(chain):
    # The estimator of white noise says 1 or 2 for each of these.
    level = float(chain[6:8])
    image = make_pair(parse(chain), texture(256, 256), name="a").degraded
    noise = noise_of(measure(image))
    assert not noise.is_white
    assert noise.std == pytest.approx(level, rel=0.25)


def test_smoothed_noise_is_not_white():
    image = make_pair(parse("noise(25, grain=0.6) | round"), texture(256, 256), name="a").degraded
    noise = noise_of(measure(image))
    assert not noise.is_white
    assert noise.std == pytest.approx(25, rel=0.3)


def test_noise_that_is_the_same_in_all_colours_is_not_white():
    image = make_pair(parse("noise(20, grey=1)"), texture(256, 256), name="a").degraded
    noise = noise_of(measure(image))
    assert not noise.is_white
    assert noise.std == pytest.approx(20, rel=0.25)


@pytest.mark.parametrize("chain", ["noise(15) | round", "poisson(1) | round", "round", "jpeg(90)"])
def test_white_noise_and_none_are_white(chain):
    image = make_pair(parse(chain), texture(256, 256), name="a").degraded
    assert noise_of(measure(image)).is_white


def test_a_better_estimate_of_white_noise_is_taken():
    image = make_pair(parse("noise(15)"), texture(128, 128), name="a").degraded
    assert noise_of(measure(image), white_std=14.9)[:2] == (14.9, True)


def test_noise_that_the_estimate_leaves_out_is_named():
    clean, generator = natural(128, 128), torch.Generator().manual_seed(0)
    assert noise_of(measure(clean)).left_out == ""
    assert (
        noise_of(measure(clean + 25 / 255 * torch.randn(clean.shape, generator=generator))).left_out
        == ""
    )
    rows = clean + 6 / 255 * torch.randn(1, 1, 128, 1, generator=generator)
    assert noise_of(measure(rows)).left_out == "whole rows or columns"
    dots = torch.where(
        torch.rand(1, 1, 128, 128, generator=generator) < 0.02, 1 - clean.round(), clean
    )
    assert noise_of(measure(dots)).left_out == "single pixels"


def test_blocks_make_the_level_uncertain():
    assert not noise_of(measure(natural(128, 128))).has_blocks
    assert noise_of(measure(jpeg(natural(128, 128), quality=40))).has_blocks
