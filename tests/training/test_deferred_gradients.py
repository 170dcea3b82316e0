"""Weight gradients put off are those of the ordinary backward pass."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.grad import conv2d_weight

from musigma.networks import create, with_sigma
from musigma.training.deferred_gradients import DeferringBlock, DeferringConv, defer, gradients_of


def one_by_one(inputs: list[Tensor], gradients: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """The reference: PyTorch's own, layer by layer."""
    pairs = list(zip(inputs, gradients, strict=True))
    weights = [conv2d_weight(i, (g.shape[1], i.shape[1], 3, 3), g, padding=1) for i, g in pairs]
    return weights, [g.sum((0, 2, 3)) for g in gradients]


def small_network() -> nn.Module:
    torch.manual_seed(0)
    network = create("edsr-baseline", scale=2, num_blocks=3, width=16)
    return with_sigma(network, width=8).to(memory_format=torch.channels_last)


GENERATOR = torch.Generator().manual_seed(1)
LOW = torch.rand(2, 3, 9, 7, generator=GENERATOR)
TARGET = torch.rand(2, 3, 18, 14, generator=GENERATOR)


def loss_of(network: nn.Module) -> Tensor:
    mean, sigma = network(LOW)
    return (mean - TARGET).abs().mean() + 0.1 * (sigma - TARGET).abs().mean()


@pytest.mark.filterwarnings("ignore:.*should not be instantiated")  # by torch.compile itself
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("whole_blocks", [False, True])
def test_gradients_are_those_of_autograd(compiled, whole_blocks):
    network = small_network()
    worker = copy.deepcopy(network)
    example = torch.zeros(2, 3, 9, 7)
    groups = defer(worker, example, least=16, is_faster=lambda _: whole_blocks)
    blocks = [layer for layer in worker.modules() if isinstance(layer, DeferringBlock)]
    assert len(blocks) == 3 * whole_blocks
    assert [len(group) for group in groups] == [7]  # three blocks of two, and the last of the body
    loss = loss_of
    if compiled:
        loss = torch.compile(loss_of, fullgraph=True, backend="aot_eager")
    weights, theirs = list(worker.parameters()), list(network.parameters())
    expected = torch.autograd.grad(loss_of(network), theirs)
    for found, wanted in zip(
        gradients_of(loss(worker), weights, groups, one_by_one), expected, strict=True
    ):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


def test_values_and_names_stay():
    network = small_network()
    worker = copy.deepcopy(network)
    defer(worker, torch.zeros(2, 3, 9, 7), least=16)
    assert list(worker.state_dict()) == list(network.state_dict())
    torch.testing.assert_close(loss_of(worker), loss_of(network), rtol=1e-6, atol=0)


def test_relus_become_part_of_their_convolution():
    worker = small_network()
    (group,) = defer(worker, torch.zeros(2, 3, 9, 7), least=16)
    assert [layer.rectifies for layer in group] == [True, False] * 3 + [False]
    assert not any(isinstance(layer, nn.ReLU) for layer in worker.modules())
    # Without a GPU there is no kernel that would pay.
    assert not any(isinstance(layer, DeferringBlock) for layer in worker.modules())


class Odd(nn.Module):
    """Layers that must be left alone: one used twice, one of another form, one without a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.twice = nn.Conv2d(16, 16, 3, padding=1)
        self.wide = nn.Conv2d(16, 16, 5, padding=2)
        self.bare = nn.Conv2d(16, 16, 3, padding=1, bias=False)
        self.equal = nn.Sequential(*(nn.Conv2d(16, 16, 3, padding=1) for _ in range(4)))

    def forward(self, image: Tensor) -> Tensor:
        return self.equal(self.bare(self.wide(self.twice(self.twice(image)))))


def test_other_layers_are_left_alone():
    worker = Odd()
    (group,) = defer(worker, torch.zeros(1, 16, 5, 6), least=16)
    assert group == list(worker.equal)
    assert all(isinstance(layer, DeferringConv) for layer in worker.equal)
    assert type(worker.twice) is type(worker.wide) is type(worker.bare) is nn.Conv2d


def test_few_equal_layers_go_the_usual_way():
    worker = create("edsr-baseline", scale=2, num_blocks=1, width=16)
    assert defer(worker, torch.zeros(1, 3, 9, 7), least=16) == []
    loss = worker(torch.zeros(1, 3, 9, 7)).mean.sum()
    weights = list(worker.parameters())
    assert len(gradients_of(loss, weights, [])) == len(weights)
