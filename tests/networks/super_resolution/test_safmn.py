"""SAFMN against its official release: names, sizes, arithmetic, cells."""

import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - its name everywhere

from helpers.networks import recognised_names
from musigma.model import load_file
from musigma.networks import BuildSpec, card, create, num_params
from musigma.networks.super_resolution.safmn import ChannelNorm, recognise
from musigma.networks.weights_file import weights_of

SMALL = {"num_blocks": 2, "width": 8}


@pytest.mark.parametrize(
    ("scale", "params_k", "macs_g"),
    # Sun et al. 2023, the table of efficient networks; it rounds to whole units.
    [(2, 228, 52), (3, 233, 23), (4, 240, 14)],
)
def test_costs_of_the_tables(scale, params_k, macs_g):
    costs = card("safmn", scale=scale)
    assert round(costs.params / 1e3) == params_k
    assert costs.macs_g == pytest.approx(macs_g, abs=0.6)


def test_parameters_of_the_large_form():
    # 5.60 M parameters, counted by the-database/traiNNer-redux, benchmark4x.csv.
    with torch.device("meta"):
        assert num_params(create("safmn-l", scale=4)) == 5_600_816


def test_names_are_the_official_ones():
    # sunny2109/SAFMN, basicsr/archs/safmn_arch.py with 36 channels and 8 blocks.
    with torch.device("meta"):
        state = weights_of(create("safmn", scale=4))
    assert len(state) == 4 + 8 * 18
    for key, size in {
        "to_feat.weight": (36, 3, 3, 3),
        "feats.7.norm1.weight": (36,),
        "feats.7.norm2.bias": (36,),
        "feats.7.safm.mfr.0.weight": (9, 1, 3, 3),
        "feats.7.safm.mfr.3.bias": (9,),
        "feats.7.safm.aggr.weight": (36, 36, 1, 1),
        "feats.7.ccm.ccm.0.weight": (72, 36, 3, 3),
        "feats.7.ccm.ccm.2.weight": (36, 72, 1, 1),
        "to_img.0.weight": (48, 36, 3, 3),
    }.items():
        assert state[key].shape == size


def official_forward(state, image, scale, num_blocks):
    """The released network, written down from its description, with its adaptive pooling."""

    def conv(name, x, **options):
        return F.conv2d(x, state[f"{name}.weight"], state[f"{name}.bias"], **options)

    def norm(name, x):
        x = (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True, correction=0) + 1e-6).sqrt()
        return state[f"{name}.weight"][:, None, None] * x + state[f"{name}.bias"][:, None, None]

    def modulate(name, x):
        height, width = x.shape[2:]
        parts = []
        for level, part in enumerate(x.chunk(4, dim=1)):
            cells = F.adaptive_max_pool2d(part, (height // 2**level, width // 2**level))
            cells = conv(f"{name}.mfr.{level}", cells, padding=1, groups=part.shape[1])
            parts.append(F.interpolate(cells, size=(height, width), mode="nearest"))
        return F.gelu(conv(f"{name}.aggr", torch.cat(parts, dim=1))) * x

    first = x = conv("to_feat", image, padding=1)
    for block in range(num_blocks):
        name = f"feats.{block}"
        x = x + modulate(f"{name}.safm", norm(f"{name}.norm1", x))
        mixed = F.gelu(conv(f"{name}.ccm.ccm.0", norm(f"{name}.norm2", x), padding=1))
        x = x + conv(f"{name}.ccm.ccm.2", mixed)
    return F.pixel_shuffle(conv("to_img.0", first + x, padding=1), scale)


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_released_files_load_and_the_arithmetic_is_the_official_one(tmp_path, scale):
    torch.manual_seed(0)
    state = weights_of(create("safmn", scale=scale, **SMALL))
    state = {key: value + 0.1 * torch.randn_like(value) for key, value in state.items()}
    torch.save({"params": state}, tmp_path / "safmn.pth")
    network = load_file(tmp_path / "safmn.pth").network
    assert network.build_spec == BuildSpec("safmn", scale, SMALL)
    image = torch.rand(2, 3, 24, 16)
    with torch.inference_mode():
        expected = official_forward(state, image, scale, 2)
        torch.testing.assert_close(network(image).mean, expected, rtol=0, atol=1e-5)


def test_norm_is_over_channels():
    norm = ChannelNorm(6)
    features = torch.randn(2, 6, 3, 4, generator=torch.Generator().manual_seed(0))
    result = norm(features)
    assert result.mean(1).abs().max() < 1e-5
    torch.testing.assert_close(result.var(1, correction=0), torch.ones(2, 3, 4), rtol=1e-4, atol=0)


def test_tiles_that_begin_on_cells_are_exact():
    torch.manual_seed(0)
    network = create("safmn", scale=2, **SMALL).double().eval()
    image = torch.rand(1, 3, 45, 131, dtype=torch.float64)
    start, safe = 40, network.scale * network.receptive_radius
    assert start % network.size_multiple == 0
    with torch.inference_mode():
        whole, tile = network(image).mean, network(image[..., start:]).mean
    torch.testing.assert_close(tile[..., safe:], whole[..., 2 * start + safe :], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["safmn", "safmn-l"])
def test_recognised_by_one_family(name):
    with torch.device("meta"):
        state = weights_of(create(name, scale=3))
        assert recognise(state)[:2] == (name, 3)
        assert recognised_names(state) == [name]
