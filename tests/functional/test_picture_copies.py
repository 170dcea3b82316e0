"""Displaced copies in a picture are found, and what looks like them is not."""

import pytest
import torch

from musigma.functional.jpeg import jpeg
from musigma.functional.picture_copies import colour_shift, echo
from musigma.functional.picture_statistics import measure


def detailed(height, width):
    """Return a picture with details of all sizes, the same in all colours up to some noise."""
    generator = torch.Generator().manual_seed(0)
    rows, columns = torch.fft.fftfreq(height)[:, None], torch.fft.rfftfreq(width)
    spectrum = torch.fft.rfft2(torch.randn(height, width, generator=generator))
    radius = torch.hypot(rows, columns) + 1 / height
    values = torch.fft.irfft2(spectrum / radius, s=(height, width))
    noise = 0.004 * torch.randn(1, 3, height, width, generator=generator)
    return 0.5 + 0.15 * values / values.std() + noise


def planes(image):
    return [255 * image[0].mean(0)]


def with_copy(image, weight, move):
    return (1 - weight) * image + weight * image.roll(move, (2, 3))


@pytest.mark.parametrize("move", [(0, 4), (5, 0), (-3, 6), (7, 7)])
def test_the_height_of_an_echo_is_about_its_weight_over_that_of_the_picture(move):
    image = detailed(128, 128)
    assert echo(planes(image)) < 0.1
    assert echo(planes(with_copy(image, 0.3, move))) == pytest.approx(0.3 / 0.7, abs=0.2)


def test_a_stronger_copy_has_a_higher_echo():
    image = detailed(128, 128)
    weak, strong = (echo(planes(with_copy(image, weight, (0, 5)))) for weight in (0.15, 0.35))
    assert weak < strong


def test_jpeg_blocks_are_no_echo():
    assert echo(planes(jpeg(detailed(128, 128), quality=30))) < 0.1


def test_a_pattern_repeats_more_often_than_an_echo():
    stripes = (torch.arange(128) % 6 < 2).float().expand(1, 1, 128, 128)
    noise = 0.02 * torch.randn(1, 1, 128, 128, generator=torch.Generator().manual_seed(0))
    copied = with_copy(detailed(128, 128), 0.3, (0, 6))
    assert echo(planes(stripes + noise)) < echo(planes(copied))


def test_small_windows_tell_no_echo():
    assert echo([torch.rand(48, 128)]) == 0


@pytest.mark.parametrize("step", [(0, 1), (1, 0), (1, 1), (1, -1)])
def test_colours_that_lie_beside_each_other_are_found_in_every_direction(step):
    red, green, blue = 255 * detailed(96, 96)[0]
    assert colour_shift([torch.stack([red, green, blue])]) < 0.3
    back = tuple(-s for s in step)
    moved = torch.stack([red.roll(step, (0, 1)), green, blue.roll(back, (0, 1))])
    assert colour_shift([moved]) > 0.7


def test_grey_and_flat_windows_tell_no_shift():
    assert colour_shift([255 * detailed(96, 96)[0, :1]]) == 0
    assert colour_shift([torch.full((3, 96, 96), 100.0)]) == 0


def test_the_statistics_of_a_picture_have_both():
    image = detailed(128, 128)
    moved = torch.stack([image[0, 0].roll(1, 1), image[0, 1], image[0, 2].roll(-1, 1)])[None]
    clean, found = measure(image), measure(with_copy(moved, 0.3, (0, 5)))
    assert found.colour_shift > 0.7 > clean.colour_shift
    assert found.echo > 0.15 > clean.echo
