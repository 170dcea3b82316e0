"""Hidden pixels of noisy pictures, and a network that learns from noisy pictures alone."""

import numpy as np
import pytest
import torch
from PIL import Image

from musigma.datasets.patch_bank import build_bank
from musigma.degradations.blind_spots import RADIUS, SHARE, BlindSpots
from musigma.losses import L1, L2
from musigma.model import load
from musigma.training.recipe import make_recipe
from musigma.training.trainer import train
from musigma.types import ConfigError

NO_DRAWS = torch.zeros(1, 0)


def numbered(side=40):
    """A picture of which every value tells its place."""
    return torch.arange(side**2, dtype=torch.float64).view(1, 1, side, side)


def test_hidden_pixels_are_replaced_by_others_nearby():
    torch.manual_seed(0)
    image = numbered(200)
    degraded, target, counted = BlindSpots().training_pair(image, NO_DRAWS)
    hidden = counted.bool()
    assert torch.equal(target, image)
    assert torch.equal(degraded[~hidden], image[~hidden])
    assert float(counted.mean()) == pytest.approx(SHARE, rel=0.1)
    inside = slice(RADIUS, -RADIUS)
    hidden, source, place = (
        each[..., inside, inside][..., :, :] for each in (hidden, degraded, image)
    )
    rows = (source // 200 - place // 200)[hidden]
    columns = (source % 200 - place % 200)[hidden]
    assert rows.abs().max() == columns.abs().max() == RADIUS
    assert not ((rows == 0) & (columns == 0)).any()
    offsets = (rows + RADIUS) * 5 + columns + RADIUS
    shares = torch.bincount(offsets.long(), minlength=25) / len(offsets)
    assert shares[12] == 0
    assert float(shares.max()) < 2 / 24


def test_patches_say_where_the_loss_counts():
    picture = torch.randint(0, 255, (1, 64, 64), dtype=torch.uint8)
    bank = build_bank([picture], degradation=BlindSpots(), patch=32, device=torch.device("cpu"))
    patches = bank.sample(torch.tensor(0), batch=4, seed=0)
    assert patches.counted.shape == patches.target.shape == patches.degraded.shape == (4, 1, 32, 32)
    differ = patches.degraded != patches.target
    assert (patches.counted[differ] == 1).all()
    again = bank.sample(torch.tensor(0), batch=4, seed=0)
    assert torch.equal(again.target, patches.target)
    assert not torch.equal(again.counted, patches.counted)


def test_a_loss_counts_where_it_is_told():
    mean, target = torch.tensor([[1.0, 5.0, 2.0]]), torch.zeros(1, 3)
    counted = torch.tensor([[1.0, 0.0, 1.0]])
    loss = L2() + 2.0 * L1()
    assert float(loss(mean, target, counted=counted)) == pytest.approx(2.5 + 2 * 1.5)
    assert float(loss(mean, target)) == pytest.approx(10 + 2 * 8 / 3)
    mean.requires_grad_()
    loss(mean, target, counted=counted).backward()
    assert mean.grad[0, 1] == 0
    assert loss(mean.detach(), target, counted=torch.zeros(1, 3)).item() == 0


def scene(side):
    y, x = np.mgrid[0:side, 0:side]
    return 90 + 60 * np.sin(x / 17) * np.cos(y / 23)


def frame(seed, side=96):
    """Few photons: skewed noise, of which the median lies below the mean."""
    photons = np.random.default_rng(seed).poisson(scene(side) / 20)
    return (20 * photons).clip(0, 255).astype(np.uint8)


RECIPE = {
    "network": "dncnn",
    "settings": {"num_layers": 4, "width": 16},
    "scale": 1,
    "channels": 1,
    "degrade": "blind_spots",
    "objective": "l2",
    "batch": 8,
    "patch": 32,
    "learning_rate": 3e-3,
    "steps": 100,
    "ema": 0.9,
}


def test_a_network_learns_to_denoise_without_a_clean_picture(tmp_path):
    (tmp_path / "noisy").mkdir()
    for seed in range(6):
        Image.fromarray(frame(seed)).save(tmp_path / "noisy" / f"{seed}.png")
    recipe = make_recipe(RECIPE | {"data": [str(tmp_path / "noisy")]})
    weights = train(recipe, tmp_path / "run", device="cpu")
    noisy = torch.from_numpy(frame(99) / 255).float()[None, None]
    clean = torch.from_numpy(scene(96) / 255)[None, None]
    mean = load(weights).predict(noisy).mean
    before, after = ((each - clean).square().mean() for each in (noisy, mean))
    assert after < 0.3 * before


def test_recipes_with_blind_spots_refuse_what_does_not_fit(tmp_path):
    values = RECIPE | {"data": [str(tmp_path)]}
    with pytest.raises(ConfigError, match="for noisy pictures as they are: scale = 1, no shrink"):
        make_recipe(values | {"shrink": [0.5]})
    with pytest.raises(ConfigError, match="from which sigma would learn their noise"):
        make_recipe(values | {"sigma": True, "objective": "l2 + 0.01 * sigma_l1"})
    with pytest.raises(ConfigError, match="must be told the noise level"):
        make_recipe(values | {"network": "drunet-small", "settings": {"channels": 1}})
