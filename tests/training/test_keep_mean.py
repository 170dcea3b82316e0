"""An error bar for a network that is trained already: its mean stays as it is, to the bit."""

import os
from pathlib import Path

import pytest
import torch

from helpers.runs import assert_same, small_recipe, small_values, write_pictures
from musigma.model import load, save
from musigma.networks import create, mean_only
from musigma.networks.weights_file import weights_of
from musigma.training.deferred_gradients import defer
from musigma.training.recipe import make_recipe
from musigma.training.setup import build_network, load_weights
from musigma.training.trainer import train
from musigma.types import ConfigError, MusigmaError

SMALL = {
    "edsr-baseline": {"num_blocks": 4, "width": 8},
    "srresnet": {"num_blocks": 1, "width": 8},  # with batch normalisation, which moves by itself
}


def trained_before(folder, name, **settings):
    """Weights of a network alone, its running statistics included, as another library left them."""
    torch.manual_seed(3)
    network = create(name, scale=2, **(SMALL[name] | settings)).train()
    network(torch.rand(2, 3, 9, 8))
    save(folder / "before.safetensors", network.eval())
    return folder / "before.safetensors"


def recipe_for(path, name="edsr-baseline", **changes):
    values = {"network": name, "settings": SMALL.get(name, {}), "objective": "sigma_l2"}
    return small_recipe(**values | {"start_from": str(path), "keep_mean": True} | changes)


@pytest.mark.parametrize("name", SMALL)
def test_the_mean_stays_and_sigma_learns(tmp_path, name):
    before = trained_before(tmp_path, name)
    data = str(write_pictures(tmp_path / "pictures"))
    recipe = recipe_for(before, name, data=[data], validation=data)
    after = load(train(recipe, tmp_path / "run", device="cpu")).network
    assert_same(mean_only(after).state_dict(), load(before).network.state_dict())
    image = torch.rand(1, 3, 9, 8)
    prediction = after(image)
    assert torch.equal(prediction.mean, load(before).network(image).mean)
    untrained = build_network(recipe).eval()(image).sigma
    assert (prediction.sigma - untrained).abs().max() > 1e-3


def test_the_same_when_resumed(tmp_path):
    before = trained_before(tmp_path, "srresnet")
    data = str(write_pictures(tmp_path / "pictures"))
    whole = train(recipe_for(before, "srresnet", data=[data]), tmp_path / "whole", device="cpu")
    half = recipe_for(before, "srresnet", data=[data], steps=10, schedule="constant")
    rest = recipe_for(before, "srresnet", data=[data], schedule="constant")
    train(half, tmp_path / "parts", device="cpu")
    parts = train(rest, tmp_path / "parts", device="cpu", resume=True)
    other = train(rest, tmp_path / "constant", device="cpu")
    assert_same(load(parts).network.state_dict(), load(other).network.state_dict())
    assert_same(
        mean_only(load(parts).network).state_dict(), mean_only(load(whole).network).state_dict()
    )


def test_layers_that_do_not_learn_are_not_put_off(tmp_path):
    recipe = recipe_for(trained_before(tmp_path, "edsr-baseline"))
    assert defer(build_network(recipe), torch.rand(2, 3, 8, 8), multiple=8, least=8) == []


def test_weights_that_do_not_fit_are_refused(tmp_path):
    other = trained_before(tmp_path, "edsr-baseline", width=4)
    with pytest.raises(ConfigError, match=r"lack .* of the network's, such as 'base"):
        build_network(recipe_for(other))


@pytest.mark.parametrize("change", [{"start_from": ""}, {"sigma": False, "objective": "l1"}])
def test_keep_mean_needs_a_mean_and_a_branch(change):
    values = small_values(objective="sigma_l2", start_from="before.pth", keep_mean=True)
    with pytest.raises(ConfigError, match="keep_mean needs"):
        make_recipe(values | change)


# Released files of some networks serve every scale: the recipe's scale is used.

EVERY_SCALE = {
    "srcnn": {"width": 8},
    "fsrcnn": {},
    "vdsr-y": {"num_layers": 3, "width": 8},
}


def foreign_file(folder, name):
    """A state dict without any metadata, as others release it."""
    torch.manual_seed(4)
    network = create(name, scale=2, **EVERY_SCALE[name])
    torch.save(weights_of(network), folder / "released.pth")
    return folder / "released.pth"


@pytest.mark.parametrize("name", EVERY_SCALE)
@pytest.mark.parametrize("scale", [2, 4])
def test_a_file_that_serves_every_scale_is_used_for_that_of_the_recipe(tmp_path, name, scale):
    path = foreign_file(tmp_path, name)
    released = load(path, scale=scale)
    settings = released.network.build_spec.settings
    changes = {"settings": settings, "scale": scale, "channels": released.network.in_channels}
    recipe = recipe_for(path, name=released.name, **changes)
    network = build_network(recipe)
    assert network.scale == scale
    assert_same(mean_only(network).state_dict(), released.network.state_dict())


def test_a_file_for_every_scale_can_be_the_start_and_the_teacher(tmp_path):
    path = foreign_file(tmp_path, "vdsr-y")
    data = str(write_pictures(tmp_path / "pictures"))
    changes = {"network": "vdsr-y", "settings": EVERY_SCALE["vdsr-y"], "data": [data], "steps": 2}
    keeps = recipe_for(path, **changes, scale=3)
    after = load(train(keeps, tmp_path / "keeps", device="cpu"))
    assert (after.scale, after.has_sigma) == (3, True)
    taught = small_recipe(**changes, teacher=str(path), objective="l1 + distillation")
    assert load(train(taught, tmp_path / "taught", device="cpu")).scale == 2


def test_a_scale_that_the_file_does_not_serve_is_named(tmp_path):
    path = foreign_file(tmp_path, "vdsr-y")
    with pytest.raises(MusigmaError, match=r"not 8"):
        load_weights(str(path), 8, any_scale=True)


def test_a_teacher_has_the_scale_of_the_recipe(tmp_path):
    before = trained_before(tmp_path, "edsr-baseline")
    assert load_weights(str(before), 3, any_scale=True).scale == 2
    with pytest.raises(MusigmaError, match="enlarges by 2, not by 3"):
        load_weights(str(before), 3)


RELEASED = Path(os.environ.get("MUSIGMA_CHECKPOINTS", "nowhere"))


@pytest.mark.skipif(not (RELEASED / "vdsr_y.pth").is_file(), reason="needs the released VDSR")
@pytest.mark.parametrize("scale", [2, 3, 4])
def test_the_released_vdsr_gets_an_error_bar(scale):
    path = RELEASED / "vdsr_y.pth"
    network = build_network(recipe_for(path, "vdsr-y", scale=scale, settings={}))
    released = load(path, scale=scale).network
    assert_same(weights_of(mean_only(network)), weights_of(released))
    image = torch.rand(1, 3, 9, 8)
    assert torch.equal(network.eval()(image).mean, released(image).mean)
