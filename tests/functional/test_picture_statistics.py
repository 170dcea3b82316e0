"""Noise, sharpness and JPEG blocks of a picture."""

import math

import pytest
import torch

from helpers.natural import natural
from musigma.degradations import parse
from musigma.degradations.pairs import make_pair
from musigma.functional.picture_statistics import (
    BANDS,
    CLEAN_SHARPNESS,
    PictureStatistics,
    block_edges,
    measure,
    noise_std,
    sharpness,
    window_slices,
)
from musigma.types import ImageError


def degraded(text: str, *, side: int = 192, channels: int = 3) -> PictureStatistics:
    """Measure a picture that was degraded in a way."""
    image = make_pair(parse(text), natural(side, side, channels), name="a", seed=0).degraded
    return measure(image)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("level", [5, 10, 25])
def test_white_noise_is_measured_in_8_bit_levels(level: float, channels: int) -> None:
    generator = torch.Generator().manual_seed(1)
    flat = torch.full((1, channels, 128, 128), 0.5)
    noisy = flat + torch.randn(flat.shape, generator=generator) * level / 255
    assert noise_std(noisy) == pytest.approx(level, rel=0.1)


@pytest.mark.parametrize("quality", [90, 75])
def test_coarse_noise_survives_jpeg_and_fine_noise_does_not(quality: int) -> None:
    flat = torch.full((1, 3, 256, 256), 0.5)
    chain = parse(f"noise(25) | jpeg({quality})")
    statistics = measure(make_pair(chain, flat, name="a", seed=0).degraded)
    assert statistics.coarse_noise_std == pytest.approx(25, rel=0.15)
    assert statistics.noise_std < 5


@pytest.mark.parametrize("quality", [95, 75, 30])
@pytest.mark.parametrize("channels", [1, 3])
def test_jpeg_leaves_blocks_and_nothing_else_does(quality: int, channels: int) -> None:
    compressed = degraded(f"jpeg({quality})", channels=channels).block_edges
    for other in ("round", "blur(1.2) | round", "noise(5) | round"):
        assert abs(degraded(other, channels=channels).block_edges) < 0.15 < compressed


def test_blur_lowers_sharpness_step_by_step() -> None:
    values = [
        degraded(text).sharpness for text in ("round", "blur(0.8) | round", "blur(2) | round")
    ]
    assert values == sorted(values, reverse=True)
    assert values[0] - values[-1] > 2


def test_a_smooth_picture_has_no_blocks() -> None:
    ramp = torch.linspace(0, 1, 128).expand(1, 3, 128, 128)
    assert abs(block_edges(ramp)) < 0.1


@pytest.mark.parametrize("size", [(1, 1), (5, 300), (24, 24), (25, 90)])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_size_and_flat_pictures_have_finite_numbers(
    size: tuple[int, int], channels: int
) -> None:
    for image in (torch.full((1, channels, *size), 0.3), torch.rand(1, channels, *size)):
        entries = measure(image).to_dict().values()
        rows = [entry if isinstance(entry, tuple | list) else (entry,) for entry in entries]
        assert all(math.isfinite(value) for row in rows for value in row)


def test_a_flat_picture_is_taken_for_clean() -> None:
    assert sharpness(torch.full((1, 3, 64, 64), 0.3)) == CLEAN_SHARPNESS


def test_windows_of_a_large_picture_are_few_and_on_the_grid_of_jpeg() -> None:
    windows = window_slices(10_000, 6_001)
    assert len(windows) == 16
    assert all(part.start % 8 == 0 for window in windows for part in window)
    assert windows[-1][0].stop <= 10_000
    assert windows[-1][1].stop > 6_001 - 8


def test_a_batch_is_refused() -> None:
    with pytest.raises(ImageError, match="expected one image"):
        measure(torch.rand(2, 3, 64, 64))


@pytest.mark.parametrize("angle", [0, 30, 90, 120])
def test_blur_in_one_direction_shows_in_the_softest_direction(angle: int) -> None:
    clean, blurred = degraded("round"), degraded(f"motion(5, angle={angle}) | round")
    assert blurred.softest_direction < clean.softest_direction - 3


def test_white_noise_has_no_grain_and_smoothed_noise_has() -> None:
    white, grains = (degraded(f"noise(12, grain={grain}) | round") for grain in (0, 0.8))
    assert white.colour_grain_std == 0
    assert grains.colour_grain_std > 2
    assert degraded("noise(12, grain=0.8) | round", channels=1).colour_grain_std == 0


def test_a_flat_or_small_picture_has_no_spectrum() -> None:
    assert measure(torch.full((1, 3, 64, 64), 0.5)).spectrum == ()
    assert measure(torch.rand(1, 3, 16, 16)).spectrum == ()
    assert len(degraded("round").spectrum) == 2 * len(BANDS)
