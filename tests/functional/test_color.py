import pytest
import torch

from musigma.functional.color import (
    match_channels,
    quantise,
    rgb_to_y,
    rgb_to_ycbcr,
    to_uint8,
    ycbcr_to_rgb,
)
from musigma.types import ImageError


def random_image(*shape, dtype=torch.float32):
    return torch.rand(shape, generator=torch.Generator().manual_seed(0), dtype=dtype)


def test_every_level_survives_the_way_to_float_and_back():
    levels = torch.arange(256, dtype=torch.uint8)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        image = levels.to(dtype) / 255
        # bfloat16 has eight bits of precision: neighboring levels fall together near white.
        tolerance = 1 if dtype == torch.bfloat16 else 0
        assert (to_uint8(image).int() - levels.int()).abs().max() <= tolerance


def test_halves_go_up_and_values_outside_are_clamped():
    image = torch.tensor([-0.2, 0.5, 1.5, 2.5, 254.5, 300.0], dtype=torch.float64) / 255
    assert to_uint8(image).tolist() == [0, 1, 2, 3, 255, 255]


def test_quantise_stays_in_float_and_is_idempotent():
    image = random_image(2, 3, 37, 31) * 1.4 - 0.2
    once = quantise(image)
    assert once.dtype == image.dtype
    assert (once - image.clamp(0, 1)).abs().max() <= 0.5 / 255 + 1e-7
    assert torch.equal(quantise(once), once)
    assert torch.equal(quantise(to_uint8(image)), once)


def test_ycbcr_equals_scikit_image():
    from skimage.color import rgb2ycbcr

    image = random_image(2, 3, 37, 31, dtype=torch.float64)
    expected = torch.from_numpy(rgb2ycbcr(image.numpy(), channel_axis=1)) / 255
    torch.testing.assert_close(rgb_to_ycbcr(image), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(rgb_to_y(image), expected[:, :1], rtol=0, atol=1e-12)


def test_luma_in_float32_is_good_to_a_thousandth_of_a_level():
    image = random_image(1, 3, 37, 31)
    error = rgb_to_y(image).double() - rgb_to_y(image.double())
    assert error.abs().max() * 255 < 1e-3


def test_luma_of_primaries():
    # BT.601: 16 for black, 235 for white, 16 plus the weight for a pure color.
    colors = torch.tensor([[0, 0, 0], [1, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]]).double()
    luma = rgb_to_y(colors[:, :, None, None]).flatten() * 255
    assert luma.tolist() == pytest.approx([16, 235, 81.481, 144.553, 40.966], abs=1e-9)


def test_match_channels_repeats_gray_and_weighs_color():
    gray, color = random_image(2, 1, 37, 31), random_image(2, 3, 37, 31)
    assert torch.equal(match_channels(gray, 3), torch.cat([gray, gray, gray], dim=1))
    assert match_channels(color, 3) is color
    # The full-swing BT.601 weights, as in the L mode of image editors.
    expected = 0.299 * color[:, :1] + 0.587 * color[:, 1:2] + 0.114 * color[:, 2:]
    torch.testing.assert_close(match_channels(color, 1), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ycbcr_inverse(dtype):
    image = random_image(2, 3, 37, 31, dtype=dtype)
    back = ycbcr_to_rgb(rgb_to_ycbcr(image))
    assert back.dtype == dtype
    torch.testing.assert_close(back, image, rtol=0, atol=1e-6)


@pytest.mark.parametrize("function", [rgb_to_y, rgb_to_ycbcr, ycbcr_to_rgb])
@pytest.mark.parametrize(
    "image", [torch.rand(1, 1, 8, 8), torch.zeros(1, 3, 8, 8, dtype=torch.uint8)]
)
def test_other_images_are_refused(function, image):
    with pytest.raises(ImageError, match=r"expected a float .* image \(N, 3, H, W\)"):
        function(image)
