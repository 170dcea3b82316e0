"""Deep networks are compiled block by block, once for all equal blocks."""

import copy

import pytest
import torch
from torch._dynamo.utils import counters

from helpers.networks import REDUCED
from musigma.networks import create, with_sigma
from musigma.networks.model_card import on_meta
from musigma.training import compiled_blocks
from musigma.training.compiled_blocks import compile_blocks, repeated_blocks
from musigma.training.deferred_gradients import defer, gradients_of
from training.test_deferred_gradients import LOW, loss_of, one_by_one


@pytest.mark.parametrize(
    ("name", "scale", "expected"),
    [
        ("rcan", 2, (10, "ResidualGroup")),
        ("han", 2, (10, "ResidualGroup")),
        ("san", 2, (20, "ResidualAttentionGroup")),
        ("rnan", 1, (8, "Group")),
        ("edsr", 2, (0, "")),
        ("edsr-baseline", 2, (0, "")),
        ("drunet", 1, (0, "")),
    ],
)
def test_blocks_of_deep_networks(name, scale, expected):
    blocks = repeated_blocks(with_sigma(on_meta(name, scale=scale), width=8))
    assert (len(blocks), type(blocks[0]).__name__ if blocks else "") == expected


def test_a_network_of_unequal_parts_has_no_blocks(monkeypatch):
    monkeypatch.setattr(compiled_blocks, "DEEP", 1)
    assert repeated_blocks(on_meta("espcn", scale=2, **REDUCED.get("espcn", {}))) == []


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning"
)  # these three: of torch.compile's own code
@pytest.mark.filterwarnings("ignore:.*should not be instantiated")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_equal_blocks_share_a_graph_and_keep_their_gradients(monkeypatch):
    """With weight gradients put off, as on a GPU."""
    monkeypatch.setattr(compiled_blocks, "DEEP", 1)
    torch.manual_seed(0)
    settings = {"num_groups": 9, "num_blocks": 1, "width": 16, "reduction": 4}
    network = with_sigma(create("rcan", scale=2, **settings), width=8)
    network.to(memory_format=torch.channels_last)
    expected = torch.autograd.grad(loss_of(network), list(network.parameters()))
    worker = copy.deepcopy(network)
    groups = defer(worker, torch.zeros_like(LOW), least=16)
    blocks = repeated_blocks(worker)
    assert len(blocks) == 9
    torch.compiler.reset()
    counters.clear()
    compile_blocks(blocks, backend="aot_eager")
    gradients = gradients_of(loss_of(worker), list(worker.parameters()), groups, one_by_one)
    # One graph for the first block, whose input comes from another layer, and one for the others.
    assert counters["stats"]["unique_graphs"] <= 2
    for ours, theirs in zip(gradients, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-6)
