"""Pairs made from noisy pictures: independent errors, and a network that learns from them alone."""

import numpy as np
import pytest
import torch
from PIL import Image

from musigma.datasets.patch_bank import build_bank
from musigma.degradations.recorrupted import STEPS_PER_LEVEL, Recorrupted, stack_noise_std
from musigma.functional.sensor_noise import sensor_noise
from musigma.model import load
from musigma.training.recipe import load_recipe, make_recipe
from musigma.training.setup import load_training_images
from musigma.training.trainer import train
from musigma.types import ConfigError

GAIN, STD = 4.0, 3.0


def scene(side=160):
    y, x = np.mgrid[0:side, 0:side]
    waves = 90 + 60 * np.sin(x / 17) * np.cos(y / 23)
    return torch.from_numpy(waves / 255).float()[None, None]


def noisy(seed, side=160):
    generator = torch.Generator().manual_seed(seed)
    values = sensor_noise(scene(side), gain=GAIN, std=STD, generator=generator)
    return (values[0].clamp(0, 1) * 255).round().to(torch.uint8)


def test_the_deviation_of_the_noise_is_stored_beside_the_picture():
    stored = stack_noise_std(noisy(0))
    assert (stored.shape, stored.dtype) == ((2, 160, 160), torch.uint8)
    assert torch.equal(stored[:1], noisy(0))
    expected = (GAIN * scene()[0] * 255 + STD**2).sqrt()
    ratio = stored[1:].float() / STEPS_PER_LEVEL / expected
    assert float(ratio.mean()) == pytest.approx(1, abs=0.06)
    assert float(ratio.std()) < 0.08


@pytest.mark.parametrize("strength", [0.3, 0.5, 1.0])
def test_input_and_target_have_independent_errors_around_the_scene(strength):
    torch.manual_seed(1234)  # other random numbers than those of the pictures
    clean = scene()
    inputs, targets = [], []
    for seed in range(6):
        stored = stack_noise_std(noisy(seed))[None].float() / 255
        degraded, target = Recorrupted(strength).training_pair(stored, torch.zeros(1, 0))
        inputs.append(degraded - clean)
        targets.append(target - clean)
    first, second = torch.cat(inputs) * 255, torch.cat(targets) * 255
    variance = GAIN * clean.mean() * 255 + STD**2
    assert abs(first.mean()) < 0.5
    assert float(first.var() / variance) == pytest.approx(1 + strength**2, rel=0.08)
    assert float(second.var() / variance) == pytest.approx(1 + strength**-2, rel=0.08)
    correlation = (first * second).mean() / (first.std() * second.std())
    assert abs(correlation) < 0.03


def test_patches_are_drawn_anew_in_each_step():
    bank = build_bank(
        [stack_noise_std(noisy(0))],
        degradation=Recorrupted(),
        patch=32,
        device=torch.device("cpu"),
    )
    first = bank.sample(torch.tensor(0), batch=4, seed=0)
    again = bank.sample(torch.tensor(0), batch=4, seed=0)
    assert first.degraded.shape == first.target.shape == (4, 1, 32, 32)
    assert not torch.equal(first.degraded, again.degraded)
    # What the two have in common is the noisy picture that they were made from.
    share = Recorrupted().strength ** 2
    picture = (first.degraded + share * first.target) / (1 + share)
    torch.testing.assert_close(
        picture, (again.degraded + share * again.target) / (1 + share), atol=1e-5, rtol=0
    )
    assert torch.allclose((picture * 255).round(), picture * 255, atol=1e-2)


def folder_of(path, number=6):
    path.mkdir()
    for seed in range(number):
        Image.fromarray(noisy(seed, 96)[0].numpy()).save(path / f"{seed}.png")
    return path


RECIPE = {
    "network": "dncnn",
    "settings": {"num_layers": 4, "width": 16},
    "scale": 1,
    "channels": 1,
    "degrade": "recorrupted",
    "objective": "l2",
    "batch": 8,
    "patch": 32,
    "learning_rate": 3e-3,
    "steps": 60,
    "ema": 0.9,
}


def test_a_network_learns_to_denoise_without_a_clean_picture(tmp_path):
    recipe = make_recipe(RECIPE | {"data": [str(folder_of(tmp_path / "noisy"))]})
    weights = train(recipe, tmp_path / "run", device="cpu")
    image = noisy(99)[None].float() / 255
    mean = load(weights).predict(image).mean
    before, after = ((each - scene()).square().mean() for each in (image, mean))
    assert after < 0.35 * before


def test_what_the_recipe_refuses(tmp_path):
    values = RECIPE | {"data": [str(tmp_path)]}
    with pytest.raises(ConfigError, match="for noisy pictures as they are: scale = 1, no shrink"):
        make_recipe(values | {"shrink": [0.5]})
    with pytest.raises(ConfigError, match="from which sigma would learn their noise"):
        make_recipe(values | {"sigma": True, "objective": "l2 + 0.01 * sigma_l1"})
    with pytest.raises(ConfigError, match="must be told the noise level"):
        make_recipe(values | {"network": "drunet-small", "settings": {"channels": 1}})


def test_only_noisy_pictures_get_more_channels(tmp_path):
    folder = str(folder_of(tmp_path / "noisy", 1))
    noisy_only = make_recipe(RECIPE | {"data": [folder]})
    assert [image.shape[0] for image in load_training_images(noisy_only)] == [2]
    plain = load_recipe("smoke", [f'data=["{folder}"]', "channels=1"])
    assert [image.shape[0] for image in load_training_images(plain)] == [1]
