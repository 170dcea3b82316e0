"""Copies in half precision: what is halved, what is kept and what is shared."""

import torch
from torch import nn

from musigma.kernels.half_precision import Float32Layer, half_copy


def small_network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 3, 3))


def test_batch_norm_and_chosen_layers_keep_their_weights():
    network = small_network()
    keep = lambda layer: isinstance(layer, nn.Conv2d) and layer.out_channels == 3  # noqa: E731
    worker = half_copy(network, torch.float16, keep=keep)
    assert [p.dtype for p in worker.parameters()] == [
        *(torch.float16, torch.float16),
        *(torch.float32, torch.float32),
        *(torch.float32, torch.float32),
    ]
    assert {p.dtype for p in network.parameters()} == {torch.float32}
    torch.testing.assert_close(worker[0].weight.float(), network[0].weight, rtol=1e-3, atol=1e-4)


def test_shared_buffers_carry_running_statistics():
    network = small_network()
    apart, shared = (half_copy(network, torch.bfloat16, share_buffers=s) for s in (False, True))
    apart[1](torch.ones(2, 8, 4, 4))
    assert torch.equal(network[1].running_mean, torch.zeros(8))
    shared[1](torch.ones(2, 8, 4, 4))
    assert torch.equal(network[1].running_mean, shared[1].running_mean)
    assert network[1].running_mean.min() > 0


def test_a_float32_layer_computes_in_float32_inside_autocast():
    layer, values = nn.Conv2d(3, 8, 3), torch.rand(1, 3, 9, 7)
    wrapped = Float32Layer(layer, torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        found, plain = wrapped(values), layer(values)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, layer(values).bfloat16())
    exact = layer(values)
    assert (found - exact).abs().mean() < (plain - exact).abs().mean()
