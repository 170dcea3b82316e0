import numpy as np
import pytest
import torch

from musigma.functional.geometry import (
    NUM_DIHEDRAL,
    crop_border,
    crop_to_multiple,
    dihedral,
    dihedral_inverse,
    pad,
    pad_to_multiple,
)
from musigma.types import ImageError


def ramp(*shape):
    return torch.arange(torch.Size(shape).numel()).reshape(shape)


@pytest.mark.parametrize("k", range(NUM_DIHEDRAL))
def test_dihedral_inverse_undoes_dihedral(k):
    image = ramp(2, 3, 5, 7)
    turned = dihedral(image, k)
    assert turned.shape[-2:] == ((7, 5) if k >= 4 else (5, 7))
    assert torch.equal(dihedral_inverse(turned, k), image)


def test_dihedral_views_are_all_flips_and_quarter_turns():
    image = ramp(1, 1, 3, 3)
    expected = [np.rot90(flip, turn) for flip in (image[0, 0], image[0, 0].T) for turn in range(4)]
    views = {tuple(dihedral(image, k).flatten().tolist()) for k in range(NUM_DIHEDRAL)}
    assert views == {tuple(view.ravel().tolist()) for view in expected}


@pytest.mark.parametrize("k", [-1, 8])
def test_dihedral_refuses_other_numbers(k):
    with pytest.raises(ImageError, match=f"numbered 0 to 7, got {k}"):
        dihedral(ramp(1, 1, 2, 2), k)


# numpy calls replicate "edge" and repeats a border that is wider than the image as we do.
@pytest.mark.parametrize(
    ("mode", "numpy_mode"),
    [("reflect", "reflect"), ("symmetric", "symmetric"), ("replicate", "edge")],
)
@pytest.mark.parametrize("size", [(5, 7), (2, 3), (1, 2), (1, 1)])
def test_pad_equals_numpy_even_beyond_the_image(mode, numpy_mode, size):
    image = ramp(2, 3, *size)
    expected = np.pad(image.numpy(), ((0, 0), (0, 0), (11, 6), (9, 4)), mode=numpy_mode)
    assert np.array_equal(pad(image, (9, 4, 11, 6), mode=mode), expected)


def test_pad_refuses_negative_numbers():
    with pytest.raises(ImageError, match="must not be negative"):
        pad(ramp(1, 1, 4, 4), (0, -1, 0, 0))


@pytest.mark.parametrize("size", [(37, 31), (40, 32), (3, 2)])
def test_pad_to_multiple_keeps_the_image_at_the_top_left(size):
    image = ramp(1, 3, *size)
    padded = pad_to_multiple(image, 8)
    height, width = padded.shape[-2:]
    assert height % 8 == width % 8 == 0
    assert 0 <= height - size[0] < 8
    assert 0 <= width - size[1] < 8
    assert torch.equal(padded[..., : size[0], : size[1]], image)


def test_crop_to_multiple():
    image = ramp(1, 3, 37, 31)
    assert torch.equal(crop_to_multiple(image, 4), image[..., :36, :28])
    with pytest.raises(ImageError, match="at least 32x32 pixels, got 31x37"):
        crop_to_multiple(image, 32)


def test_crop_border():
    image = ramp(1, 3, 37, 31)
    assert torch.equal(crop_border(image, 0), image)
    assert torch.equal(crop_border(image, 4), image[..., 4:-4, 4:-4])
    for border in (-1, 16):
        with pytest.raises(ImageError, match=f"border of {border} pixels off an image of 31x37"):
            crop_border(image, border)
