"""SRCNN, FSRCNN and ESPCN: networks of a few layers."""

import pytest
import torch
from torch import nn

from musigma.functional.color import rgb_to_y, rgb_to_ycbcr
from musigma.functional.resize import resize
from musigma.model import load_file
from musigma.networks import card, create, espcn, fsrcnn, srcnn
from musigma.networks.state_dict import rename
from musigma.networks.weights_file import weights_of


def test_srcnn_parameters_by_hand():
    # 9-5-5 with three colors; with one, the weights are the 57K (57,184) that tables print.
    assert card("srcnn", scale=2).params == (243 + 1) * 64 + (64 * 25 + 1) * 32 + (32 * 25 + 1) * 3


def test_fsrcnn_parameters_by_hand():
    # FSRCNN(56, 12, 4) of Dong et al. 2016 (12K with one color), a PReLU slope per channel.
    head = (75 + 1) * 56 + 56
    mapping = (56 + 1) * 12 + 12 + 4 * ((12 * 9 + 1) * 12 + 12) + (12 + 1) * 56 + 56
    assert card("fsrcnn", scale=3).params == head + mapping + 56 * 81 * 3 + 3


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_espcn_parameters_by_hand(scale):
    expected = (75 + 1) * 64 + (64 * 9 + 1) * 32 + (32 * 9 + 1) * 3 * scale**2
    assert card("espcn", scale=scale).params == expected


@pytest.mark.parametrize(
    ("name", "keys"),
    # The keys of yjn870's SRCNN-pytorch, FSRCNN-pytorch and ESPCN-pytorch.
    [
        ("srcnn", {"conv1.weight", "conv2.bias", "conv3.weight"}),
        ("fsrcnn", {"first_part.1.weight", "mid_part.10.weight", "last_part.bias"}),
        ("espcn", {"first_part.0.weight", "first_part.2.bias", "last_part.0.weight"}),
    ],
)
def test_key_names_are_the_official_ones(name, keys):
    assert keys <= weights_of(create(name, scale=2)).keys()


@pytest.mark.parametrize(
    ("recognise", "name", "scale", "settings"),
    [
        (srcnn.recognise, "srcnn", None, {"width": 32}),
        (fsrcnn.recognise, "fsrcnn", None, {"width": 8, "num_shrunk": 4, "num_mappings": 2}),
        (espcn.recognise, "espcn", 3, {"width": 32}),
    ],
)
def test_recognised_by_their_names(recognise, name, scale, settings):
    state = weights_of(create(name, scale=3, **settings))
    assert recognise(state) == (name, scale, settings)
    for other in ("srcnn", "fsrcnn", "espcn", "vdsr", "edsr-baseline"):
        if other != name:
            assert recognise(weights_of(create(other, scale=2))) is None


@pytest.mark.parametrize(
    ("recognise", "name", "key"),
    [
        (srcnn.recognise, "srcnn", "conv1.weight"),
        (fsrcnn.recognise, "fsrcnn", "first_part.0.weight"),
        (espcn.recognise, "espcn", "first_part.0.weight"),
    ],
)
def test_files_of_which_one_layer_has_one_channel_are_refused(recognise, name, key):
    state = dict(weights_of(create(name, scale=2)))
    state[key] = state[key][:, :1]
    assert recognise(state) is None


def conv(inputs, outputs, size):
    return nn.Conv2d(inputs, outputs, size, padding=size // 2)


def srcnn_layers(scale, kernel_size2=5):
    """The layers of yjn870/SRCNN-pytorch; Lornatang/SRCNN-PyTorch has 1x1 in the middle."""
    parts = {"conv1": conv(1, 64, 9), "conv2": conv(64, 32, kernel_size2), "conv3": conv(32, 1, 5)}
    return nn.ModuleDict(parts), lambda m, y: m["conv3"](m["conv2"](m["conv1"](y).relu()).relu())


def fsrcnn_layers(scale):
    """The layers of yjn870/FSRCNN-pytorch."""
    middle = [conv(56, 12, 1), nn.PReLU(12)]
    for _ in range(4):
        middle += [conv(12, 12, 3), nn.PReLU(12)]
    middle += [conv(12, 56, 1), nn.PReLU(56)]
    last = nn.ConvTranspose2d(56, 1, 9, stride=scale, padding=4, output_padding=scale - 1)
    parts = {
        "first_part": nn.Sequential(conv(1, 56, 5), nn.PReLU(56)),
        "mid_part": nn.Sequential(*middle),
        "last_part": last,
    }
    return nn.ModuleDict(parts), in_order


def espcn_layers(scale):
    """The layers of yjn870/ESPCN-pytorch."""
    first = nn.Sequential(conv(1, 64, 5), nn.Tanh(), conv(64, 32, 3), nn.Tanh())
    last = nn.Sequential(conv(32, scale**2, 3), nn.PixelShuffle(scale))
    return nn.ModuleDict({"first_part": first, "last_part": last}), in_order


def in_order(layers, luma):
    for layer in layers.values():
        luma = layer(luma)
    return luma


LUMA = {"srcnn-y": srcnn_layers, "fsrcnn-y": fsrcnn_layers, "espcn-y": espcn_layers}


@pytest.mark.parametrize("scale", [2, 3, 4])
@pytest.mark.parametrize("name", LUMA)
def test_released_files_on_luma_do_what_their_own_code_does(tmp_path, name, scale):
    torch.manual_seed(0)
    theirs, run = LUMA[name](scale)
    torch.save(theirs.state_dict(), tmp_path / "w.pth")
    model = load_file(tmp_path / "w.pth", scale=scale)
    assert (model.name, model.network.luma_only) == (name, True)
    degraded = torch.rand(1, 3, 9, 7)
    enlarged = resize(degraded, scale=scale)
    with torch.inference_mode():
        ours = rgb_to_ycbcr(model.network(degraded).mean)
        expected = run(theirs, rgb_to_y(enlarged if name == "srcnn-y" else degraded))
    torch.testing.assert_close(ours[:, :1], expected, rtol=0, atol=2e-6)
    torch.testing.assert_close(ours[:, 1:], rgb_to_ycbcr(enlarged)[:, 1:], rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("srcnn-y", {"conv1": "features.0", "conv2": "map.0", "conv3": "reconstruction"}),
        (
            "espcn-y",
            {
                "first_part.0": "feature_maps.0",
                "first_part.2": "feature_maps.2",
                "last_part.0": "sub_pixel.0",
            },
        ),
        (
            "fsrcnn-y",
            {
                "first_part.0": "feature_extraction.0",
                "first_part.1": "feature_extraction.1",
                "mid_part.0": "shrink.0",
                "mid_part.1": "shrink.1",
                **{f"mid_part.{number + 2}": f"map.{number}" for number in range(8)},
                "mid_part.10": "expand.0",
                "mid_part.11": "expand.1",
                "last_part": "deconv",
            },
        ),
    ],
)
def test_the_names_of_another_implementation(tmp_path, name, names):
    # Lornatang's SRCNN-PyTorch, ESPCN-PyTorch and FSRCNN-PyTorch.
    ours = create(name, scale=2).eval()
    torch.save({"state_dict": rename(weights_of(ours), names)}, tmp_path / "w.pth")
    model = load_file(tmp_path / "w.pth", scale=2)
    assert model.name == name
    degraded = torch.rand(1, 3, 9, 7)
    with torch.inference_mode():
        assert torch.equal(model.network(degraded).mean, ours(degraded).mean)


def test_srcnn_9_1_5_is_recognized(tmp_path):
    theirs, run = srcnn_layers(2, kernel_size2=1)
    torch.save(theirs.state_dict(), tmp_path / "w.pth")
    network = load_file(tmp_path / "w.pth", scale=2).network
    assert network.build_spec.settings == {"width": 64, "kernel_size2": 1}
    degraded = torch.rand(1, 3, 9, 7)
    with torch.inference_mode():
        ours = rgb_to_y(network(degraded).mean)
        expected = run(theirs, rgb_to_y(resize(degraded, scale=2)))
    torch.testing.assert_close(ours, expected, rtol=0, atol=2e-6)
