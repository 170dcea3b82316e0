import math

import pytest
import torch

from musigma.functional.noise import add_noise, image_generator
from musigma.types import ImageError


def test_noise_has_the_stated_spread_and_is_not_clipped():
    image = torch.full((1, 3, 256, 256), 0.99)
    noise = add_noise(image, noise_std=25, generator=image_generator("a", 0)) - image
    # Four standard errors of a mean and of a standard deviation over n normal values.
    n = noise.numel()
    assert abs(noise.mean()) * 255 < 4 * 25 / math.sqrt(n)
    assert abs(noise.std() * 255 - 25) < 4 * 25 / math.sqrt(2 * n)
    assert (image + noise).max() > 1.2


def test_noise_depends_on_name_and_seed_alone():
    image = torch.rand(1, 3, 37, 31)

    def noisy(name, seed):
        return add_noise(image, noise_std=15, generator=image_generator(name, seed))

    before = noisy("baby", 0)
    noisy("bird", 0)
    assert torch.equal(noisy("baby", 0), before)
    assert not torch.equal(noisy("bird", 0), before)
    assert not torch.equal(noisy("baby", 1), before)
    assert torch.equal(noisy(3, 0), noisy("3", 0))


def test_noise_does_not_touch_the_global_generator():
    state = torch.get_rng_state()
    add_noise(
        torch.rand(1, 1, 5, 5, generator=image_generator(0, 0)),
        noise_std=5,
        generator=image_generator(1, 0),
    )
    assert torch.equal(torch.get_rng_state(), state)


def test_one_level_per_image():
    image = torch.zeros(3, 1, 37, 31)
    levels = torch.tensor([0.0, 10.0, 50.0])
    noise = add_noise(image, noise_std=levels, generator=image_generator(0, 0)) * 255
    unit = add_noise(image, noise_std=255, generator=image_generator(0, 0))
    torch.testing.assert_close(noise, unit * levels.view(3, 1, 1, 1))


def test_bad_input_is_refused():
    generator = image_generator(0, 0)
    with pytest.raises(ImageError, match=r"float image \(N, C, H, W\)"):
        add_noise(torch.zeros(1, 3, 8, 8, dtype=torch.uint8), noise_std=25, generator=generator)
    with pytest.raises(ImageError, match=r"8-bit levels .* got -1"):
        add_noise(torch.zeros(1, 3, 8, 8), noise_std=-1, generator=generator)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_noise_is_the_same_on_a_gpu():
    image = torch.rand(1, 3, 37, 31)
    here = add_noise(image, noise_std=25, generator=image_generator("a", 0))
    there = add_noise(image.cuda(), noise_std=25, generator=image_generator("a", 0))
    torch.testing.assert_close(there.cpu(), here, rtol=0, atol=1e-6)
