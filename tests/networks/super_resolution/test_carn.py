import pytest
import torch
from torch import nn

from helpers.networks import recognised_names
from musigma.model import load_file
from musigma.networks import card, create, num_params
from musigma.networks.super_resolution.carn import CARN, cascade, recognise
from musigma.networks.weights_file import weights_of

# Name, shape: the official carn.pth and carn_m.pth (nmhkahn/CARN-pytorch, carn/model).
OFFICIAL = {
    "carn-multi": {
        "entry.weight": (64, 3, 3, 3),
        "b1.b1.body.0.weight": (64, 64, 3, 3),
        "b3.b3.body.2.bias": (64,),
        "b2.c3.body.0.weight": (64, 256, 1, 1),
        "c1.body.0.weight": (64, 128, 1, 1),
        "upsample.up2.body.0.weight": (256, 64, 3, 3),
        "upsample.up3.body.0.weight": (576, 64, 3, 3),
        "upsample.up4.body.3.weight": (256, 64, 3, 3),
        "exit.weight": (3, 64, 3, 3),
    },
    "carn-m": {
        "b1.b1.body.0.weight": (64, 16, 3, 3),
        "b1.b1.body.4.weight": (64, 64, 1, 1),
        "b3.c1.body.0.weight": (64, 128, 1, 1),
        "upsample.up3.body.0.weight": (576, 16, 3, 3),
        "upsample.up4.body.0.weight": (256, 16, 3, 3),
    },
}


# The paper's table of lightweight models. Its MACs lie 0.25 % above those of the convolutions,
# which are 222.8, 118.6 and 90.9; the authors of CARN print 222.8, 118.8 and 90.9.
@pytest.mark.parametrize(
    ("scale", "params_k", "macs_g"), [(2, 964, 223.4), (3, 1149, 118.9), (4, 1112, 91.1)]
)
def test_costs_are_the_printed_ones(scale, params_k, macs_g):
    costs = card("carn", scale=scale)
    assert round(costs.params / 1e3) == params_k
    assert costs.macs_g == pytest.approx(macs_g, rel=0.005)


def test_official_forms_have_the_parameters_of_their_paper():
    with torch.device("meta"):
        multi, mobile = create("carn-multi", scale=2), create("carn-m", scale=2)
    assert round(num_params(multi) / 1e3) == 1592
    # The 412K that Ahn et al. print for CARN-M leave the biases out.
    weights = sum(p.numel() for name, p in mobile.named_parameters() if name.endswith("weight"))
    assert round(weights / 1e3) == 412


@pytest.mark.parametrize(("scale", "macs_g"), [(2, 91.2), (3, 46.1), (4, 32.5)])
def test_mobile_form_has_the_macs_of_its_paper(scale, macs_g):
    assert card("carn-m", scale=scale).macs_g == pytest.approx(macs_g, rel=0.002)


@pytest.mark.parametrize("name", list(OFFICIAL))
def test_names_are_the_official_ones(name):
    with torch.device("meta"):
        state = weights_of(create(name, scale=2))
    for key, shape in OFFICIAL[name].items():
        assert state[key].shape == shape
    assert ("b1.b2.body.0.weight" in state) == (name == "carn-multi")


def test_cascade_by_hand():
    class Double(nn.Module):
        def forward(self, x):
            return 2 * x

    class Total(nn.Module):
        def forward(self, x):
            return x.sum(1, keepdim=True)

    # [1, 2] -> 3; [1, 2, 6] -> 9; [1, 2, 6, 18] -> 27.
    result = cascade(torch.ones(1, 1, 1, 1), [Double()] * 3, [Total()] * 3)
    assert result.item() == 27


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("carn", {"width": 8}),
        ("carn-multi", {"width": 8, "multi_scale": True}),
        ("carn-m", {"width": 8, "num_groups": 4, "multi_scale": True}),
        ("carn-m", {"width": 8, "num_groups": 2, "multi_scale": False}),
    ],
)
@pytest.mark.parametrize("scale", [2, 3, 4])
def test_released_files_load(tmp_path, name, settings, scale):
    network = create(name, scale=scale, **settings).eval()
    shifter = {"shifter.weight": torch.eye(3).view(3, 3, 1, 1), "shifter.bias": torch.zeros(3)}
    means = {f"{side}_mean.{k}": v for side in ("sub", "add") for k, v in shifter.items()}
    released = {f"module.{k}": v for k, v in {**weights_of(network), **means}.items()}
    torch.save(released, tmp_path / "net.pth")
    model = load_file(tmp_path / "net.pth", scale=scale)
    degraded = torch.rand(1, 3, 5, 7)
    assert model.name == name
    assert torch.equal(model.network(degraded).mean, network(degraded).mean)


@pytest.mark.parametrize(("multi_scale", "scale"), [(True, None), (False, 3)])
def test_recognised_by_one_family(multi_scale, scale):
    state = weights_of(CARN(scale=3, width=8, multi_scale=multi_scale))
    names = recognised_names(state)
    assert names == ["carn-multi" if multi_scale else "carn"]
    assert recognise(state)[1] == scale


def test_upsamplers_of_other_scales_lie_still():
    network = CARN(scale=3, width=8, multi_scale=True)
    still = {name for name, p in network.named_parameters() if not p.requires_grad}
    assert still == {name for name in weights_of(network) if ".up2." in name or ".up4." in name}
