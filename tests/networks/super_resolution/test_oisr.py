import pytest
import torch
from torch import nn

from helpers.networks import recognised_names, released
from musigma.model import load_file
from musigma.networks import card, create
from musigma.networks.super_resolution.oisr import LeapfrogBlock, RungeKuttaBlock
from musigma.networks.weights_file import weights_of


# The paper's table of lightweight models; both small forms print alike.
@pytest.mark.parametrize("name", ["oisr-lf-s", "oisr-rk2-s"])
@pytest.mark.parametrize(
    ("scale", "params_k", "macs_g"), [(2, 1372, 316.2), (3, 1557, 160.1), (4, 1520, 114.2)]
)
def test_costs_are_the_printed_ones(name, scale, params_k, macs_g):
    costs = card(name, scale=scale)
    assert round(costs.params / 1e3) == params_k
    assert costs.macs_g == pytest.approx(macs_g, abs=0.06)


def test_names_are_the_official_ones():
    # CAS-CLab/OISR-PyTorch, LF-s/model: the state dict of x2.pt without its mean shift.
    with torch.device("meta"):
        state = weights_of(create("oisr-lf-s", scale=2))
    expected = {"head.0.weight", "head.0.bias", "body.8.weight", "body.8.bias"}
    expected |= {"tail.0.0.weight", "tail.0.0.bias", "tail.1.weight", "tail.1.bias"}
    for block in range(8):
        for index in range(1, 5):
            expected |= {f"body.{block}.conv{index}.{part}" for part in ("weight", "bias")}
            expected |= {f"body.{block}.relu{index}.weight", f"body.{block}.scale{index}"}
    assert state.keys() == expected
    assert state["body.0.relu1.weight"].shape == (64,)
    assert state["body.7.scale4"].shape == (1,)


def _with_identity_slopes(block):
    """Make G(y) = y, so that a block solves y' = y."""
    for layer in block.children():
        if isinstance(layer, nn.Conv2d):
            nn.init.dirac_(layer.weight)
            nn.init.zeros_(layer.bias)
        else:
            nn.init.ones_(layer.weight)
    return block


def test_leapfrog_by_hand():
    # y1 = 2 y0, then y[n+1] = y[n-1] + 2 y[n]: 1, 2, 5, 12, 29.
    block = _with_identity_slopes(LeapfrogBlock(2))
    torch.testing.assert_close(block(torch.ones(1, 2, 3, 4)), torch.full((1, 2, 3, 4), 29.0))


def test_runge_kutta_by_hand():
    # k1 = 1, k2 = 1 + k1 = 2, y = 1 + (1 + 2) / 2.
    block = _with_identity_slopes(RungeKuttaBlock(2))
    torch.testing.assert_close(block(torch.ones(1, 2, 3, 4)), torch.full((1, 2, 3, 4), 2.5))


@pytest.mark.parametrize("name", ["oisr-lf-s", "oisr-rk2-s"])
@pytest.mark.parametrize("scale", [2, 3, 4])
def test_released_files_load(tmp_path, name, scale):
    settings = {"num_blocks": 2, "width": 8, "value_range": 255.0}
    network = create(name, scale=scale, **settings).eval()
    state = released(network)
    torch.save({f"module.{k}": v for k, v in state.items()}, tmp_path / "x.pt")
    model = load_file(tmp_path / "x.pt")
    degraded = torch.rand(1, 3, 5, 7)
    assert (model.name, model.scale) == (name, scale)
    assert torch.equal(model.network(degraded).mean, network(degraded).mean)


@pytest.mark.parametrize("name", ["oisr-lf-s", "oisr-rk2-s"])
def test_recognised_by_one_family(name):
    state = weights_of(create(name, scale=3, num_blocks=1, width=8))
    names = recognised_names(state)
    assert names == [name]
