import pytest
import torch

from musigma.functional.noise import add_noise, image_generator
from musigma.functional.sensor_noise import gaussian_noise, poisson_noise


def generator():
    return image_generator("a", 0)


def test_gaussian_noise_is_that_of_the_denoising_protocol():
    image = torch.rand(2, 3, 17, 23)
    expected = add_noise(image, noise_std=25, generator=generator())
    assert torch.equal(gaussian_noise(image, std=25, generator=generator()), expected)
    levels = torch.tensor([25.0, 25.0])
    result = gaussian_noise(image, std=levels, generator=generator())
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-7)


def test_every_image_has_its_own_level():
    levels = torch.tensor([0.0, 4.0, 30.0])
    noise = gaussian_noise(torch.zeros(3, 3, 64, 64), std=levels, generator=generator()) * 255
    assert noise.std((1, 2, 3)).tolist() == pytest.approx([0, 4, 30], rel=0.03)


def test_poisson_noise_grows_with_the_signal():
    signal = torch.tensor([0.0, 0.25, 1.0]).view(3, 1, 1, 1).expand(3, 3, 64, 64)
    noise = poisson_noise(signal, gain=0.5, generator=generator()) - signal
    variance = (noise * 255).var((1, 2, 3))
    assert variance.tolist() == pytest.approx([0, 0.5 * 63.75, 0.5 * 255], rel=0.06)
    dark = poisson_noise(torch.full((1, 1, 4, 4), -0.1), gain=1.0, generator=generator())
    assert torch.equal(dark, torch.full((1, 1, 4, 4), -0.1))


@pytest.mark.parametrize("function", [gaussian_noise, poisson_noise])
def test_grey_noise_is_the_same_in_all_channels(function):
    amount = {"std": 10.0} if function is gaussian_noise else {"gain": 1.0}
    image = torch.full((2, 3, 16, 16), 0.5)
    mixed = torch.tensor([True, False])
    noise = function(image, **amount, grey=mixed, generator=generator())
    assert torch.equal(noise[0, 0], noise[0, 2])
    assert not torch.equal(noise[1, 0], noise[1, 2])
    for grey in (True, False):
        alike = function(image, **amount, grey=grey, generator=generator())
        assert torch.equal(alike[0, 0], alike[0, 2]) is grey


def test_without_a_generator_the_global_one_is_used():
    image = torch.zeros(1, 3, 8, 8)
    torch.manual_seed(3)
    first = gaussian_noise(image, std=5)
    torch.manual_seed(3)
    assert torch.equal(gaussian_noise(image, std=5), first)
