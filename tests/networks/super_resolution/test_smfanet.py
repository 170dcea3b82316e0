"""SMFANet against its official release: names, sizes, arithmetic, the variance."""

import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - its name everywhere

from helpers.networks import recognised_names
from musigma.model import load_file
from musigma.networks import BuildSpec, card, create
from musigma.networks.super_resolution.smfanet import recognise, variance
from musigma.networks.weights_file import weights_of

SMALL = {"num_blocks": 2, "width": 8}


@pytest.mark.parametrize(
    ("name", "scale", "params_k", "printed_g"),
    # Zheng et al. 2024, tables 1 and 2.
    [
        *(("smfanet", 2, 186, 41), ("smfanet", 3, 191, 19), ("smfanet", 4, 197, 11)),
        *(("smfanet-plus", 2, 480, 108), ("smfanet-plus", 3, 487, 48)),
        ("smfanet-plus", 4, 496, 28),
    ],
)
def test_costs_of_the_tables(name, scale, params_k, printed_g):
    costs = card(name, scale=scale)
    assert round(costs.params / 1e3) == params_k
    # The paper counts a 1x1 convolution of the cells as if it were computed for every pixel; the
    # result would be the same.
    num_blocks, width = {"smfanet": (8, 36), "smfanet-plus": (12, 48)}[name]
    pixels = (1280 // scale) * (720 // scale)
    more_g = num_blocks * width**2 * (1 - 1 / 64) * pixels / 1e9
    assert costs.macs_g + more_g == pytest.approx(printed_g, abs=0.7)


def test_names_are_the_official_ones():
    # The keys of the released SMFANet_plus_DF2K_100w_x4SR.pth and SMFANet_DF2K_100w_x2SR.pth.
    with torch.device("meta"):
        state = weights_of(create("smfanet-plus", scale=4))
        assert len(weights_of(create("smfanet", scale=2))) == 180
    assert len(state) == 268
    for key, size in {
        "to_feat.weight": (48, 3, 3, 3),
        "feats.11.smfa.alpha": (1, 48, 1, 1),
        "feats.11.smfa.belt": (1, 48, 1, 1),
        "feats.11.smfa.linear_0.weight": (96, 48, 1, 1),
        "feats.11.smfa.linear_1.bias": (48,),
        "feats.11.smfa.linear_2.weight": (48, 48, 1, 1),
        "feats.11.smfa.lde.conv_0.0.weight": (96, 1, 3, 3),
        "feats.11.smfa.lde.conv_0.1.weight": (96, 96, 1, 1),
        "feats.11.smfa.lde.conv_1.weight": (48, 96, 1, 1),
        "feats.11.smfa.dw_conv.weight": (48, 1, 3, 3),
        "feats.11.pcfn.conv_0.weight": (96, 48, 1, 1),
        "feats.11.pcfn.conv_1.weight": (24, 24, 3, 3),
        "feats.11.pcfn.conv_2.weight": (48, 96, 1, 1),
        "to_img.0.weight": (48, 48, 3, 3),
    }.items():
        assert state[key].shape == size


def official_forward(state, image, scale, num_blocks):
    """The released network, written down from its description, with its adaptive pooling."""

    def conv(name, x, **options):
        return F.conv2d(x, state[f"{name}.weight"], state[f"{name}.bias"], **options)

    def modulate(name, x):
        width, size = x.shape[1], x.shape[2:]
        local, coarse = conv(f"{name}.linear_0", x).chunk(2, dim=1)
        cells = F.adaptive_max_pool2d(coarse, (size[0] // 8, size[1] // 8))
        cells = conv(f"{name}.dw_conv", cells, padding=1, groups=width) * state[f"{name}.alpha"]
        cells = cells + torch.var(coarse, dim=(-2, -1), keepdim=True) * state[f"{name}.belt"]
        weights = F.interpolate(F.gelu(conv(f"{name}.linear_1", cells)), size=size, mode="nearest")
        local = conv(f"{name}.lde.conv_0.0", local, padding=1, groups=width)
        local = conv(f"{name}.lde.conv_1", F.gelu(conv(f"{name}.lde.conv_0.1", local)))
        return conv(f"{name}.linear_2", coarse * weights + local)

    def mix(name, x):
        x = F.gelu(conv(f"{name}.conv_0", x))
        part = x.shape[1] // 4
        x = torch.cat([F.gelu(conv(f"{name}.conv_1", x[:, :part], padding=1)), x[:, part:]], dim=1)
        return conv(f"{name}.conv_2", x)

    first = x = conv("to_feat", image, padding=1)
    for block in range(num_blocks):
        x = x + modulate(f"feats.{block}.smfa", F.normalize(x))
        x = x + mix(f"feats.{block}.pcfn", F.normalize(x))
    return F.pixel_shuffle(conv("to_img.0", first + x, padding=1), scale)


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_released_files_load_and_the_arithmetic_is_the_official_one(tmp_path, scale):
    torch.manual_seed(0)
    state = weights_of(create("smfanet", scale=scale, **SMALL))
    state = {key: value + 0.1 * torch.randn_like(value) for key, value in state.items()}
    torch.save({"params": state}, tmp_path / "smfanet.pth")
    network = load_file(tmp_path / "smfanet.pth").network
    assert network.build_spec == BuildSpec("smfanet", scale, SMALL)
    image = torch.rand(2, 3, 24, 16)
    with torch.inference_mode():
        expected = official_forward(state, image, scale, 2)
        torch.testing.assert_close(network(image).mean, expected, rtol=0, atol=1e-5)


def test_variance_is_the_unbiased_one():
    features = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(variance(features), features.var(dim=(2, 3), keepdim=True))
    assert not variance(features[..., :1, :1]).any()


@pytest.mark.parametrize("name", ["smfanet", "smfanet-plus"])
def test_recognised_by_one_family(name):
    with torch.device("meta"):
        state = weights_of(create(name, scale=3))
        assert recognise(state)[:2] == (name, 3)
        assert recognised_names(state) == [name]
