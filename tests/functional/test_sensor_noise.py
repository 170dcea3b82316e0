import pytest
import torch

from musigma.functional.blur import gaussian_kernels
from musigma.functional.color import linear_to_srgb, srgb_to_linear
from musigma.functional.noise import image_generator
from musigma.functional.sensor_noise import raw_noise, sensor_noise


def generator():
    return image_generator("a", 0)


def test_one_level_is_that_of_the_denoising_protocol():
    image = torch.rand(2, 3, 17, 23)
    expected = sensor_noise(image, std=25, generator=generator())
    assert torch.equal(sensor_noise(image, std=25, generator=generator()), expected)
    levels = torch.tensor([25.0, 25.0])
    result = sensor_noise(image, std=levels, generator=generator())
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-7)


def test_every_image_has_its_own_level():
    levels = torch.tensor([0.0, 4.0, 30.0])
    noise = sensor_noise(torch.zeros(3, 3, 64, 64), std=levels, generator=generator()) * 255
    assert noise.std((1, 2, 3)).tolist() == pytest.approx([0, 4, 30], rel=0.03)


def test_light_adds_variance_in_proportion():
    signal = torch.tensor([0.0, 0.25, 1.0]).view(3, 1, 1, 1).expand(3, 3, 64, 64)
    for std in (0.0, 6.0):
        noise = sensor_noise(signal, std=std, gain=0.5, generator=generator()) - signal
        expected = [std**2, std**2 + 0.5 * 63.75, std**2 + 0.5 * 255]
        assert (noise * 255).var((1, 2, 3)).tolist() == pytest.approx(expected, rel=0.06)
    dark = sensor_noise(torch.full((1, 1, 4, 4), -0.1), gain=1.0, generator=generator())
    assert torch.equal(dark, torch.full((1, 1, 4, 4), -0.1))


def test_every_image_has_its_own_gain():
    gains = torch.tensor([0.1, 2.0])
    signal = torch.full((2, 3, 64, 64), 0.5)
    noise = sensor_noise(signal, gain=gains, generator=generator()) - signal
    expected = [0.1 * 127.5, 2 * 127.5]
    assert (noise * 255).var((1, 2, 3)).tolist() == pytest.approx(expected, rel=0.06)


def test_grey_noise_is_the_same_in_all_channels():
    image = torch.full((2, 3, 16, 16), 0.5)
    mixed = torch.tensor([True, False])
    noise = sensor_noise(image, std=10.0, grey=mixed, generator=generator())
    assert torch.equal(noise[0, 0], noise[0, 2])
    assert not torch.equal(noise[1, 0], noise[1, 2])
    for grey in (True, False):
        alike = sensor_noise(image, gain=1.0, grey=grey, generator=generator())
        assert torch.equal(alike[0, 0], alike[0, 2]) is grey


def test_grain_ties_neighbours_and_keeps_the_level():
    grain = gaussian_kernels(torch.tensor([0.0, 0.8]), radius=3)
    noise = sensor_noise(torch.zeros(2, 3, 128, 128), std=10, grain=grain, generator=generator())
    assert (noise.std((1, 2, 3)) * 255).tolist() == pytest.approx([10, 10], rel=0.04)
    neighbours = (noise[..., 1:] * noise[..., :-1]).mean((1, 2, 3)) / noise.var((1, 2, 3))
    # Noise smoothed by a Gaussian has the correlation exp(-d^2 / (4 std^2)).
    expected = [0, torch.exp(torch.tensor(-1 / (4 * 0.64))).item()]
    assert neighbours.tolist() == pytest.approx(expected, abs=0.03)


def test_without_a_generator_the_global_one_is_used():
    image = torch.zeros(1, 3, 8, 8)
    torch.manual_seed(3)
    first = sensor_noise(image, std=5)
    torch.manual_seed(3)
    assert torch.equal(sensor_noise(image, std=5), first)


def test_the_curve_of_srgb_is_undone():
    values = torch.linspace(0, 1, 1001)
    torch.testing.assert_close(linear_to_srgb(srgb_to_linear(values)), values, rtol=0, atol=1e-6)
    # IEC 61966-2-1: 18 % of the light is level 118 of 255.
    assert round(float(linear_to_srgb(torch.tensor(0.18)) * 255)) == 118


def test_raw_noise_is_strong_in_the_dark_and_shared_by_neighbours():
    image = torch.tensor([0.1, 0.3, 0.8]).view(3, 1, 1, 1).expand(3, 3, 128, 128)
    noise = raw_noise(image, gain=0.3, std=0.2, generator=generator()) - image
    dark, middle, bright = noise.std((1, 2, 3)).tolist()
    assert dark > 1.1 * middle > 1.2 * bright
    beside = (noise[..., 1:] * noise[..., :-1]).mean((1, 2, 3)) / noise.square().mean((1, 2, 3))
    # Interpolation of a mosaic gives neighbours a correlation of 0.5 to 0.6, white noise has none.
    assert ((beside > 0.45) & (beside < 0.7)).all()


def test_raw_noise_has_the_variance_of_its_formula_at_the_pixels_of_the_mosaic():
    light = 0.25
    image = linear_to_srgb(torch.full((1, 3, 256, 256), light))
    noisy = raw_noise(image, gain=0.5, std=2.0, generator=generator())
    noise = (srgb_to_linear(noisy) - light) * 255
    expected = 2.0**2 + 0.5 * light * 255
    for channel, row, column in ((0, 0, 0), (1, 0, 1), (1, 1, 0), (2, 1, 1)):
        variance = float(noise[0, channel, row::2, column::2].var())
        assert variance == pytest.approx(expected, rel=0.05)


def test_a_grey_sensor_has_no_mosaic():
    image = torch.full((1, 1, 128, 128), 0.5)
    noise = raw_noise(image, gain=0.3, generator=generator()) - image
    beside = (noise[..., 1:] * noise[..., :-1]).mean() / noise.square().mean()
    assert abs(float(beside)) < 0.05


def test_cameras_smooth_the_noise_of_the_colors_alone():
    image = torch.full((2, 3, 128, 128), 0.4)
    smooth = gaussian_kernels(torch.tensor([0.0, 2.0]), radius=6)
    plain = raw_noise(image, gain=0.5, generator=generator()) - image
    noise = raw_noise(image, gain=0.5, color_grain=smooth, generator=generator()) - image
    torch.testing.assert_close(luma(noise), luma(plain), rtol=0, atol=1e-6)
    torch.testing.assert_close(noise[:1], plain[:1], rtol=0, atol=1e-6)
    blue = noise[1, 2] - luma(noise)[1, 0]
    before = plain[1, 2] - luma(plain)[1, 0]
    assert tie_of_neighbours(blue, 4) > 0.3 > tie_of_neighbours(before, 4) + 0.2


def test_color_scales_the_noise_of_the_colors():
    image = torch.full((2, 3, 64, 64), 0.4)
    factors = torch.tensor([0.0, 1.0])
    noise = raw_noise(image, gain=0.5, color=factors, generator=generator()) - image
    torch.testing.assert_close(noise[:1], luma(noise)[:1].expand(-1, 3, -1, -1), rtol=0, atol=1e-6)
    plain = raw_noise(image, gain=0.5, generator=generator()) - image
    torch.testing.assert_close(noise[1], plain[1], rtol=0, atol=1e-6)
    grey = torch.full((1, 1, 8, 8), 0.4)
    same = raw_noise(grey, gain=0.5, color=0.3, generator=generator())
    assert torch.equal(same, raw_noise(grey, gain=0.5, generator=generator()))


def luma(noise):
    return (noise * noise.new_tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(1, keepdim=True)


def tie_of_neighbours(noise, lag):
    noise = noise - noise.mean()
    return float((noise[:, lag:] * noise[:, :-lag]).mean() / noise.square().mean())
