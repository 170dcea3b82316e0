import os
from pathlib import Path

import numpy as np
import pytest
import torch

from musigma.datasets.degradation import downscale_pair
from musigma.functional.color import rgb_to_y
from musigma.functional.fidelity import psnr
from musigma.functional.resize import bicubic_up
from musigma.types import ImageError

DATA = os.environ.get("MUSIGMA_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="MUSIGMA_DATA is not set")


def read(path):
    from PIL import Image

    pixels = np.array(Image.open(path).convert("RGB"))
    return torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 255


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_low_is_8_bit_and_target_is_the_crop(scale):
    image = torch.rand(1, 3, 37, 31, generator=torch.Generator().manual_seed(0))
    low, target = downscale_pair(image, scale)
    assert low.shape == (1, 3, 37 // scale, 31 // scale)
    assert torch.equal(target, image[..., : 37 // scale * scale, : 31 // scale * scale])
    torch.testing.assert_close(low * 255, (low * 255).round(), rtol=0, atol=1e-4)


def test_uint8_gives_the_same_pair():
    levels = torch.arange(3 * 37 * 31).reshape(1, 3, 37, 31).mul(7).remainder(256).to(torch.uint8)
    low, target = downscale_pair(levels, 3)
    assert low.dtype == target.dtype == torch.uint8
    low_float, target_float = downscale_pair(levels / 255, 3)
    assert torch.equal(low / 255, low_float)
    assert torch.equal(target / 255, target_float)


def test_an_image_smaller_than_the_scale_is_refused():
    with pytest.raises(ImageError, match="at least 4x4 pixels, got 31x3"):
        downscale_pair(torch.zeros(1, 3, 3, 31), 4)


# Bicubic up-sampling back in 8-bit RGB, PSNR on Y: values recorded for these files by the project's
# reference before this code was written.
@needs_data
@pytest.mark.parametrize(
    ("name", "scale", "expected"),
    [
        ("Set5", 2, 33.673),
        ("Set5", 3, 30.403),
        ("Set5", 4, 28.429),
        ("Set14", 2, 30.325),
        ("Set14", 3, 27.631),
        ("Set14", 4, 26.088),
    ],
)
def test_bicubic_psnr_of_the_benchmarks(name, scale, expected):
    values = []
    for path in sorted((Path(DATA) / "benchmark" / name / "HR").iterdir()):
        low, target = downscale_pair(read(path), scale)
        luma = rgb_to_y(bicubic_up(low, scale)), rgb_to_y(target)
        values.append(psnr(*luma, data_range=1, shave=scale))
    assert torch.cat(values).mean().item() == pytest.approx(expected, abs=0.001)
