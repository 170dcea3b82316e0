"""Processes that share a batch have one objective: that of the whole batch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, distributed

from musigma.losses import ExpectedL1, parse

SHAPE = (4, 3, 16, 8)  # half of it is a multiple of 16, which keeps the stream of draws in step
TEXTS = ("expected_l1 + 0.01 * sigma_l1", "expected_l1_closed_form + 0.01 * sigma_l1", "l1")

WORKER = """
import sys, torch
from torch import distributed
from losses.test_shared_batch import TEXTS, share
rank, folder = int(sys.argv[1]), sys.argv[2]
store = distributed.FileStore(folder + "/store", 2)
distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
torch.save([share(text, slice(2 * rank, 2 * rank + 2)) for text in TEXTS], f"{folder}/{rank}.pt")
distributed.destroy_process_group()
"""


def share(text: str, images: slice, *, training: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Loss and gradients of some images of a batch, with their own part of the random draws."""
    generator = torch.Generator().manual_seed(0)
    everything = torch.rand(3, *SHAPE, generator=generator)
    # Unequal halves: a threshold of its own would be wrong for both.
    everything[0, 2:] = everything[1, 2:] + 0.1 * (everything[0, 2:] - everything[1, 2:])
    mean, target, sigma = (part[images].clone() for part in everything)
    torch.randn((1, images.start, *SHAPE[1:]), generator=generator)  # what others draw before
    mean.requires_grad_()
    sigma.requires_grad_()
    loss = parse(text).train(training)((mean, sigma), target, generator=generator)
    return loss.detach(), *torch.autograd.grad(loss, (mean, sigma), materialize_grads=True)


def test_two_processes_have_the_objective_of_one_with_the_whole_batch(tmp_path):
    tests = Path(__file__).parents[1]
    folders = os.pathsep.join([str(tests), os.environ.get("PYTHONPATH", "")])
    variables = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONPATH": folders}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(rank), str(tmp_path)], env=os.environ | variables
        )
        for rank in range(2)
    ]
    assert [worker.wait(300) for worker in workers] == [0, 0]
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    for text, one, two in zip(TEXTS, first, second, strict=True):
        whole, *gradients = share(text, slice(0, 4))
        torch.testing.assert_close((one[0] + two[0]) / 2, whole, msg=text)
        for ours, theirs, expected in zip(one[1:], two[1:], gradients, strict=True):
            torch.testing.assert_close(torch.cat([ours, theirs]) / 2, expected, msg=text)
    # The test can tell: with a threshold of each half alone the loss is another.
    halves = [share(TEXTS[0], slice(n, n + 2), training=False)[0] for n in (0, 2)]
    assert abs((halves[0] + halves[1]) / 2 - share(TEXTS[0], slice(0, 4))[0]) > 1e-4


@pytest.fixture
def process_group(tmp_path, monkeypatch):
    """A group of this process alone."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("process_group")
def test_sharing_compiles_as_one_graph():
    torch.compiler.reset()
    mean, target = torch.rand(2, *SHAPE, generator=torch.Generator().manual_seed(0))
    loss = ExpectedL1()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        by_graph = compiled(mean, target)
        torch.manual_seed(0)
        torch.testing.assert_close(by_graph, loss(mean, target))


@pytest.mark.usefixtures("process_group")
def test_evaluation_does_not_wait_for_other_processes(monkeypatch):
    waits = []
    monkeypatch.setattr(distributed, "all_reduce", waits.append)
    mean, target = torch.rand(2, *SHAPE)
    ExpectedL1().eval()(mean, target)
    ExpectedL1(mask=False)(mean, target)
    assert not waits
    ExpectedL1()(mean, target)
    assert len(waits) == 1
