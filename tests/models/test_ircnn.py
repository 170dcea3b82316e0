import pytest
import torch

from musigma.models import Identity, card, create
from musigma.models.ircnn import recognise
from musigma.models.weights import load_file


@pytest.mark.parametrize(("name", "channels"), [("ircnn", 1), ("ircnn-colour", 3)])
def test_parameters_by_hand(name, channels):
    # Seven 3x3 layers of 64 channels.
    facts = card(name, scale=1)
    middle = 5 * (64 * 9 + 1) * 64
    assert facts.params == (channels * 9 + 1) * 64 + middle + (64 * 9 + 1) * channels
    # 1 + 2 + 3 + 4 + 3 + 2 + 1: a receptive field of 33 x 33.
    assert facts.radius == 16


def test_official_names():
    # KAIR, models/network_dncnn.py.
    state = create("ircnn", scale=1).state_dict()
    shapes = {key: tuple(value.shape) for key, value in state.items()}
    assert len(shapes) == 14
    assert shapes["model.0.weight"] == (64, 1, 3, 3)
    assert shapes["model.6.bias"] == (64,)
    assert shapes["model.12.weight"] == (1, 64, 3, 3)


def test_dilations():
    # KAIR, models/network_dncnn.py.
    network = create("ircnn", scale=1, width=8)
    assert [layer.dilation[0] for layer in network.model[::2]] == [1, 2, 3, 4, 3, 2, 1]


@pytest.mark.parametrize("name", ["ircnn", "ircnn-colour"])
def test_foreign_file(name, tmp_path):
    ours = create(name, scale=1, width=8).eval()
    torch.save({"state_dict": ours.state_dict()}, tmp_path / "a.pth")
    model = load_file(tmp_path / "a.pth")
    assert model.network.identity == Identity(name, 1, {"width": 8})
    image = torch.rand(1, ours.in_channels, 7, 5, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        assert torch.equal(model.network(image).mean, ours(image).mean)


@pytest.mark.parametrize("other", ["dncnn", "dncnn-colour", "ffdnet", "drunet-small"])
def test_leaves_other_denoisers_alone(other):
    with torch.device("meta"):
        assert recognise(create(other, scale=1).state_dict()) is None
