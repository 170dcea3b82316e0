"""Pictures that are drawn: the same by the same key, sharp, of all patterns."""

import pytest
import torch

from musigma.datasets import drawn_pictures
from musigma.datasets.drawn_pictures import (
    BARS,
    BRICKS,
    LETTERS,
    WINDOWS,
    draw_images,
    draw_pictures,
)


def test_a_key_gives_the_same_picture_in_any_batch():
    several = draw_pictures(torch.tensor([5, 6, 7]), size=24)
    assert torch.equal(several[1:2], draw_pictures(torch.tensor([6]), size=24))
    assert not torch.equal(several[0], several[1])


def test_images_are_the_pictures_of_the_first_keys():
    images = draw_images(2, size=16, channels=3)
    pictures = draw_pictures(torch.arange(2), size=16)
    assert torch.equal(torch.stack(images), pictures.permute(0, 3, 1, 2))


def test_pictures_use_the_whole_range_and_are_not_plain():
    pictures = draw_pictures(torch.arange(16), size=48).float()
    assert 90 < pictures.mean() < 165
    assert 45 < pictures.std() < 90
    assert (pictures.std((1, 2)).amax(1) > 4).all()  # the lowest leaf is never plain
    assert pictures.amin() < 20
    assert pictures.amax() > 235


def test_an_edge_is_as_sharp_as_the_mean_over_pixels(monkeypatch):
    """A picture with many samples, averaged further, is the same picture at half the size."""
    key = torch.tensor([21, 22, 23, 24])
    coarse = draw_pictures(key, size=32).float()
    monkeypatch.setattr(drawn_pictures, "SAMPLES", 12)
    fine = draw_pictures(key, size=32).float()
    assert (coarse - fine).abs().mean() < 3  # 16 samples of a pixel are nearly its mean
    monkeypatch.setattr(drawn_pictures, "SAMPLES", 1)
    jagged = draw_pictures(key, size=32).float()
    assert (jagged - fine).abs().mean() > 2 * (coarse - fine).abs().mean()


@pytest.mark.parametrize("kind", [WINDOWS, BRICKS, BARS, LETTERS])
def test_each_pattern_repeats(monkeypatch, kind):
    """With one leaf and no perspective, a pattern has strong lines in its spectrum."""
    kinds = tuple(float(number == kind) for number in range(5))
    monkeypatch.setattr(drawn_pictures, "KINDS", kinds)
    monkeypatch.setattr(drawn_pictures, "NUM_LEAVES", 1)
    gray = draw_pictures(torch.arange(8), size=64, channels=1)[..., 0].double()
    gray = gray - gray.mean((1, 2), keepdim=True)
    power = torch.fft.rfft2(gray).abs().square()
    largest = power.flatten(1).topk(40).values.sum(1) / power.sum((1, 2))
    assert (largest > (0.2 if kind == LETTERS else 0.35)).float().mean() > 0.7


def test_gray_pictures_have_one_channel():
    color, gray = (draw_pictures(torch.tensor([3]), size=16, channels=n) for n in (3, 1))
    assert gray.shape == (1, 16, 16, 1)
    assert (color.float().mean(-1, keepdim=True) - gray.float()).abs().max() <= 1
