"""PLKSR against its official release: names, sizes, arithmetic."""

import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - its name everywhere

from helpers.networks import recognised_names
from musigma.model import load_file
from musigma.networks import BuildSpec, card, create
from musigma.networks.super_resolution.plksr import recognise
from musigma.networks.weights_file import weights_of

SMALL = {"num_blocks": 2, "width": 8, "kernel_size": 9}


@pytest.mark.parametrize(
    ("name", "scale", "params"),
    # Lee et al. 2024 print no parameters; the-database/traiNNer-redux, benchmark4x.csv, counts
    # those of x4. x2 has 64 x 36 x 9 + 36 fewer.
    [
        *(("plksr-tiny", 4, 2_370_544), ("plksr-tiny", 2, 2_370_544 - 20_772)),
        *(("plksr", 4, 7_386_096), ("plksr", 2, 7_386_096 - 20_772)),
    ],
)
def test_costs(name, scale, params):
    costs = card(name, scale=scale)
    assert costs.params == params
    # Every layer is a convolution of the small image, so that each of its weights is used once per
    # pixel, and biases are not counted.
    num_biases = {"plksr-tiny": 12 * (128 + 64 + 16 + 64), "plksr": 28 * (128 + 64 + 16 + 128)}
    per_pixel = params - num_biases[name] - 64 - 3 * scale**2
    pixels = (1280 // scale) * (720 // scale)
    assert costs.macs_g == pytest.approx(per_pixel * pixels / 1e9)


def test_names_are_the_official_ones():
    # dslisleedh/PLKSR, plksr/archs/plksr_arch.py, options/test/*_64_12_* and *_64_28_*.
    with torch.device("meta"):
        state = weights_of(create("plksr-tiny", scale=4))
        large = weights_of(create("plksr", scale=4))
    assert len(state) == 4 + 12 * 8
    for key, size in {
        "feats.0.weight": (64, 3, 3, 3),
        "feats.12.channe_mixer.0.weight": (128, 64, 3, 3),
        "feats.12.channe_mixer.2.weight": (64, 128, 3, 3),
        "feats.12.lk.conv.weight": (16, 16, 13, 13),
        "feats.12.refine.weight": (64, 64, 1, 1),
        "feats.13.weight": (48, 64, 3, 3),
    }.items():
        assert state[key].shape == size
    assert large["feats.28.lk.conv.weight"].shape == (16, 16, 17, 17)
    assert large["feats.28.attn.f.0.weight"].shape == (64, 64, 3, 3)
    assert large["feats.29.bias"].shape == (48,)


def official_forward(state, image, scale, num_blocks):
    """The released network, written down from its description."""

    def conv(name, x):
        weight = state[f"{name}.weight"]
        return F.conv2d(x, weight, state[f"{name}.bias"], padding=weight.shape[-1] // 2)

    x = conv("feats.0", image)
    for block in range(1, num_blocks + 1):
        name = f"feats.{block}"
        y = conv(f"{name}.channe_mixer.2", F.gelu(conv(f"{name}.channe_mixer.0", x)))
        part = y.shape[1] // 4
        y = torch.cat([conv(f"{name}.lk.conv", y[:, :part]), y[:, part:]], dim=1)
        if f"{name}.attn.f.0.weight" in state:
            y = y * torch.sigmoid(conv(f"{name}.attn.f.0", y))
        x = x + conv(f"{name}.refine", y)
    sub_pixels = conv(f"feats.{num_blocks + 1}", x)
    return F.pixel_shuffle(sub_pixels + image.repeat_interleave(scale**2, dim=1), scale)


@pytest.mark.parametrize(("name", "attention"), [("plksr", True), ("plksr-tiny", False)])
@pytest.mark.parametrize("scale", [2, 3, 4])
def test_released_files_load_and_the_arithmetic_is_the_official_one(
    tmp_path, scale, name, attention
):
    torch.manual_seed(0)
    state = weights_of(create(name, scale=scale, **SMALL))
    state = {key: value + 0.1 * torch.randn_like(value) for key, value in state.items()}
    torch.save({"params": state}, tmp_path / "plksr.pth")
    network = load_file(tmp_path / "plksr.pth").network
    assert network.build_spec == BuildSpec(name, scale, SMALL | {"attention": attention})
    image = torch.rand(2, 3, 13, 11)
    with torch.inference_mode():
        expected = official_forward(state, image, scale, 2)
        tolerance = 1e-5 * float(expected.abs().max())
        torch.testing.assert_close(network(image).mean, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", ["plksr", "plksr-tiny"])
def test_recognised_by_one_family(name):
    with torch.device("meta"):
        state = weights_of(create(name, scale=3))
        assert recognise(state)[:2] == (name, 3)
        assert recognised_names(state) == [name]
