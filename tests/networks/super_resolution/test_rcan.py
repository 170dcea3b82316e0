import pytest
import torch

from helpers.networks import recognised_names, released
from musigma.model import load_file
from musigma.networks import create, num_params
from musigma.networks.super_resolution.rcan import ChannelAttention, adapt, recognise
from musigma.networks.weights_file import weights_of

SMALL = {"num_groups": 2, "num_blocks": 3, "width": 16, "reduction": 4, "value_range": 255.0}


# The paper's table of computing-intensive models.
@pytest.mark.parametrize(("scale", "params_m"), [(2, 15.44), (3, 15.63), (4, 15.59)])
def test_parameters_are_the_printed_ones(scale, params_m):
    with torch.device("meta"):
        network = create("rcan", scale=scale)
    assert round(num_params(network) / 1e6, 2) == params_m


def test_names_are_the_official_ones():
    # yulunzhang/RCAN, RCAN_TestCode/code/model/rcan.py: RCAN_BIX4.pt.
    with torch.device("meta"):
        state = weights_of(create("rcan", scale=4))
    for key, shape in {
        "head.0.weight": (64, 3, 3, 3),
        "body.0.body.0.body.0.weight": (64, 64, 3, 3),
        "body.9.body.19.body.2.bias": (64,),
        "body.9.body.19.body.3.conv_du.0.weight": (4, 64, 1, 1),
        "body.9.body.19.body.3.conv_du.2.weight": (64, 4, 1, 1),
        "body.9.body.20.weight": (64, 64, 3, 3),
        "body.10.weight": (64, 64, 3, 3),
        "tail.0.0.weight": (256, 64, 3, 3),
        "tail.0.2.weight": (256, 64, 3, 3),
        "tail.1.weight": (3, 64, 3, 3),
    }.items():
        assert state[key].shape == shape


def test_attention_by_hand():
    attention = ChannelAttention(4, 2)
    for parameter in attention.parameters():
        torch.nn.init.zeros_(parameter)
    # sigmoid(0) = 1/2
    torch.testing.assert_close(attention(torch.ones(1, 4, 2, 3)), torch.full((1, 4, 2, 3), 0.5))


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_released_files_load(tmp_path, scale):
    network = create("rcan", scale=scale, **SMALL).eval()
    state = released(network)
    torch.save({f"module.{k}": v for k, v in state.items()}, tmp_path / "rcan.pt")
    model = load_file(tmp_path / "rcan.pt")
    degraded = torch.rand(1, 3, 5, 7)
    assert (model.name, model.scale) == ("rcan", scale)
    assert torch.equal(model.network(degraded).mean, network(degraded).mean)


def _basicsr_to_official(num_groups, num_blocks):
    """The correspondence of names, from XPixelGroup/BasicSR, basicsr/archs/rcan_arch.py (x4)."""
    pairs = {
        "conv_first": "head.0",
        "conv_after_body": f"body.{num_groups}",
        "upsample.0": "tail.0.0",
        "upsample.2": "tail.0.2",
        "conv_last": "tail.1",
    }
    for g in range(num_groups):
        pairs[f"body.{g}.conv"] = f"body.{g}.body.{num_blocks}"
        for b in range(num_blocks):
            theirs, ours = f"body.{g}.residual_group.{b}.rcab", f"body.{g}.body.{b}.body"
            pairs[f"{theirs}.0"] = f"{ours}.0"
            pairs[f"{theirs}.2"] = f"{ours}.2"
            pairs[f"{theirs}.3.attention.1"] = f"{ours}.3.conv_du.0"
            pairs[f"{theirs}.3.attention.3"] = f"{ours}.3.conv_du.2"
    return {f"{a}.{part}": f"{b}.{part}" for a, b in pairs.items() for part in ("weight", "bias")}


def test_basicsr_files_load():
    state = weights_of(create("rcan", scale=4, **SMALL))
    names = _basicsr_to_official(SMALL["num_groups"], SMALL["num_blocks"])
    assert set(names.values()) == state.keys()
    foreign = {theirs: state[ours] for theirs, ours in names.items()}
    assert recognise(foreign) == ("rcan", 4, SMALL)
    adapted = adapt(foreign)
    assert adapted.keys() == state.keys()
    assert all(adapted[key] is state[key] for key in state)


def test_recognised_by_one_family():
    state = weights_of(create("rcan", scale=3, **SMALL))
    names = recognised_names(state)
    assert names == ["rcan"]
    # HAN has the same trunk and keys of its own.
    assert recognise({**state, "csa.gamma": torch.zeros(1)}) is None
