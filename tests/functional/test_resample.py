"""Shrinking and enlarging again, compared with Pillow."""

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.natural import natural
from musigma.functional.resample import resample

KERNELS = {1.0: Image.Resampling.BILINEAR, 2.0: Image.Resampling.BICUBIC}


def by_pillow(plane, share, kernel):
    size = [max(1, round(side * share)) for side in reversed(plane.shape)]
    small = Image.fromarray(plane.numpy()).resize(size, kernel)
    return torch.from_numpy(np.array(small.resize((plane.shape[1], plane.shape[0]), kernel)))


@pytest.mark.parametrize("support", KERNELS)
@pytest.mark.parametrize("share", [0.37, 0.5, 0.75, 0.9, 0.98])
def test_equals_pillow_in_float(share, support):
    image = natural(48, 64)
    result = resample(image, share=torch.tensor([share]), support=torch.tensor([support]))
    expected = torch.stack([by_pillow(plane, share, KERNELS[support]) for plane in image[0]])
    torch.testing.assert_close(result[0], expected, rtol=0, atol=5e-6)


def test_each_image_has_its_own_share_and_kernel():
    images = torch.cat([natural(40, 56, seed=seed) for seed in range(3)])
    shares, supports = torch.tensor([0.4, 0.7, 0.95]), torch.tensor([1.0, 2.0, 1.0])
    together = resample(images, share=shares, support=supports, most=0.95)
    for n in range(3):
        alone = resample(images[n : n + 1], share=shares[n : n + 1], support=supports[n : n + 1])
        torch.testing.assert_close(together[n : n + 1], alone, rtol=0, atol=5e-6)


def test_at_its_own_size_an_image_stays():
    image = natural(30, 41)
    for support in KERNELS:
        same = resample(image, share=torch.ones(1), support=torch.tensor([support]))
        torch.testing.assert_close(same, image, rtol=0, atol=1e-6)
