"""The branch beside the network: the mean does not know of it, and it learns by itself."""

from dataclasses import replace

import pytest
import torch

from helpers.networks import build
from musigma.functional.objectives import sigma_l1
from musigma.losses import Objective
from musigma.networks import card, create, mean_only, num_params, with_sigma
from musigma.networks.sigma_branch import INITIAL_SIGMA
from musigma.prediction.engines.onnx_file import export_onnx
from musigma.types import ConfigError


def network_of(scale=2, **options):
    torch.manual_seed(0)
    base = create("edsr-baseline", scale=scale, num_blocks=2, width=8)
    return with_sigma(base, **{"width": 8, "depth": 2, **options})


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_the_mean_is_the_same_to_the_bit(scale):
    network = network_of(scale)
    degraded = torch.rand(1, 3, 37, 31, generator=torch.Generator().manual_seed(0))
    for mode in (True, False):
        network.train(mode)
        with torch.no_grad():
            beside, alone = network(degraded), mean_only(network)(degraded)
        assert torch.equal(beside.mean, alone.mean)
        assert alone.sigma is None
        assert beside.sigma.shape == beside.mean.shape == (1, 3, 37 * scale, 31 * scale)


def test_the_mean_learns_the_same_with_and_without_the_branch():
    network = network_of()
    degraded, target = torch.rand(2, 3, 9, 7), torch.rand(2, 3, 18, 14)
    gradients = []
    for whole in (network, mean_only(network)):
        network.zero_grad()
        Objective("l1")(whole(degraded), target).backward()
        gradients.append([p.grad.clone() for p in mean_only(network).parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))


@pytest.mark.parametrize("detach", [True, False])
def test_the_auxiliary_loss_leaves_the_last_layers_of_the_mean_alone(detach):
    """Its gradient reaches the shared trunk, but not what turns features into the mean."""
    network = network_of()
    mean, sigma = network(torch.rand(1, 3, 9, 7))
    sigma_l1(mean, torch.rand(1, 3, 18, 14), sigma, detach=detach).mean().backward()
    tail = [parameter.grad for parameter in network.base.tail.parameters()]
    if detach:
        assert all(gradient is None for gradient in tail)
    else:
        assert all(gradient.abs().sum() > 0 for gradient in tail)
    for part in (network.branch, network.base.head, network.base.body):
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in part.parameters())


def test_cost_is_counted_apart():
    costs = card("edsr-baseline", scale=2)
    # By hand: Conv3x3 64 -> 160, three of 160 -> 160, each with a bias and a PReLU of one value,
    # then Conv3x3 160 -> 3 x 2^2; over 640 x 360 features.
    weights = 9 * (64 * 160 + 3 * 160 * 160 + 160 * 12)
    assert costs.sigma_params == weights + 4 * (160 + 1) + 12
    assert costs.sigma_macs_g == pytest.approx(weights * 640 * 360 / 1e9)
    assert costs.params == num_params(create("edsr-baseline", scale=2))


def test_a_fresh_branch_starts_near_a_usual_error():
    sigma = network_of(width=160, depth=4)(torch.rand(1, 3, 20, 20)).sigma
    assert ((sigma > 0) & (sigma < 1)).all()
    assert sigma.mean().item() == pytest.approx(INITIAL_SIGMA, rel=0.2)


def test_sigma_keeps_float32_under_autocast():
    network = network_of().eval()
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        assert network(torch.rand(1, 3, 8, 8)).sigma.dtype == torch.float32


def test_info_of_the_base_is_kept():
    network = network_of(3)
    base = network.base
    assert network.info == replace(base.info, receptive_radius=network.receptive_radius)
    assert network.build_spec == network.base.build_spec


def test_one_branch_is_enough():
    network = network_of()
    with pytest.raises(ConfigError, match=r"has a sigma branch already; mean_only\(network\)"):
        with_sigma(network)
    assert mean_only(mean_only(network)) is network.base


def double_types(path):
    """Return the names of all values and tensors of type DOUBLE in an ONNX file."""
    onnx = pytest.importorskip("onnx")
    graph = onnx.shape_inference.infer_shapes(onnx.load(path)).graph
    double = onnx.TensorProto.DOUBLE
    values = [*graph.value_info, *graph.input, *graph.output]
    names = [value.name for value in values if value.type.tensor_type.elem_type == double]
    names += [tensor.name for tensor in graph.initializer if tensor.data_type == double]
    casts = [node for node in graph.node if node.op_type == "Cast"]
    return names + [node.name for node in casts if node.attribute[0].i == double]


@pytest.mark.parametrize(("name", "scale"), [("edsr-baseline", 2), ("drunet-small", 1)])
def test_exported_graphs_hold_no_double(tmp_path, name, scale):
    network = build(name, scale, sigma=True)
    export_onnx(network, tmp_path / "n.onnx", metadata={})
    assert double_types(tmp_path / "n.onnx") == []


def test_sigma_needs_float64_on_the_cpu_alone(monkeypatch):
    branch = network_of().branch.eval()
    monkeypatch.setattr(torch.Tensor, "double", lambda _: pytest.fail("float64 was used"))
    features = torch.zeros(1, branch.body[0].in_channels, 4, 4)
    assert branch.to("meta")(features.to("meta")).dtype == torch.float32


def test_what_is_no_network_of_musigma_is_refused_with_the_two_ways_to_error_bars():
    with pytest.raises(ConfigError, match=r"takes a musigma\.Network, got Conv2d; .*musigma\.wrap"):
        with_sigma(torch.nn.Conv2d(3, 3, 3))
