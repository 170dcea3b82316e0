import os
from pathlib import Path

import numpy as np
import pytest
import torch

from musigma.degradations import Bicubic, Noise, parse
from musigma.degradations.pairs import make_pair, match_pair, noise_std_of
from musigma.functional.color import rgb_to_y
from musigma.functional.fidelity import psnr
from musigma.functional.noise import image_generator
from musigma.functional.resize import bicubic_up
from musigma.functional.sensor_noise import sensor_noise
from musigma.types import ImageError

DATA = os.environ.get("MUSIGMA_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="MUSIGMA_DATA is not set")


def read(path):
    from PIL import Image

    pixels = np.array(Image.open(path).convert("RGB"))
    return torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 255


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_low_is_8_bit_and_target_is_the_crop(scale):
    image = torch.rand(1, 3, 37, 31, generator=torch.Generator().manual_seed(0))
    low, target = make_pair(Bicubic(scale), image, name="a")
    assert low.shape == (1, 3, 37 // scale, 31 // scale)
    assert torch.equal(target, image[..., : 37 // scale * scale, : 31 // scale * scale])
    torch.testing.assert_close(low * 255, (low * 255).round(), rtol=0, atol=1e-4)


def test_uint8_gives_the_same_pair():
    levels = torch.arange(3 * 37 * 31).reshape(1, 3, 37, 31).mul(7).remainder(256).to(torch.uint8)
    low, target = make_pair(Bicubic(3), levels, name="a")
    assert low.dtype == target.dtype == torch.uint8
    low_float, target_float = make_pair(Bicubic(3), levels / 255, name="a")
    assert torch.equal(low / 255, low_float)
    assert torch.equal(target / 255, target_float)


def test_noise_is_that_of_the_denoising_tables_to_the_bit():
    image = torch.rand(1, 3, 37, 31, generator=torch.Generator().manual_seed(0))
    generator = image_generator("baby", 7)
    expected = sensor_noise(image, std=25, generator=generator)
    assert torch.equal(make_pair(Noise(25), image, name="baby", seed=7).degraded, expected)


def test_the_drawn_noise_level_is_known():
    image = torch.full((1, 3, 200, 200), 0.5)
    degradation = parse("noise(0..50)")
    levels = set()
    for name in ("a", "b"):
        noise = make_pair(degradation, image, name=name).degraded - image
        level = noise_std_of(degradation, name=name)
        assert noise.std().item() * 255 == pytest.approx(level, rel=0.02)
        levels.add(level)
    assert len(levels) == 2
    for text in ("noise(5) | jpeg(75)", "noise(5, gain=0.1)", "noise(5, grey=1)", "jpeg(75)"):
        assert noise_std_of(parse(text), name="a") is None


def test_rounding_after_the_noise_leaves_its_level_known():
    """A file with noise is rounded; a network is told the level from before."""
    chain = parse("noise(5..50) | round")
    for name in ("a", "b"):
        level = noise_std_of(chain, name=name)
        assert level == noise_std_of(parse("noise(5..50)"), name=name)
        flat = torch.full((1, 3, 256, 256), 0.5)
        noise = make_pair(chain, flat, name=name).degraded - 0.5
        assert 255 * noise.std().item() == pytest.approx(level, rel=0.02)


def test_pairs_of_files_must_fit_the_scale():
    target = torch.rand(1, 3, 13, 15)
    _, cropped = match_pair(torch.rand(1, 3, 6, 7), target, scale=2)
    assert cropped.shape == (1, 3, 12, 14)
    with pytest.raises(ImageError, match="at scale 2 the input must have 7x6 pixels, got 13x13"):
        match_pair(torch.rand(1, 3, 13, 13), target, scale=2)


def test_an_image_smaller_than_the_scale_is_refused():
    with pytest.raises(ImageError, match="at least 4x4 pixels, got 31x3"):
        make_pair(Bicubic(4), torch.zeros(1, 3, 3, 31), name="a")


# Bicubic up-sampling back in 8-bit RGB, PSNR on Y: values recorded for these files by the project's
# reference before this code was written.
@needs_data
@pytest.mark.parametrize(
    ("name", "scale", "expected"),
    [
        ("Set5", 2, 33.673),
        ("Set5", 3, 30.403),
        ("Set5", 4, 28.429),
        ("Set14", 2, 30.325),
        ("Set14", 3, 27.631),
        ("Set14", 4, 26.088),
    ],
)
def test_bicubic_psnr_of_the_benchmarks(name, scale, expected):
    values = []
    for path in sorted((Path(DATA) / "benchmark" / name / "HR").iterdir()):
        low, target = make_pair(Bicubic(scale), read(path), name=path.stem)
        luma = rgb_to_y(bicubic_up(low, scale)), rgb_to_y(target)
        values.append(psnr(*luma, data_range=1, shave=scale))
    assert torch.cat(values).mean().item() == pytest.approx(expected, abs=0.001)
