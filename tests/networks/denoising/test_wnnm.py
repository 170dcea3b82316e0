import numpy as np
import pytest
import torch
from scipy import ndimage
from skimage.restoration import denoise_tv_chambolle

from musigma.functional.noise import image_generator
from musigma.functional.sensor_noise import sensor_noise
from musigma.networks.denoising.wnnm import shrink_singular_values, wnnm
from musigma.types import ImageError


def psnr(image, target):
    return -10 * np.log10(np.mean((np.asarray(image) - np.asarray(target)) ** 2))


def bricks(height, width):
    """A wall: a picture whose patches come again and again, with sharp edges between them."""
    y, x = np.mgrid[:height, :width]
    course = y // 9
    joint = (y % 9 < 2) | ((x + 8 * (course % 2)) % 16 < 2)
    return torch.from_numpy(np.where(joint, 0.8, 0.35 + 0.1 * (course % 3 == 0))).float()[None]


def test_beats_filters_of_one_place_on_a_picture_that_repeats():
    target = bricks(72, 66)
    noisy = sensor_noise(target[None], std=50, generator=image_generator("wall", 0))[0]
    # The best of each over the range of its one setting.
    blurred = max(psnr(ndimage.gaussian_filter(noisy[0], s), target[0]) for s in (0.6, 0.8, 1, 1.2))
    smoothed = max(
        psnr(denoise_tv_chambolle(noisy[0].numpy(), weight=w), target[0])
        for w in (0.1, 0.15, 0.2, 0.25, 0.3)
    )
    actual = psnr(wnnm(noisy, noise_std=50), target)
    # Measured: noisy 14.1, Gaussian 19.3, total variation 19.6, WNNM 25.8 dB.
    assert actual > max(blurred, smoothed) + 5


def test_shrinks_singular_values_by_hand():
    # Two patches whose difference is their only variation: the singular value is |a - b| / sqrt 2.
    a, b = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 0.0])
    group = torch.stack([a, b])[None]
    value, noise_std = 1 / 2**0.5, 0.1
    weight = 2 * 2**0.5 * 2**0.5 * 2 * noise_std**2
    expected = (value + (value**2 - 4 * weight) ** 0.5) / 2
    actual = shrink_singular_values(group, torch.tensor([noise_std]))[0]
    torch.testing.assert_close((actual[0] - actual[1])[0].item(), expected * 2**0.5)
    torch.testing.assert_close(actual.mean(0), group[0].mean(0))
    # Too much noise for the difference to be real leaves the mean alone.
    alone = shrink_singular_values(group, torch.tensor([0.5]))[0]
    torch.testing.assert_close(alone, group[0].mean(0).expand(2, 2))


def test_agrees_with_a_singular_value_decomposition():
    generator = torch.Generator().manual_seed(0)
    groups = torch.randn(3, 20, 9, generator=generator, dtype=torch.float64)
    levels = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
    actual = shrink_singular_values(groups, levels)
    for group, level, ours in zip(groups.numpy(), levels.numpy(), actual.numpy(), strict=True):
        mean = group.mean(0)
        u, s, v = np.linalg.svd(group - mean, full_matrices=False)
        root = s**2 - 16 * np.sqrt(2 * 20) * level**2
        kept = np.where(root > 0, (s + np.sqrt(np.maximum(root, 0))) / 2, 0)
        np.testing.assert_allclose(ours, (u * kept) @ v + mean, atol=1e-10)


@pytest.mark.parametrize("shape", [(3, 37, 31), (1, 3, 17), (1, 1, 1)])
def test_wnnm_keeps_any_size(shape):
    image = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    actual = wnnm(image, noise_std=15)
    assert actual.shape == image.shape
    assert actual.isfinite().all()


def test_without_noise_nothing_changes():
    image = torch.rand(1, 9, 9)
    assert torch.equal(wnnm(image, noise_std=0), image)


def test_bad_input_is_refused():
    with pytest.raises(ImageError, match=r"float image \(C, H, W\)"):
        wnnm(torch.zeros(1, 1, 8, 8), noise_std=25)
    with pytest.raises(ImageError, match=r"8-bit levels .* got -1"):
        wnnm(torch.zeros(1, 8, 8), noise_std=-1)
