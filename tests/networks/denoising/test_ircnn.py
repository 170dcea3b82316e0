import pytest
import torch

from musigma.model import load_file
from musigma.networks import BuildSpec, card, create
from musigma.networks.denoising.ircnn import recognise
from musigma.networks.weights_file import weights_of
from musigma.prediction.predict import with_noise_map
from musigma.types import WeightsError


@pytest.mark.parametrize(("name", "channels"), [("ircnn", 1), ("ircnn-colour", 3)])
def test_parameters_by_hand(name, channels):
    # Seven 3x3 layers of 64 channels.
    costs = card(name, scale=1)
    middle = 5 * (64 * 9 + 1) * 64
    assert costs.params == (channels * 9 + 1) * 64 + middle + (64 * 9 + 1) * channels
    # 1 + 2 + 3 + 4 + 3 + 2 + 1: a receptive field of 33 x 33.
    assert costs.receptive_radius == 16


def test_official_names():
    # KAIR, models/network_dncnn.py.
    state = weights_of(create("ircnn", scale=1))
    shapes = {key: tuple(value.shape) for key, value in state.items()}
    assert len(shapes) == 14
    assert shapes["model.0.weight"] == (64, 1, 3, 3)
    assert shapes["model.6.bias"] == (64,)
    assert shapes["model.12.weight"] == (1, 64, 3, 3)


def test_dilations_are_the_official_ones():
    # KAIR, models/network_dncnn.py.
    network = create("ircnn", scale=1, width=8)
    assert [layer.dilation[0] for layer in network.model[::2]] == [1, 2, 3, 4, 3, 2, 1]


@pytest.mark.parametrize("name", ["ircnn", "ircnn-colour"])
def test_a_file_with_its_weights_under_state_dict_loads(name, tmp_path):
    ours = create(name, scale=1, width=8).eval()
    torch.save({"state_dict": weights_of(ours)}, tmp_path / "a.pth")
    model = load_file(tmp_path / "a.pth")
    assert model.network.build_spec == BuildSpec(name, 1, {"width": 8})
    image = torch.rand(1, ours.in_channels, 7, 5, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        assert torch.equal(model.network(image).mean, ours(image).mean)


@pytest.mark.parametrize("other", ["dncnn", "dncnn-colour", "ffdnet", "drunet-small"])
def test_leaves_other_denoisers_alone(other):
    with torch.device("meta"):
        assert recognise(weights_of(create(other, scale=1))) is None


def bank_file(path, channels, num_members=25):
    """A file of the form of KAIR's: a state dict for each of 25 levels, under "0" to "24"."""
    name = "ircnn" if channels == 1 else "ircnn-colour"
    members = [create(name, scale=1, width=8).eval() for _ in range(num_members)]
    torch.save({str(n): weights_of(member) for n, member in enumerate(members)}, path)
    return members


@pytest.mark.parametrize(("name", "channels"), [("ircnn-bank", 1), ("ircnn-bank-colour", 3)])
def test_file_of_all_levels(name, channels, tmp_path):
    members = bank_file(tmp_path / "ircnn.pth", channels)
    model = load_file(tmp_path / "ircnn.pth")
    assert model.network.build_spec == BuildSpec(name, 1, {"width": 8, "num_members": 25})
    images = torch.rand(3, channels, 21, 19)
    # Halfway between two, as 25 is between 24 and 26, KAIR takes the higher: ceil(25 / 2) - 1.
    levels, chosen = (50, 25, 3.1), (24, 12, 1)
    with torch.inference_mode():
        degraded = torch.cat([with_noise_map(images[[n]], level) for n, level in enumerate(levels)])
        actual = model.network(degraded).mean
        for number, member in enumerate(chosen):
            expected = members[member](images[[number]]).mean
            torch.testing.assert_close(actual[[number]], expected)


@pytest.mark.parametrize(
    ("level", "member"), [(0, 0), (1, 0), (2, 0), (2.9, 0), (3, 1), (15, 7), (49, 24), (75, 24)]
)
def test_the_network_of_the_nearest_noise_level_is_used(level, member):
    network = create("ircnn-bank", scale=1, width=2)
    degraded = with_noise_map(torch.zeros(1, 1, 3, 5), level)
    assert network.members(degraded).tolist() == [member]
    assert network.members(degraded.half()).tolist() == [member]


def test_a_gap_in_the_numbers_is_no_bank(tmp_path):
    bank_file(tmp_path / "a.pth", 1, num_members=3)
    state = torch.load(tmp_path / "a.pth", weights_only=True)
    torch.save({"0": state["0"], "2": state["2"]}, tmp_path / "a.pth")
    with pytest.raises(WeightsError, match=r"no file of a network known here"):
        load_file(tmp_path / "a.pth")
