import math

import numpy as np
import pytest
import torch
from scipy import ndimage

from helpers.natural import natural
from musigma.functional.blur import blur, gaussian_kernels, motion_kernels
from musigma.types import ImageError


def by_scipy(image, kernel):
    """Convolve ``(C, H, W)`` with symmetric borders, which scipy calls reflect."""
    planes = [ndimage.convolve(plane.double().numpy(), kernel, mode="reflect") for plane in image]
    return torch.tensor(np.stack(planes))


@pytest.mark.parametrize("size", [(40, 56), (37, 29), (7, 64), (5, 4)])
def test_each_image_is_convolved_with_its_kernel(size):
    images = torch.cat([natural(*size, seed=seed) for seed in range(2)])
    kernels = torch.rand(2, 5, 5, generator=torch.Generator().manual_seed(0))  # not symmetric
    kernels = kernels / kernels.sum((1, 2), keepdim=True)
    result = blur(images, kernels)
    for n in range(2):
        expected = by_scipy(images[n], kernels[n].double().numpy())
        torch.testing.assert_close(result[n].double(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("std", [0.4, 1.2, 2.0])
def test_round_gaussians_equal_scipy(std):
    image = natural(41, 50, 1)
    radius = math.ceil(3 * std)
    result = blur(image, gaussian_kernels(torch.tensor([std]), radius=radius))
    expected = ndimage.gaussian_filter(image[0, 0].double().numpy(), std, radius=radius)
    torch.testing.assert_close(result[0, 0].double(), torch.tensor(expected), rtol=0, atol=1e-6)


def test_two_widths_at_an_angle_by_their_covariance():
    std, across, angle = torch.tensor([3.0, 2.0]), torch.tensor([1.0, 1.5]), torch.tensor([30, 110])
    kernels = gaussian_kernels(std, across=across, angle=angle, radius=15).double()
    line = torch.arange(-15, 16).double()
    for n in range(2):
        radians = math.radians(float(angle[n]))
        axis = torch.tensor([math.cos(radians), math.sin(radians)]).double()
        aside = torch.tensor([-axis[1], axis[0]])
        expected = float(std[n]) ** 2 * axis.outer(axis) + float(across[n]) ** 2 * aside.outer(
            aside
        )
        right, down = kernels[n].sum(0), kernels[n].sum(1)
        moments = [right @ line**2, kernels[n] @ line @ line, down @ line**2]
        wanted = [expected[0, 0], expected[0, 1], expected[1, 1]]
        torch.testing.assert_close(torch.stack(moments), torch.stack(wanted), rtol=1e-3, atol=1e-3)


def test_equal_widths_do_not_care_about_the_angle():
    std = torch.tensor([0.9, 1.7])
    turned = gaussian_kernels(std, across=std, angle=torch.tensor([20.0, 75.0]), radius=6)
    torch.testing.assert_close(turned, gaussian_kernels(std, radius=6))


@pytest.mark.parametrize("std", [0.0, 0.05, 0.1])
def test_a_narrow_gaussian_is_the_identity(std):
    kernel = gaussian_kernels(torch.tensor([std]), radius=3)
    identity = torch.zeros(1, 7, 7)
    identity[0, 3, 3] = 1
    torch.testing.assert_close(kernel, identity, rtol=0, atol=1e-20)
    image = natural(23, 31)
    torch.testing.assert_close(blur(image, kernel), image, rtol=0, atol=1e-6)


def test_motion_by_shares_of_the_way():
    length, angle = torch.tensor([4.0, 0.0, 3.0]), torch.tensor([90.0, 33.0, 45.0])
    kernels = motion_kernels(length, angle=angle, radius=2)
    torch.testing.assert_close(kernels.sum((1, 2)), torch.ones(3))
    # Straight down: all in the middle column, the ends half as long on the way as the rest.
    column = kernels[0, :, 2]
    torch.testing.assert_close(column.sum(), torch.tensor(1.0), atol=1e-6, rtol=0)
    torch.testing.assert_close(column, torch.tensor([1, 2, 2, 2, 1]) / 8, atol=0.01, rtol=0)
    assert kernels[1, 2, 2] == 1
    torch.testing.assert_close(kernels[2], kernels[2].T)
    torch.testing.assert_close(kernels, kernels.flip(1, 2))  # as much forwards as backwards


def test_bad_kernels_are_refused():
    with pytest.raises(ImageError, match=r"odd k, got \(1, 4, 4\)"):
        blur(torch.rand(1, 3, 8, 8), torch.rand(1, 4, 4))
    with pytest.raises(ImageError, match="got 2 for 1 images"):
        blur(torch.rand(1, 3, 8, 8), torch.rand(2, 3, 3))
