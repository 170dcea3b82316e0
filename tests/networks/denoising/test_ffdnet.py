import pytest
import torch

from musigma.model import load_file
from musigma.networks import BuildSpec, card, create
from musigma.networks.denoising.ffdnet import recognise
from musigma.networks.weights_file import weights_of
from musigma.prediction.predict import predict, with_noise_map


@pytest.mark.parametrize(
    ("name", "channels", "num_layers", "width"),
    [("ffdnet", 1, 15, 64), ("ffdnet-colour", 3, 12, 96)],
)
def test_costs_by_hand(name, channels, num_layers, width):
    # Zhang et al. 2018: 15 layers of 64 channels for gray, 12 of 96 for color.
    first, last = (4 * channels + 1) * 9 * width, width * 9 * 4 * channels
    weights = first + (num_layers - 2) * width * width * 9 + last
    costs = card(name, scale=1)
    assert costs.params == weights + (num_layers - 1) * width + 4 * channels
    assert costs.macs_g == pytest.approx(weights * 360 * 640 / 1e9)
    # For 15 layers 31 cells of two pixels, 62 x 62: at worst 31 pixels to one side.
    assert costs.receptive_radius == 2 * num_layers + 1


def test_official_names():
    # KAIR, models/network_ffdnet.py.
    for name, num_keys, first, last in (
        ("ffdnet", 30, (64, 5, 3, 3), (4, 64, 3, 3)),
        ("ffdnet-colour", 24, (96, 13, 3, 3), (12, 96, 3, 3)),
    ):
        state = weights_of(create(name, scale=1))
        assert len(state) == num_keys
        assert tuple(state["model.0.weight"].shape) == first
        assert tuple(state[f"model.{num_keys - 2}.weight"].shape) == last


@pytest.mark.parametrize("name", ["ffdnet", "ffdnet-colour"])
def test_a_file_saved_by_data_parallel_loads(name, tmp_path):
    ours = create(name, scale=1, num_layers=4, width=8).eval()
    torch.save({f"module.{k}": v for k, v in weights_of(ours).items()}, tmp_path / "a.pth")
    model = load_file(tmp_path / "a.pth")
    assert model.network.build_spec == BuildSpec(name, 1, {"num_layers": 4, "width": 8})
    image = torch.rand(1, ours.in_channels, 7, 5, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        assert torch.equal(model.network(image).mean, ours(image).mean)


@pytest.mark.parametrize("other", ["dncnn", "dncnn-colour", "ircnn", "drunet-small"])
def test_leaves_other_denoisers_alone(other):
    with torch.device("meta"):
        assert recognise(weights_of(create(other, scale=1))) is None


def test_official_order_of_the_first_channels():
    # KAIR's PixelUnShuffle gives the four places of each color in the order of rows, then the map.
    network = create("ffdnet-colour", scale=1, num_layers=2, width=8).double()
    image = torch.rand(1, 3, 6, 8, dtype=torch.float64)
    cells = [image[:, c : c + 1, y::2, x::2] for c in range(3) for y in (0, 1) for x in (0, 1)]
    level = torch.full((1, 1, 3, 4), 25 / 255, dtype=torch.float64)
    expected = network.model(torch.cat([*cells, level], dim=1))
    mean = network(with_noise_map(image, 25)).mean
    torch.testing.assert_close(mean[:, 1, 1::2, 0::2], expected[:, 6])


def test_tiles_of_an_odd_image_give_the_whole():
    network = create("ffdnet", scale=1, num_layers=3, width=8).eval()
    image = torch.rand(1, 1, 37, 31)
    whole, tiled = (predict(network, image, noise_std=25, tile=tile) for tile in (64, 11))
    torch.testing.assert_close(tiled.mean, whole.mean)
