"""PyTorch as an engine: float32 is the network itself, half precision is near it."""

import pytest
import torch
from torch import nn

from helpers.networks import build, image_for, one_of_each_class
from musigma.networks import create
from musigma.prediction.engines import TorchEngine
from musigma.prediction.engines.pytorch import half_network


def test_float32_is_the_network_to_the_bit():
    network = build("edsr-baseline", 2, sigma=True)
    tiles = image_for(network, 37, 31, num_images=2)
    engine = TorchEngine(network)
    assert (engine.name, engine.device.type, engine.batches) == ("torch", "cpu", False)
    with torch.inference_mode():
        for ours, theirs in zip(engine(tiles), network(tiles), strict=True):
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize(("name", "scale"), one_of_each_class())
def test_half_precision_of_every_network_is_near(name, scale):
    network = build(name, scale, sigma=True)
    tiles = image_for(network, 24, 16)
    with torch.inference_mode():
        expected = network(tiles)
    for precision, tolerance in (("bf16", 2**-6), ("fp16", 2**-9)):
        engine = TorchEngine(network, precision=precision)
        assert engine.name == f"torch-{precision}"
        for ours, theirs in zip(engine(tiles), expected, strict=True):
            assert ours.dtype == torch.float32
            error = (ours - theirs).square().mean().sqrt() / theirs.square().mean().sqrt()
            assert error < tolerance, precision
    assert {p.dtype for p in network.parameters()} <= {torch.float32}


def test_bfloat16_keeps_the_ends_in_float32():
    """The convolutions that read the image and those that write mean and sigma."""
    network = build("edsr-baseline", 2, sigma=True)
    worker = half_network(network, torch.bfloat16)
    exact = {
        name.removesuffix(".layer.weight")
        for name, weight in worker.named_parameters()
        if weight.dtype == torch.float32 and name.endswith(".weight")
    }
    assert exact == {"base.head.0", "base.tail.1", "branch.upsampler.0"}
    halves = [weight for weight in worker.parameters() if weight.dtype == torch.bfloat16]
    assert len(halves) == len(list(network.parameters())) - 2 * len(exact)


def test_what_overflows_half_precision_is_computed_in_float32():
    network = create("edsr-baseline", scale=2, num_blocks=1, width=8, value_range=255.0).eval()
    nn.init.constant_(network.head[0].weight, 100.0)
    tiles = image_for(network, 9, 8)
    with torch.inference_mode():
        expected = network(tiles).mean
        assert expected.isfinite().all()
    engine = TorchEngine(network, precision="fp16")
    assert not engine.run(tiles).mean.isfinite().all()
    assert torch.equal(engine(tiles).mean, expected)


def test_a_network_without_weights():
    network = create("bicubic", scale=2).eval()
    tiles = torch.rand(1, 3, 7, 5)
    assert torch.equal(TorchEngine(network)(tiles).mean, network(tiles).mean)
