import copy
from collections.abc import Iterable

import pytest
import torch
from torch import Tensor, nn

from helpers.networks import REDUCED
from helpers.runs import CPU, assert_same, small_bank, small_recipe, small_step, weights_of
from musigma.kernels.half_precision import half_copy
from musigma.losses import Objective
from musigma.training.setup import build_network
from musigma.training.step import Step

RANDOM = "expected_l1 + 0.01 * sigma_l1"


def run(step: Step, num_steps: int) -> None:
    for _ in range(num_steps):
        step(1e-2 / (1 + step.steps_done))


def flat(weights: Iterable[Tensor]) -> Tensor:
    return torch.cat([weight.detach().flatten() for weight in weights]).double()


def test_a_step_is_that_of_a_plain_loop():
    """Against the loop of a tutorial: torch's own Adam, in PyTorch's usual order of pixels."""
    recipe = small_recipe()
    step = small_step(recipe)
    network, bank = build_network(recipe), small_bank(recipe)
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    total = 0.0
    for number in range(10):
        step(2e-3)
        patches = bank.sample(torch.tensor(number), batch=recipe.batch, seed=recipe.seed)
        optimizer.zero_grad()
        loss = (network(patches.degraded.contiguous()).mean - patches.target).abs().mean()
        loss.backward()
        optimizer.step()
        total += loss.item()
    for name, value in network.state_dict().items():
        torch.testing.assert_close(step.network.state_dict()[name], value, rtol=1e-4, atol=1e-5)
    assert step.read_loss(10) == pytest.approx(total / 10, rel=1e-5)
    assert step.read_loss(10) == 0  # read means begun anew


@pytest.mark.parametrize("closing", [0, 1])
def test_one_of_two_objectives_counts(closing):
    both = small_step(small_recipe(objective="l1 then l2"))
    alone = small_step(small_recipe(objective=["l1", "l2"][closing]))
    both.closing.fill_(closing)
    for step in (both, alone):
        run(step, 3)
    assert_same(weights_of(both), weights_of(alone))
    assert both.read_loss(3) == alone.read_loss(3)


def test_the_loss_goes_down():
    step = small_step(small_recipe(objective=RANDOM))
    run(step, 5)
    first = step.read_loss(5)
    run(step, 60)
    step.read_loss(60)
    run(step, 5)
    assert step.read_loss(5) < 0.8 * first


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_a_processor_trains_in_half_precision_if_asked(optimizer):
    changes = {"optimizer": optimizer, "settings": {"num_blocks": 1, "width": 16}}
    half = small_step(small_recipe(precision="bf16-everywhere", **changes))
    usual = small_step(small_recipe(**changes))
    convolution = next(m for m in half.working_copy.modules() if isinstance(m, nn.Conv2d))
    assert convolution.weight.dtype == torch.bfloat16
    assert usual.working_copy is usual.network
    for step in (half, usual):
        run(step, 20)
    assert {weight.dtype for weight in half.weights} == {torch.float32}
    assert half.read_loss(20) == pytest.approx(usual.read_loss(20), rel=0.05)
    moved = flat(half.weights) - flat(build_network(half.recipe).parameters())
    expected = flat(usual.weights) - flat(build_network(half.recipe).parameters())
    assert torch.cosine_similarity(moved, expected, dim=0) > 0.8


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"objective": RANDOM},
        {"objective": RANDOM, "optimizer": "muon", "settings": {"num_blocks": 1, "width": 16}},
        {"ema": 0.0, "clip": 0.01},
        {"network": "srresnet", "settings": REDUCED["srresnet"]},
        {"network": "kpn", "settings": {"num_blocks": 1}, "scale": 1, "noise_std": [0.0, 50.0]},
    ],
    ids=["l1", "random", "muon", "clip", "batch norm", "denoise"],
)
def test_a_resumed_step_goes_on_as_if_nothing_had_happened(changes):
    recipe = small_recipe(**changes)
    whole = small_step(recipe)
    run(whole, 4)
    state = copy.deepcopy(whole.state())
    run(whole, 4)
    torch.rand(7)  # what others drew from the global generators in between
    resumed = small_step(recipe)
    run(resumed, 1)  # what a step has done before does not count
    resumed.load_state(state)
    assert resumed.steps_done == 4
    run(resumed, 4)
    assert_same(weights_of(whole), weights_of(resumed))
    for ours, theirs in zip(whole.averages, resumed.averages, strict=True):
        assert torch.equal(ours, theirs)


def test_noise_follows_from_seed_step_and_process():
    def drawn(seed: int, rank: int, steps: int) -> Tensor:
        recipe = small_recipe(objective="expected_l1", seed=seed)
        parts = build_network(recipe), Objective(recipe.objective), small_bank(recipe)
        step = Step(recipe, *parts, device=CPU, rank=rank, world=1)
        run(step, steps)
        return torch.rand(3)  # what comes next from the generator that the step drew from

    assert torch.equal(drawn(0, 0, 2), drawn(0, 0, 2))
    all_drawn = [drawn(0, 0, 2), drawn(1, 0, 2), drawn(0, 1, 2), drawn(0, 0, 3)]
    assert len({tuple(values.tolist()) for values in all_drawn}) == 4


def test_averaged_weights_are_the_average():
    """Against the sum written out: weight i of n counts (1 - d) d^(n - i), all over 1 - d^n."""
    decay = 0.8
    step = small_step(small_recipe(ema=decay))
    history = []
    for _ in range(6):
        run(step, 1)
        history.append(flat(step.weights))
    shares = [(1 - decay) * decay ** (5 - index) / (1 - decay**6) for index in range(6)]
    assert sum(shares) == pytest.approx(1)
    expected = sum(share * value for share, value in zip(shares, history, strict=True))
    with step.averaged() as network:
        torch.testing.assert_close(flat(network.parameters()), expected, rtol=1e-5, atol=1e-7)
    assert torch.equal(flat(step.weights), history[-1])


def test_weights_come_back_after_an_error():
    step = small_step(small_recipe())
    run(step, 3)
    before = weights_of(step)
    try:
        with step.averaged() as network:
            assert not torch.equal(network.head[0].weight, before["head.0.weight"])
            raise KeyError
    except KeyError:
        pass
    assert_same(weights_of(step), before)


@pytest.mark.parametrize(("ema", "steps"), [(0.0, 2), (0.9, 0)])
def test_without_an_average_the_last_weights_are_lent(ema, steps):
    step = small_step(small_recipe(ema=ema))
    run(step, steps)
    before = weights_of(step)
    with step.averaged() as network:
        assert_same({k: v.clone() for k, v in network.state_dict().items()}, before)


def test_clip_limits_the_gradient():
    step = small_step(small_recipe(clip=1e-3))
    run(step, 1)
    norm = torch.cat([weight.grad.flatten() for weight in step.weights]).norm()
    assert norm == pytest.approx(1e-3, rel=1e-3)


def test_weights_that_are_not_used_stay():
    """A CARN with the upsamplers of all scales trains the one it uses."""
    step = small_step(small_recipe(network="carn-multi", settings={}, batch=2))
    before = weights_of(step)
    run(step, 1)
    moved = {
        name for name, value in weights_of(step).items() if not torch.equal(value, before[name])
    }
    frozen = {name for name, weight in step.network.named_parameters() if not weight.requires_grad}
    assert frozen
    assert moved.isdisjoint(frozen)
    assert moved


def test_statistics_of_a_batch_norm_are_trained():
    recipe = small_recipe(network="srresnet", settings=REDUCED["srresnet"])
    step = small_step(recipe)
    run(step, 2)
    counts = [v for k, v in step.network.state_dict().items() if k.endswith("num_batches_tracked")]
    assert counts
    assert all(count == 2 for count in counts)


def test_the_half_precision_copy_shares_statistics():
    network = build_network(small_recipe(network="srresnet", settings=REDUCED["srresnet"]))
    network.to(memory_format=torch.channels_last)
    worker = half_copy(network, torch.bfloat16, share_buffers=True)
    norms = [m for m in worker.modules() if isinstance(m, nn.BatchNorm2d)]
    assert {norm.weight.dtype for norm in norms} == {torch.float32}
    others = [m for m in worker.modules() if isinstance(m, nn.Conv2d)]
    assert {conv.weight.dtype for conv in others} == {torch.bfloat16}
    assert {weight.dtype for weight in network.parameters()} == {torch.float32}
    with torch.autocast("cpu", torch.bfloat16):
        worker(torch.rand(2, 3, 8, 8))
    for ours, theirs in zip(network.buffers(), worker.buffers(), strict=True):
        assert ours is theirs
    assert all(int(norm.num_batches_tracked) == 1 for norm in norms)
