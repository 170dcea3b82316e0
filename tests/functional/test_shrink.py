import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import interpolate

from helpers.natural import natural
from musigma.functional.resize import resize
from musigma.functional.shrink import METHODS, filter_radius, shrink, shrink_matrices, shrink_matrix
from musigma.types import ConfigError, ImageError

PILLOW = {
    "area": "BOX",
    "bilinear": "BILINEAR",
    "lanczos": "LANCZOS",
    "bicubic": "BICUBIC",
    "nearest": "NEAREST",
}


def shrunk(image, method, scale):
    rows, columns = (shrink_matrix(method, side, scale).float() for side in image.shape[-2:])
    return shrink(image, rows, columns)


def by_pillow(plane, method, scale):
    size = (plane.shape[1] // scale, plane.shape[0] // scale)
    return np.array(Image.fromarray(plane).resize(size, Image.Resampling[PILLOW[method]]))


def away_from_border(values, method):
    # MATLAB mirrors the border, Pillow cuts the kernel off; elsewhere the rules agree.
    return values[..., 2:-2, 2:-2] if method == "bicubic" else values


@pytest.mark.parametrize("scale", [2, 3, 4])
@pytest.mark.parametrize("method", list(PILLOW))
def test_equals_pillow_in_float(method, scale):
    image = natural(36, 60)
    expected = np.stack([by_pillow(plane.numpy(), method, scale) for plane in image[0]])
    off = shrunk(image, method, scale)[0] - torch.tensor(expected)
    assert away_from_border(off, method).abs().max() < 3e-6


@pytest.mark.parametrize("scale", [2, 3, 4])
@pytest.mark.parametrize("method", list(PILLOW))
def test_equals_pillow_in_8_bits_within_a_level(method, scale):
    # Soft contrast: between its two passes Pillow clips what overshoots.
    levels = (natural(36, 60) * 130 + 60).round()
    planes = levels[0].byte().numpy()
    expected = np.stack([by_pillow(plane, method, scale) for plane in planes])
    off = shrunk(levels, method, scale)[0].round() - torch.tensor(expected)
    assert away_from_border(off, method).abs().max() <= 1


@pytest.mark.parametrize("scale", [2, 3, 4])
@pytest.mark.parametrize("method", ["bicubic", "bilinear"])
def test_aliased_ways_equal_torch(method, scale):
    image = natural(36, 60)
    expected = interpolate(image, scale_factor=1 / scale, mode=method, align_corners=False)
    result = shrunk(image, f"{method}_aliased", scale)
    torch.testing.assert_close(result, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_bicubic_is_imresize(scale):
    image = natural(36, 60)
    expected = resize(image, scale=1 / scale)
    torch.testing.assert_close(shrunk(image, "bicubic", scale), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("scale", [2, 3, 4])
@pytest.mark.parametrize("method", list(METHODS))
def test_rows_sum_to_one_and_reach_no_further_than_said(method, scale):
    matrix = shrink_matrix(method, 20 * scale, scale)
    torch.testing.assert_close(matrix.sum(1), torch.ones(20).double())
    radius = filter_radius(method, scale)
    reached = 0
    for row in range(8, 12):
        used = matrix[row].nonzero().flatten()
        assert used.min() >= row * scale - radius
        assert used.max() < (row + 1) * scale + radius
        reached = max(reached, row * scale - int(used.min()))
    assert reached == radius or method in ("nearest", "bilinear_aliased", "area")


def test_a_batch_may_pick_a_way_per_image():
    images = torch.cat([natural(24, 32, seed=seed) for seed in range(3)])
    methods, index = list(METHODS), torch.tensor([5, 0, 2])
    device = torch.device("cpu")
    rows, columns = (shrink_matrices(methods, side, 2, device)[index] for side in (24, 32))
    result = shrink(images, rows, columns)
    for n in range(3):
        alone = shrunk(images[n : n + 1], methods[index[n]], 2)
        torch.testing.assert_close(result[n : n + 1], alone, rtol=0, atol=1e-6)


def test_bad_arguments_are_refused():
    with pytest.raises(ConfigError, match="called 'lancos'; did you mean 'lanczos'"):
        shrink_matrix("lancos", 8, 2)
    with pytest.raises(ImageError, match="multiple of the scale 3, got 8"):
        shrink_matrix("area", 8, 3)
