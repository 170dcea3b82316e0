"""SPAN against its official release: its training form merged, names, sizes, arithmetic."""

import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - its name everywhere

from helpers.networks import recognised_names
from musigma.model import load_file
from musigma.networks import BuildSpec, card, create
from musigma.networks.super_resolution.span import adapt, initial_conv, recognise
from musigma.networks.weights_file import weights_of
from musigma.types import WeightsError

SMALL = {"num_blocks": 2, "width": 8}


@pytest.mark.parametrize(
    ("name", "scale", "params", "macs_g"),
    # As many values as the released files have once they are merged. MACs follow from the layers:
    # 19 3x3 convolutions and the fusion at every pixel of the input, and the first and the last.
    [
        ("span", 2, 481_324, 110.6),
        ("span", 4, 498_208, 28.6),
        ("span-s", 2, 410_700, 94.4),
        ("span-s", 4, 426_288, 24.5),
    ],
)
def test_costs(name, scale, params, macs_g):
    costs = card(name, scale=scale)
    assert costs.params == params
    assert round(costs.macs_g, 1) == macs_g
    width = {"span": 52, "span-s": 48}[name]
    per_pixel = 9 * (19 * width**2 + 3 * width + 3 * scale**2 * width) + 4 * width**2
    assert costs.macs_g == pytest.approx(per_pixel * (1280 // scale) * (720 // scale) / 1e9)


def official_state(width, num_blocks, scale, *, seed=0):
    """A state dict with the names and shapes of hongyuanyu/SPAN, basicsr/archs/span_arch.py."""
    generator = torch.Generator().manual_seed(seed)

    def conv(name, before, after, kernel_size):
        size = (after, before, kernel_size, kernel_size)
        bound = (3 / (before * kernel_size**2)) ** 0.5
        weight = bound * (2 * torch.rand(size, generator=generator, dtype=torch.float64) - 1)
        bias = torch.rand(after, generator=generator, dtype=torch.float64) - 0.5
        return {f"{name}.weight": weight, f"{name}.bias": bias}

    def training_form(name, before, after):
        return {
            **conv(f"{name}.sk", before, after, 1),
            **conv(f"{name}.conv.0", before, 2 * before, 1),
            **conv(f"{name}.conv.1", 2 * before, 2 * after, 3),
            **conv(f"{name}.conv.2", 2 * after, after, 1),
            # Official files hold a copy for inference, which is brought up to date before use.
            **conv(f"{name}.eval_conv", before, after, 3),
        }

    state = training_form("conv_1", 3, width)
    for block in range(1, num_blocks + 1):
        for layer in ("c1_r", "c2_r", "c3_r"):
            state |= training_form(f"block_{block}.{layer}", width, width)
    state |= conv("conv_cat", 4 * width, width, 1)
    state |= training_form("conv_2", width, width)
    return state | conv("upsampler.0", width, 3 * scale**2, 3)


def official_forward(state, image, scale, num_blocks):
    """The released network in training, written down from its description: images in 0..1."""

    def conv(name, x, padding=0):
        return F.conv2d(x, state[f"{name}.weight"], state[f"{name}.bias"], padding=padding)

    def training_form(name, x):
        inner = conv(f"{name}.conv.0", F.pad(x, (1, 1, 1, 1)))
        return conv(f"{name}.conv.2", conv(f"{name}.conv.1", inner)) + conv(f"{name}.sk", x)

    mean = torch.tensor([0.4488, 0.4371, 0.4040]).to(image.dtype).view(1, 3, 1, 1)
    first = x = training_form("conv_1", 255 * (image - mean))
    outputs = []
    for block in range(1, num_blocks + 1):
        # The activation is computed in place, so that what the block also returns is activated.
        inner = F.silu(training_form(f"block_{block}.c1_r", x))
        last = F.silu(training_form(f"block_{block}.c2_r", inner))
        last = training_form(f"block_{block}.c3_r", last)
        x = (last + x) * (torch.sigmoid(last) - 0.5)
        outputs.append(x)
    joined = torch.cat([first, training_form("conv_2", x), outputs[0], inner], dim=1)
    return F.pixel_shuffle(conv("upsampler.0", conv("conv_cat", joined), padding=1), scale)


@pytest.mark.parametrize("size", [(1, 1), (2, 5), (13, 11)])
@pytest.mark.parametrize("scale", [2, 3, 4])
def test_merged_convolutions_equal_the_training_form(scale, size):
    state = official_state(8, 2, scale)
    network = create("span", scale=scale, **SMALL).double()
    network.load_state_dict(adapt(state))
    image = torch.rand(2, 3, *size, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        expected = official_forward(state, image, scale, 2)
        tolerance = 1e-12 * float(expected.abs().max())
        torch.testing.assert_close(network(image).mean, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    # the-database/traiNNer-redux, benchmark4x.csv, counts the released network with all its parts.
    ("width", "num_values"),
    [(48, 2_236_728), (52, 2_621_964)],
)
def test_the_training_form_has_as_many_values_as_the_official_one(width, num_values):
    state = official_state(width, 6, 4)
    assert sum(value.numel() for value in state.values()) == num_values
    with torch.device("meta"):
        ours = weights_of(create("span", scale=4, width=width))
    assert {key: value.shape for key, value in adapt(state).items()} == {
        key: value.shape for key, value in ours.items()
    }


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_official_files_load(tmp_path, scale):
    state = {key: value.float() for key, value in official_state(8, 2, scale).items()}
    torch.save({"params": state}, tmp_path / "span.pth")
    network = load_file(tmp_path / "span.pth").network
    assert network.build_spec == BuildSpec("span", scale, SMALL)
    image = torch.rand(1, 3, 9, 7, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        expected = official_forward(state, image, scale, 2)
        tolerance = 1e-5 * float(expected.abs().max())
        torch.testing.assert_close(network(image).mean, expected, rtol=0, atol=tolerance)


def test_files_that_hold_merged_convolutions_load(tmp_path):
    network = create("span-s", scale=4, num_blocks=2)
    state = {}
    for key, value in weights_of(network).items():
        layer, _, part = key.rpartition(".")
        is_plain = layer in ("conv_cat", "upsampler.0")
        state[key if is_plain else f"{layer}.eval_conv.{part}"] = value
    torch.save({"params_ema": state}, tmp_path / "span.pth")
    model = load_file(tmp_path / "span.pth")
    assert (model.name, model.scale) == ("span-s", 4)
    image = torch.rand(1, 3, 5, 6)
    with torch.inference_mode():
        assert torch.equal(model.network(image).mean, network(image).mean)


def test_files_that_take_the_image_as_it_is(tmp_path):
    state = {key: value.float() for key, value in official_state(8, 2, 2).items()}
    torch.save({**state, "no_norm": torch.zeros(1)}, tmp_path / "span.pth")
    network = load_file(tmp_path / "span.pth").network
    assert network.build_spec.settings == {**SMALL, "normalises": False}
    image = torch.rand(1, 3, 5, 6)
    assert torch.equal(network.shift(image), image)


@pytest.mark.parametrize(
    ("key", "size"),
    [
        ("block_2.c1_r.conv.1.weight", (16, 15, 3, 3)),
        ("block_2.c1_r.conv.0.bias", (8,)),
        ("block_2.c1_r.sk.weight", (8, 8, 3, 3)),
        ("block_2.c1_r.conv.2.weight", None),
    ],
)
def test_parts_that_do_not_fit_are_refused(tmp_path, key, size):
    state = official_state(8, 2, 2)
    del state[key]
    torch.save(state if size is None else state | {key: torch.zeros(size)}, tmp_path / "span.pth")
    with pytest.raises(WeightsError, match=r"looks like span, but parts are missing"):
        load_file(tmp_path / "span.pth")


def test_recognised_by_one_family():
    for state in (official_state(8, 2, 3), weights_of(create("span", scale=3, **SMALL))):
        assert recognise(state) == ("span", 3, SMALL)
        assert recognised_names(state) == ["span"]


def test_a_new_convolution_starts_as_the_official_one():
    torch.manual_seed(0)
    weight = initial_conv(64, 64).weight.detach()
    # A 1x1 convolution by PyTorch's start has the variance 1 / (3 x inputs); the way through the
    # other three adds a product of three such variances to each of the nine taps.
    through = (1 / (3 * 64)) * (1 / (9 * 3 * 128)) * (1 / (3 * 128)) * 128 * 128
    assert float(weight[..., 1, 1].var()) == pytest.approx(1 / (3 * 64) + through, rel=0.1)
    assert float(weight[..., 0, 0].var()) == pytest.approx(through, rel=0.1)
