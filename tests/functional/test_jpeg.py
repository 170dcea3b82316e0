import io
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.natural import natural
from musigma.functional.jpeg import jpeg, quantization_tables
from musigma.types import ImageError

DATA = os.environ.get("MUSIGMA_DATA")
QUALITIES = (10, 25, 50, 75, 90, 95)


def by_pillow(image, quality, subsampling):
    """Save and read an image ``(1, C, H, W)``; 8-bit levels as integers."""
    levels = (image[0].permute(1, 2, 0).numpy() * 255 + 0.5).astype(np.uint8)
    file = io.BytesIO()
    picture = Image.fromarray(levels.squeeze(-1) if levels.shape[-1] == 1 else levels)
    picture.save(file, "JPEG", quality=quality, subsampling=2 if subsampling else 0)
    read = np.asarray(Image.open(file))
    return torch.tensor(read.reshape(levels.shape)).permute(2, 0, 1)[None].int()


def levels_of(image):
    return (image * 255).round().int()


def assert_like_pillow(image, quality, subsampling):
    result = jpeg(image, quality=quality, subsampling=subsampling)
    off = (levels_of(result) - by_pillow(image, quality, subsampling)).abs()
    assert (off <= 1).float().mean() >= 0.999, (off.max(), (off > 1).float().mean())
    assert (off == 0).float().mean() >= 0.99


# Sides of whole blocks, of odd and even rests, and planes too narrow for libjpeg's interpolation.
@pytest.mark.parametrize("size", [(64, 48), (71, 53), (50, 34), (19, 17), (40, 4), (5, 3)])
@pytest.mark.parametrize("subsampling", [True, False])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("quality", QUALITIES)
def test_jpeg_equals_pillow(quality, channels, subsampling, size):
    assert_like_pillow(natural(*size, channels), quality, subsampling)


@pytest.mark.skipif(not DATA, reason="MUSIGMA_DATA is not set")
@pytest.mark.parametrize("subsampling", [True, False])
@pytest.mark.parametrize("quality", QUALITIES)
def test_jpeg_equals_pillow_on_photos(quality, subsampling):
    for path in sorted((Path(DATA) / "benchmark" / "Set14" / "HR").glob("*.png"))[:3]:
        picture = np.array(Image.open(path).convert("RGB"))[:203, :251]
        image = torch.tensor(picture).permute(2, 0, 1)[None] / 255
        assert_like_pillow(image, quality, subsampling)
        assert_like_pillow(image[:, 1:2], quality, subsampling)


def test_flat_pictures_fall_on_the_side_that_libjpeg_takes():
    # Every level of a flat picture is a multiple of half a step somewhere: ties are the rule.
    for quality in (50, 75, 92):
        for level in range(256):
            image = torch.full((1, 1, 8, 8), level / 255)
            expected = by_pillow(image, quality, False)
            assert torch.equal(levels_of(jpeg(image, quality=quality)), expected), (quality, level)


def test_every_image_has_its_own_quality_and_subsampling():
    images = torch.cat([natural(40, 56, seed=seed) for seed in range(4)])
    quality = torch.tensor([10.0, 30.0, 74.6, 95.0])
    half = torch.tensor([True, False, True, False])
    batch = jpeg(images, quality=quality, subsampling=half)
    for n in range(4):
        alone = jpeg(images[n : n + 1], quality=round(float(quality[n])), subsampling=bool(half[n]))
        torch.testing.assert_close(batch[n : n + 1], alone, rtol=0, atol=1.01 / 255)
        assert (levels_of(batch[n : n + 1]) == levels_of(alone)).float().mean() > 0.999


@pytest.mark.parametrize("quality", [1, 10, 37, 49, 50, 51, 75, 99, 100])
def test_tables_are_those_in_a_file(quality):
    file = io.BytesIO()
    Image.new("RGB", (16, 16)).save(file, "JPEG", quality=quality)
    written = Image.open(file).quantization
    luma, chroma = quantization_tables(quality, 2, torch.device("cpu"))
    # Pillow gives tables row by row.
    assert luma[1].int().tolist() == written[0]
    assert chroma[1].int().tolist() == written[1]


def test_input_is_clipped_and_rounded_first():
    image = natural(24, 24)
    shifted = (image + 0.3 / 255).where(image > 0, torch.tensor(-2.0))
    assert torch.equal(jpeg(shifted, quality=60), jpeg(image, quality=60))


def test_bad_input_is_refused():
    with pytest.raises(ImageError, match=r"\(N, 3 or 1, H, W\) .* got \(1, 2, 8, 8\)"):
        jpeg(torch.zeros(1, 2, 8, 8), quality=50)
    with pytest.raises(ImageError, match=r"torch.uint8"):
        jpeg(torch.zeros(1, 3, 8, 8, dtype=torch.uint8), quality=50)


def test_compiles_without_a_break():
    images, quality = torch.cat([natural(40, 56)] * 2), torch.tensor([20.0, 80.0])
    half = torch.tensor([True, False])

    def coded(image):
        return jpeg(image, quality=quality, subsampling=half)

    compiled = torch.compile(coded, fullgraph=True, dynamic=False, backend="eager")
    assert torch.equal(compiled(images), coded(images))


def test_works_outside_after_a_first_use_in_inference_mode():
    with torch.inference_mode():
        jpeg(torch.rand(1, 1, 8, 8), quality=50)
    assert jpeg(torch.rand(1, 1, 8, 8, requires_grad=True), quality=50).shape == (1, 1, 8, 8)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_the_same_levels():
    image = natural(71, 53)
    off = jpeg(image.cuda(), quality=60).cpu() - jpeg(image, quality=60)
    assert (off.abs() * 255 <= 1.01).float().mean() > 0.999
