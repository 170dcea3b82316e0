"""Traces of programs and devices are found in natural pictures, and are not in clean ones."""

import pytest
import torch
from torch.nn.functional import interpolate

from helpers.natural import natural
from musigma.functional import picture_traces
from musigma.functional.jpeg import jpeg

CLEAN = natural(128, 128)


def planes(image):
    return [255 * image[0, 0]]


def noise(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)) / 255


def cut_after_jpeg(image):
    wide = torch.cat([image, image], 3)[..., : 128 + 5]
    return jpeg(wide, quality=50)[..., 3:, 5:]


def with_lines(image):
    return image + 5 * noise(1, 1, 128, 1)


def doubled(image):
    return image[..., ::2, ::2].repeat_interleave(2, 2).repeat_interleave(2, 3)


def enlarged(image):
    return interpolate(image[..., ::2, ::2], scale_factor=2, mode="bicubic")


def with_dots(image):
    image = image.clone()
    image[..., ::9, ::11] = 1 - image[..., ::9, ::11].round()
    return image


@pytest.mark.parametrize(
    ("name", "damage", "factor"),
    [
        ("shifted_blocks", cut_after_jpeg, 2),
        ("lines", with_lines, 5),
        ("period_of_two", doubled, 5),
        ("period_of_two", enlarged, 3),
    ],
)
def test_a_trace_stands_out(name, damage, factor):
    trace = getattr(picture_traces, name)
    assert trace(planes(damage(CLEAN))) > factor * max(trace(planes(CLEAN)), 0.05)


def test_blocks_at_the_grid_are_not_taken_for_shifted_ones():
    aligned = picture_traces.shifted_blocks(planes(jpeg(CLEAN, quality=50)))
    assert aligned < picture_traces.shifted_blocks(planes(cut_after_jpeg(CLEAN))) / 2


def test_small_windows_have_too_few_blocks_to_tell():
    assert picture_traces.shifted_blocks(planes(cut_after_jpeg(CLEAN)[..., :88, :88])) == 0


def test_single_pixels_are_counted():
    assert picture_traces.impulses(planes(with_dots(CLEAN))) > 4
    assert picture_traces.impulses(planes(CLEAN)) < 2


def test_levels_that_nothing_has_are_counted_over_all_windows():
    values = 255 * CLEAN[0]
    assert picture_traces.empty_levels([values]) < 0.3
    assert picture_traces.empty_levels([(values / 32).round() * 32]) > 0.9
    assert picture_traces.empty_levels([torch.full((3, 32, 32), 9.0)]) == 0


def test_halos_make_slopes_opposite():
    soft = interpolate(CLEAN, scale_factor=0.25, mode="area")
    soft = interpolate(soft, scale_factor=4, mode="bilinear")
    plain, sharp = (
        picture_traces.correlations(planes(image)) for image in (CLEAN, CLEAN + 3 * (CLEAN - soft))
    )
    assert min(sharp) < min(plain)
