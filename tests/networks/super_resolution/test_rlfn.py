"""RLFN against its official release: names, sizes, arithmetic."""

import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - its name everywhere

from helpers.networks import recognised_names
from musigma.model import load_file
from musigma.networks import BuildSpec, card, create, macs, num_params
from musigma.networks.super_resolution.rlfn import grow, recognise
from musigma.networks.weights_file import weights_of

SMALL = {"num_blocks": 2, "width": 8, "inner_width": 12, "value_range": 255.0}


@pytest.mark.parametrize(
    ("name", "scale", "params_k", "macs_g"),
    # Kong et al. 2022 print 527K and 543K for RLFN, thousands that are cut off; those of RLFN-S are
    # the values of the released files. MACs are counted here.
    [
        ("rlfn", 2, 527, 115.4),
        ("rlfn", 4, 543, 29.8),
        ("rlfn-s", 2, 454, 98.8),
        ("rlfn-s", 4, 470, 25.6),
    ],
)
def test_costs_of_the_tables(name, scale, params_k, macs_g):
    costs = card(name, scale=scale)
    assert costs.params / 1e3 == pytest.approx(params_k, abs=1)
    assert round(costs.macs_g, 1) == macs_g


def test_costs_of_the_challenge():
    # The release's README: 0.317 M parameters, 19.70 G for an input of 256x256.
    with torch.device("meta"):
        network = create("rlfn-ntire", scale=4)
    assert round(num_params(network) / 1e6, 3) == 0.317
    assert macs(network, height=256, width=256) / 1e9 == pytest.approx(19.70, rel=0.005)


def test_names_are_the_official_ones():
    # The keys of the released rlfn_x4.pth and rlfn_ntire_x4.pth.
    with torch.device("meta"):
        state = weights_of(create("rlfn", scale=4))
        pruned = weights_of(create("rlfn-ntire", scale=4))
    assert (len(state), len(pruned)) == (114, 78)
    for key, size in {
        "conv_1.weight": (52, 3, 3, 3),
        "block_6.c1_r.weight": (52, 52, 3, 3),
        "block_6.c5.weight": (52, 52, 1, 1),
        "block_6.esa.conv1.weight": (16, 52, 1, 1),
        "block_6.esa.conv_f.bias": (16,),
        "block_6.esa.conv2.weight": (16, 16, 3, 3),
        "block_6.esa.conv3.weight": (16, 16, 3, 3),
        "block_6.esa.conv4.weight": (52, 16, 1, 1),
        "conv_2.weight": (52, 52, 3, 3),
        "upsampler.0.weight": (48, 52, 3, 3),
    }.items():
        assert state[key].shape == size
    assert pruned["block_4.c1_r.weight"].shape == (48, 46, 3, 3)
    assert pruned["block_4.c3_r.weight"].shape == (46, 48, 3, 3)


def official_forward(state, image, scale, num_blocks):
    """The released network, written down from its description: images in 0..255."""

    def conv(name, x, **options):
        return F.conv2d(x, state[f"{name}.weight"], state[f"{name}.bias"], **options)

    first = x = conv("conv_1", image, padding=1)
    for block in range(1, num_blocks + 1):
        name = f"block_{block}"
        y = x
        for layer in ("c1_r", "c2_r", "c3_r"):
            y = F.leaky_relu(conv(f"{name}.{layer}", y, padding=1), 0.05)
        y = conv(f"{name}.c5", x + y)
        narrow = conv(f"{name}.esa.conv1", y)
        coarse = F.max_pool2d(conv(f"{name}.esa.conv2", narrow, stride=2), 7, 3)
        coarse = conv(f"{name}.esa.conv3", coarse, padding=1)
        coarse = F.interpolate(coarse, y.shape[2:], mode="bilinear", align_corners=False)
        x = y * torch.sigmoid(
            conv(f"{name}.esa.conv4", coarse + conv(f"{name}.esa.conv_f", narrow))
        )
    x = first + conv("conv_2", x, padding=1)
    return F.pixel_shuffle(conv("upsampler.0", x, padding=1), scale)


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_released_files_load_and_the_arithmetic_is_the_official_one(tmp_path, scale):
    torch.manual_seed(0)
    state = weights_of(create("rlfn", scale=scale, **SMALL))
    torch.save(state, tmp_path / "rlfn.pth")
    with pytest.warns(UserWarning, match="255 is taken"):
        network = load_file(tmp_path / "rlfn.pth").network
    assert network.build_spec == BuildSpec("rlfn", scale, SMALL)
    image = torch.rand(2, 3, 29, 18)
    with torch.inference_mode():
        expected = official_forward(state, 255 * image, scale, 2) / 255
        torch.testing.assert_close(network(image).mean, expected, rtol=0, atol=1e-6)


def test_small_images_are_continued_for_the_attention():
    image = torch.arange(6.0).view(1, 1, 2, 3)
    grown = grow(image, 4)
    assert grown[0, 0].tolist() == [[0, 1, 2, 2], *[[3, 4, 5, 5]] * 3]
    assert torch.equal(grow(image, 2), image)


@pytest.mark.parametrize("name", ["rlfn", "rlfn-s", "rlfn-ntire"])
def test_recognised_by_one_family(name):
    with torch.device("meta"):
        state = weights_of(create(name, scale=3))
        assert recognise(state)[:2] == (name, 3)
        assert recognised_names(state) == [name]
