"""Bilateral and Wiener filter, compared with sums written out and with SciPy's definition."""

import math

import torch

from helpers.natural import natural
from musigma.functional.blur import gaussian_kernels
from musigma.functional.noise_reduction import bilateral, wiener


def one(value):
    return torch.tensor([float(value)])


def bilateral_at(image, row, column, difference, std, radius):
    """Return the value of a pixel by the definition of the filter, inside the image."""
    total, weights = torch.zeros(image.shape[0]), 0.0
    for down in range(-radius, radius + 1):
        for right in range(-radius, radius + 1):
            neighbor = image[:, row + down, column + right]
            distance = ((neighbor - image[:, row, column]) * 255).square().mean().item()
            weight = math.exp(-(down**2 + right**2) / (2 * std**2))
            weight *= math.exp(-distance / (2 * difference**2))
            total, weights = total + weight * neighbor, weights + weight
    return total / weights


def test_a_pixel_of_the_bilateral_filter_is_the_weighted_mean_of_its_definition():
    image = natural(24, 32)
    result = bilateral(image, difference=one(20), std=one(1.2), radius=3)
    for row, column in ((7, 9), (12, 20), (20, 28)):
        expected = bilateral_at(image[0], row, column, 20, 1.2, 3)
        torch.testing.assert_close(result[0, :, row, column], expected, rtol=0, atol=2e-6)


def test_each_image_has_its_own_strength():
    images = torch.cat([natural(24, 32, seed=seed) for seed in range(2)])
    differences, stds = torch.tensor([5.0, 40.0]), torch.tensor([0.7, 1.5])
    together = bilateral(images, difference=differences, std=stds, radius=3)
    noises = torch.tensor([2.0, 12.0])
    calm = wiener(images, noise_std=noises, std=stds, radius=3)
    for n in range(2):
        image, pick = images[n : n + 1], slice(n, n + 1)
        alone = bilateral(image, difference=differences[pick], std=stds[pick], radius=3)
        torch.testing.assert_close(together[pick], alone)
        alone = wiener(image, noise_std=noises[pick], std=stds[pick], radius=3)
        torch.testing.assert_close(calm[pick], alone)


def test_noise_goes_and_edges_stay():
    edge = torch.full((1, 3, 40, 40), 60 / 255)
    edge[..., 20:] = 180 / 255
    noisy = edge + 5 / 255 * torch.randn(edge.shape, generator=torch.Generator().manual_seed(0))
    far = torch.ones(40, dtype=torch.bool)
    far[14:26] = False
    smoothed = bilateral(noisy, difference=one(25), std=one(1.5), radius=3)
    calm = wiener(noisy, noise_std=one(5), std=one(1.5), radius=3)
    for result in (smoothed, calm):
        error = (result - edge)[..., far] * 255
        assert error.std() < 2.5  # 5 before
    step = smoothed[..., 20:22].mean() - smoothed[..., 18:20].mean()
    assert abs(step * 255 - 120) < 3


def test_the_wiener_filter_has_the_published_gain():
    image, kernels = natural(32, 32), gaussian_kernels(one(1), radius=2)
    calm = wiener(image, noise_std=one(8), std=one(1), radius=2)
    window = image[0, :, 10:15, 12:17]
    mean = (window * kernels).sum((1, 2))
    # The variance is that around the local mean of each pixel of the window.
    wide = image[0].unfold(1, 5, 1).unfold(2, 5, 1)
    rest = image[0, :, 2:-2, 2:-2] - (wide * kernels[0]).sum((3, 4))
    variance = (rest[:, 8:13, 10:15].square() * kernels).sum((1, 2))
    gain = (1 - (8 / 255) ** 2 / variance).clamp(min=0)
    expected = mean + gain * (image[0, :, 12, 14] - mean)
    torch.testing.assert_close(calm[0, :, 12, 14], expected, rtol=0, atol=1e-5)


def test_no_strength_changes_nothing():
    image = natural(24, 32)
    same = wiener(image, noise_std=one(0), std=one(1), radius=2)
    torch.testing.assert_close(same, image, rtol=0, atol=1e-6)
    narrow = bilateral(image, difference=one(20), std=one(0), radius=2)
    torch.testing.assert_close(narrow, image, rtol=0, atol=1e-6)
