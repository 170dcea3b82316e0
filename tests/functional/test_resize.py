import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from musigma.functional.geometry import crop_to_multiple
from musigma.functional.resize import bicubic_down, bicubic_up, resize
from musigma.types import ConfigError, ImageError

DATA = os.environ.get("MUSIGMA_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="MUSIGMA_DATA is not set")


def random_image(*shape, dtype=torch.float64):
    return torch.rand(shape, generator=torch.Generator().manual_seed(0), dtype=dtype)


def random_levels(*shape):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)


def read(path):
    from PIL import Image

    return torch.from_numpy(np.array(Image.open(path).convert("RGB"))).permute(2, 0, 1)[None]


def imresize_matrix(length, result, factor):
    """Return imresize's weights as a dense matrix, written down from its definition, 1-based."""

    def cubic(x):
        x = abs(x)
        if x <= 1:
            return 1.5 * x**3 - 2.5 * x**2 + 1
        return -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2 if x <= 2 else 0.0

    shrink = min(factor, 1)
    width = 4 / shrink
    mirror = [*range(1, length + 1), *range(length, 0, -1)]
    matrix = np.zeros((result, length))
    for row in range(1, result + 1):
        center = row / factor + 0.5 * (1 - 1 / factor)
        left = math.floor(center - width / 2)
        for tap in range(left, left + math.ceil(width) + 2):
            matrix[row - 1, mirror[(tap - 1) % (2 * length)] - 1] += cubic(shrink * (center - tap))
    return matrix / matrix.sum(1, keepdims=True)


@needs_data
@pytest.mark.parametrize("scale", [2, 3, 4])
def test_downscaling_equals_the_published_set5_bit_for_bit(scale):
    folder = Path(DATA) / "benchmark" / "Set5"
    for path in sorted((folder / "HR").iterdir()):
        low = bicubic_down(crop_to_multiple(read(path), scale), scale)
        published = read(folder / "LR_bicubic" / f"X{scale}" / f"{path.stem}x{scale}.png")
        assert torch.equal(low, published), path.stem


@pytest.mark.parametrize("size", [(12, 31), (37, 11), (9, 7), (80, 50), (20, 62), (3, 2)])
def test_float_images_follow_the_definition(size):
    image = random_image(2, 3, 37, 31)
    rows = imresize_matrix(37, size[0], size[0] / 37)
    columns = imresize_matrix(31, size[1], size[1] / 31)
    expected = torch.from_numpy(rows @ image.numpy() @ columns.T)
    torch.testing.assert_close(resize(image, size=size), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("size", "first"),
    [((18, 10), "columns"), ((12, 20), "rows"), ((74, 93), "rows"), ((111, 62), "columns")],
)
def test_uint8_images_are_rounded_after_each_pass_smaller_factor_first(size, first):
    image = random_levels(1, 3, 37, 31)
    rows = imresize_matrix(37, size[0], size[0] / 37)
    columns = imresize_matrix(31, size[1], size[1] / 31)

    def rounded(values):
        return np.clip(np.floor(values + 0.5), 0, 255)

    work = image.numpy().astype(np.float64)
    if first == "rows":
        expected = rounded(rounded(rows @ work) @ columns.T)
    else:
        expected = rounded(rows @ rounded(work @ columns.T))
    result = resize(image, size=size)
    assert result.dtype == torch.uint8
    assert np.array_equal(result.numpy(), expected)


# Pillow has the same kernels (its bicubic too has a = -0.5), but other borders.
@pytest.mark.parametrize(
    ("kernel", "pillow"),
    [("cubic", "BICUBIC"), ("linear", "BILINEAR")],
)
@pytest.mark.parametrize("size", [(20, 17), (111, 80)])
def test_kernels_equal_pillow_away_from_the_border(kernel, pillow, size):
    from PIL import Image

    image = random_image(1, 1, 61, 53, dtype=torch.float32)
    filter_ = Image.Resampling[pillow]
    expected = np.array(Image.fromarray(image[0, 0].numpy()).resize(size[::-1], filter_))
    result = resize(image, size=size, kernel=kernel)[0, 0].numpy()
    np.testing.assert_allclose(result[4:-4, 4:-4], expected[4:-4, 4:-4], rtol=0, atol=2e-6)


@pytest.mark.parametrize("scale", [1 / 3, 0.4, 2, 2.5])
@pytest.mark.parametrize("antialias", [True, False])
def test_constant_images_stay_constant(scale, antialias):
    result = resize(
        torch.full((1, 2, 37, 31), 0.3, dtype=torch.float64), scale=scale, antialias=antialias
    )
    torch.testing.assert_close(result, torch.full_like(result, 0.3), rtol=0, atol=1e-12)


@pytest.mark.parametrize("scale", [1 / 4, 0.5, 3])
def test_adjoint_by_autograd(scale):
    x = random_image(1, 3, 37, 31).requires_grad_()
    result = resize(x, scale=scale)
    y = torch.randn(result.shape, generator=torch.Generator().manual_seed(1)).double()
    (adjoint,) = torch.autograd.grad(result, x, y)
    # The operator is linear: <Ax, y> = <x, A'y>.
    assert (result * y).sum().item() == pytest.approx((x * adjoint).sum().item(), rel=1e-10)


def test_gradients_flow_after_a_first_use_in_inference_mode():
    with torch.inference_mode():
        resize(torch.rand(1, 1, 23, 29), scale=0.5)
    image = torch.rand(1, 1, 23, 29, requires_grad=True)
    resize(image, scale=0.5).sum().backward()
    assert image.grad.sum().item() == pytest.approx(12 * 15, rel=1e-5)


def test_a_batch_is_its_images():
    batch = random_levels(3, 3, 36, 28)
    alone = torch.cat([bicubic_down(image[None], 4) for image in batch])
    assert torch.equal(bicubic_down(batch, 4), alone)


@pytest.mark.parametrize("function", [bicubic_down, bicubic_up])
def test_8_bit_functions_agree_on_float_and_uint8(function):
    levels = random_levels(1, 3, 36, 28)
    result = function(levels.float() / 255, 2)
    assert result.dtype == torch.float32
    assert torch.equal(result, function(levels, 2).float() / 255)


def test_half_precision_is_only_storage():
    image = random_image(1, 3, 37, 31).half()
    assert torch.equal(resize(image, scale=0.5), resize(image.float(), scale=0.5).half())


def test_sides_of_the_result_are_rounded_up_as_matlab_does():
    image = torch.zeros(1, 1, 10, 31)
    # MATLAB rounds sides up; 10 * 1.1 is 11.000000000000002 in double precision and means 11.
    assert resize(image, scale=1.1).shape == (1, 1, 11, 35)
    assert resize(image, scale=0.5).shape == (1, 1, 5, 16)
    assert resize(image, size=(10, 31)).equal(image)
    assert resize(image, scale=0.5).is_contiguous()


def test_bad_arguments_are_refused():
    image = torch.zeros(1, 3, 37, 31)
    with pytest.raises(ConfigError, match="either scale or size"):
        resize(image)
    with pytest.raises(ConfigError, match="either scale or size"):
        resize(image, scale=2, size=(3, 3))
    with pytest.raises(ConfigError, match="cannot resize 31x37 pixels to 0x0"):
        resize(image, scale=0)
    with pytest.raises(ConfigError, match="no kernel 'cubik'; did you mean 'cubic'"):
        resize(image, scale=2, kernel="cubik")
    with pytest.raises(ImageError, match=r"got shape \(3, 37, 31\)"):
        resize(image[0], scale=2)
    with pytest.raises(ImageError, match="multiples of the scale 4, got 31x37"):
        bicubic_down(image, 4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("function", [bicubic_down, bicubic_up])
def test_a_gpu_gives_the_same_levels(function):
    levels = random_levels(2, 3, 36, 60)
    for scale in (2, 4):  # the weights are dyadic: no rounding error may decide
        assert torch.equal(function(levels.cuda(), scale).cpu(), function(levels, scale))
    difference = function(levels.cuda(), 3).cpu().int() - function(levels, 3).int()
    assert difference.abs().max() <= 1
