"""`torch.save(network.state_dict())`, as everybody does it, comes back as the same network."""

import pytest
import torch

from helpers.networks import NAMES, REDUCED, build, image_for, released
from musigma.model import load, load_file
from musigma.networks import create, mean_only, with_sigma
from musigma.networks.weights_file import digest_of, weights_of
from musigma.types import ConfigError, WeightsError

IMAGE = torch.rand(1, 3, 9, 7, generator=torch.Generator().manual_seed(0))
EDSR = REDUCED["edsr-baseline"]


def predictions(network, image=IMAGE):
    with torch.inference_mode():
        return [part for part in network.eval()(image) if part is not None]


def same(network, other, image=IMAGE):
    pairs = zip(predictions(network, image), predictions(other, image), strict=True)
    return all(torch.equal(ours, theirs) for ours, theirs in pairs)


@pytest.mark.parametrize("scale", [2, 4])
def test_the_shipped_network_comes_back_as_it_was(tmp_path, scale):
    network = load("edsr-baseline", scale=scale).network
    torch.save(network.state_dict(), tmp_path / "w.pth")
    model = load(tmp_path / "w.pth")
    assert (model.name, model.scale, model.has_sigma) == ("edsr-baseline", scale, True)
    assert same(model.network, network)
    torch.save(mean_only(network).state_dict(), tmp_path / "mean.pth")
    assert same(load(tmp_path / "mean.pth").network, mean_only(network))


@pytest.mark.parametrize(("name", "scale"), NAMES)
def test_every_network_comes_back_as_it_was(tmp_path, name, scale):
    network = build(name, scale, sigma=True)
    state = {f"module.{key}": value for key, value in network.state_dict().items()}
    torch.save({"state_dict": state}, tmp_path / "w.pth")
    again = load_file(tmp_path / "w.pth").network
    assert again.info == network.info
    assert again.build_spec.name == name
    assert same(again, network, image_for(network, 13, 11))


@pytest.mark.parametrize("settings", [{"res_scale": 0.1}, {"value_range": 255.0}, {}])
def test_settings_that_no_shape_tells_come_back(tmp_path, settings):
    network = create("edsr-baseline", scale=2, **EDSR, **settings)
    torch.save(network.state_dict(), tmp_path / "w.pth")
    assert same(load(tmp_path / "w.pth").network, network)


def test_a_released_file_tells_its_range_by_its_mean_shift(tmp_path):
    network = create("edsr-baseline", scale=2, value_range=255.0, **EDSR)
    torch.save(released(network), tmp_path / "w.pth")
    assert same(load(tmp_path / "w.pth").network, network)


@pytest.mark.parametrize("value_range", [1.0, 255.0])
def test_a_file_that_does_not_tell_its_range_is_not_loaded_in_silence(tmp_path, value_range):
    network = create("edsr-baseline", scale=2, value_range=value_range, **EDSR)
    torch.save(weights_of(network), tmp_path / "w.pth")
    with pytest.warns(UserWarning, match=r"w\.pth does not tell .* load it with value_range=1"):
        assumed = load(tmp_path / "w.pth").network
    assert same(assumed, network) == (value_range == 255)
    assert same(load(tmp_path / "w.pth", value_range=value_range).network, network)


def test_what_a_state_dict_says_about_itself_is_no_weight(tmp_path):
    network = create("edsr-baseline", scale=2, **EDSR)
    plain = create("edsr-baseline", scale=2, **EDSR, value_range=255.0)
    plain.load_state_dict(weights_of(network), strict=True)
    assert digest_of(plain) == digest_of(network)
    plain.load_state_dict(network.state_dict(), strict=True)
    assert plain.shift.value_range == 255.0
    with pytest.raises(RuntimeError, match="Unexpected key"):
        plain.load_state_dict({**network.state_dict(), "other": torch.zeros(1)}, strict=True)


def test_a_file_for_every_scale_serves_another_one(tmp_path):
    network = create("srcnn", scale=2, width=8)
    torch.save(network.state_dict(), tmp_path / "w.pth")
    assert load(tmp_path / "w.pth").scale == 2
    assert load(tmp_path / "w.pth", scale=3).scale == 3
    torch.save(create("edsr-baseline", scale=2, **EDSR).state_dict(), tmp_path / "w.pth")
    with pytest.raises(ConfigError, match=r"w\.pth exists for scale 2, not 3"):
        load(tmp_path / "w.pth", scale=3)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"null", b'{"name": "edsr", "scale": 2}', b'{"name": "no"}', b"\xff"]
)
def test_a_damaged_specification(tmp_path, text):
    state = create("edsr-baseline", scale=2, **EDSR).state_dict()
    state["build_spec"] = torch.tensor(list(text), dtype=torch.uint8)
    torch.save(state, tmp_path / "w.pth")
    with pytest.raises(WeightsError, match=r"w\.pth describes no network known here"):
        load(tmp_path / "w.pth")


def test_a_sigma_branch_that_is_not_whole(tmp_path):
    network = with_sigma(create("edsr-baseline", scale=2, **EDSR), width=8, depth=1)
    state = dict(network.state_dict())
    del state["branch.upsampler.0.weight"]
    torch.save(state, tmp_path / "w.pth")
    with pytest.raises(WeightsError, match=r"the sigma branch in w\.pth is not whole"):
        load(tmp_path / "w.pth")
