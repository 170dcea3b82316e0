import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from musigma.functional.color import quantise, rgb_to_y
from musigma.functional.fidelity import psnr, ssim
from musigma.functional.geometry import crop_to_multiple
from musigma.functional.resize import resize
from musigma.types import ImageError


def images(*shape):
    generator = torch.Generator().manual_seed(0)
    target = torch.rand(shape, generator=generator)
    return (target + 0.1 * torch.randn(shape, generator=generator)).clamp(0, 1), target


def skimage_ssim(image, target, data_range):
    from skimage.metrics import structural_similarity

    # scikit-image filters past the border, then leaves out (11 - 1) / 2 pixels: the valid region.
    return structural_similarity(
        image.numpy(),
        target.numpy(),
        data_range=data_range,
        channel_axis=0,
        gaussian_weights=True,
        sigma=1.5,
        use_sample_covariance=False,
    )


@pytest.mark.parametrize("shave", [0, 4])
@pytest.mark.parametrize("shape", [(2, 3, 37, 31), (1, 1, 19, 53)])
def test_psnr_and_ssim_equal_scikit_image(shape, shave):
    from skimage.metrics import peak_signal_noise_ratio

    image, target = images(*shape)
    inner = (..., slice(shave, shape[2] - shave), slice(shave, shape[3] - shave))
    pairs = list(zip(image[inner].double(), target[inner].double(), strict=True))
    expected_psnr = [peak_signal_noise_ratio(t.numpy(), i.numpy(), data_range=1) for i, t in pairs]
    expected_ssim = [skimage_ssim(i, t, 1) for i, t in pairs]
    assert psnr(image, target, data_range=1, shave=shave).tolist() == pytest.approx(
        expected_psnr, abs=1e-9
    )
    assert ssim(image, target, data_range=1, shave=shave).tolist() == pytest.approx(
        expected_ssim, abs=1e-9
    )


@pytest.mark.parametrize("metric", [psnr, ssim])
def test_data_range_only_fixes_the_unit(metric):
    image, target = images(2, 3, 37, 31)
    unit = metric(image, target, data_range=1, shave=2)
    levels = metric(image.double() * 255, target.double() * 255, data_range=255, shave=2)
    assert unit.shape == (2,)
    assert unit.dtype == torch.float64
    torch.testing.assert_close(levels, unit, rtol=0, atol=1e-9)


def test_psnr_by_hand():
    # One of four pixels is off by 2: the mean squared error is 1, and 20 log10(255) = 48.1308.
    image, target = torch.zeros(1, 1, 2, 2), torch.zeros(1, 1, 2, 2)
    image[..., 0, 1] = 2
    assert psnr(image, target, data_range=255, shave=0).item() == pytest.approx(48.1308, abs=1e-4)


def test_equal_images():
    image, _ = images(1, 3, 37, 31)
    assert psnr(image, image, data_range=1, shave=0).item() == math.inf
    assert ssim(image, image, data_range=1, shave=0).item() == pytest.approx(1, abs=1e-12)


# The bicubic row that super-resolution papers print for Set5. Its digits come out when Y alone, in
# 8 bits, is resized in float both ways and rounded once at the end.
@pytest.mark.skipif("MUSIGMA_DATA" not in os.environ, reason="MUSIGMA_DATA is not set")
@pytest.mark.parametrize(
    ("scale", "published_psnr", "published_ssim"),
    [(2, 33.66, 0.9299), (3, 30.39, 0.8682), (4, 28.42, 0.8104)],
)
def test_the_published_bicubic_row(scale, published_psnr, published_ssim):
    from PIL import Image

    values = []
    for path in (Path(os.environ["MUSIGMA_DATA"]) / "benchmark" / "Set5" / "HR").iterdir():
        rgb = torch.from_numpy(np.array(Image.open(path))).permute(2, 0, 1)[None].double() / 255
        target = crop_to_multiple(quantise(rgb_to_y(rgb)), scale)
        image = quantise(resize(resize(target, scale=1 / scale), scale=scale))
        values.append([f(image, target, data_range=1, shave=scale).item() for f in (psnr, ssim)])
    mean_psnr, mean_ssim = np.mean(values, axis=0)
    assert mean_psnr == pytest.approx(published_psnr, abs=0.005)
    assert mean_ssim == pytest.approx(published_ssim, abs=0.00005)


def test_ssim_has_gradients():
    image, target = images(1, 1, 12, 13)
    image = image.double().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x: ssim(x, target.double(), data_range=1, shave=0), (image,)
    )


@pytest.mark.parametrize("metric", [psnr, ssim])
def test_unequal_shapes_are_refused(metric):
    image, target = torch.zeros(1, 3, 37, 31), torch.zeros(1, 1, 37, 31)
    with pytest.raises(ImageError, match=r"\(1, 3, 37, 31\) and \(1, 1, 37, 31\)"):
        metric(image, target, data_range=1, shave=0)
    with pytest.raises(ImageError, match=r"one shape \(N, C, H, W\)"):
        metric(image[0], image[0], data_range=1, shave=0)


def test_small_images_are_refused():
    image = torch.zeros(1, 3, 37, 31)
    with pytest.raises(ImageError, match="border of 16 pixels off an image of 31x37"):
        psnr(image, image, data_range=1, shave=16)
    with pytest.raises(ImageError, match="needs 11x11 pixels inside the border, got 9x15"):
        ssim(image, image, data_range=1, shave=11)
