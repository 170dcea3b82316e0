"""Every class of network trains with the product's step, and compiles as it does on a GPU."""

import pytest
import torch

from helpers.networks import REDUCED, one_of_each_class
from helpers.runs import small_recipe, small_step
from musigma.kernels.half_precision import half_copy
from musigma.networks.model_card import on_meta
from musigma.training.recipe import Recipe
from musigma.training.step import Step

FULL = "expected_l1 + 0.01 * sigma_l1"
NUM_STEPS = 3

trainable = pytest.mark.parametrize(
    ("name", "scale"),
    [(name, scale) for name, scale in one_of_each_class() if name != "bicubic"],
)


def recipe_of(name: str, scale: int, objective: str, seed: int = 0) -> Recipe:
    """A small recipe for a network with few and narrow layers."""
    settings = REDUCED.get(name, {})
    return small_recipe(
        network=name,
        scale=scale,
        settings=settings,
        objective=objective,
        channels=on_meta(name, scale=scale, **settings).out_channels,
        noise_std=[25.0, 25.0] if scale == 1 else None,
        patch=15,
        batch=2,
        seed=seed,
    )


def idle_weights(step: Step) -> set[str]:
    """Train for a few steps, and name the weights that stay as they were."""
    before = {name: weight.detach().clone() for name, weight in step.network.named_parameters()}
    for _ in range(NUM_STEPS):
        step(1e-4)
    assert 0 < step.read_loss(NUM_STEPS) < 10  # not finite where a weight is not
    after = dict(step.network.named_parameters())
    return {
        name
        for name, weight in before.items()
        if after[name].requires_grad and torch.equal(weight, after[name])
    }


@trainable
@pytest.mark.parametrize("objective", ["l1", FULL], ids=["mean", "sigma"])
def test_a_few_steps_move_every_weight(name, scale, objective):
    """With one of a few seeds: an attention of four units may be dead at the start.

    The biases of RNAN's queries shift all of them alike, which its softmax does not notice.
    """
    idle = idle_weights(small_step(recipe_of(name, scale, objective, seed=0)))
    for seed in range(1, 6):
        idle = {weight for weight in idle if not weight.endswith("theta.bias")}
        if idle:
            idle &= idle_weights(small_step(recipe_of(name, scale, objective, seed)))
    assert not idle


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile's own code
@pytest.mark.parametrize(
    ("name", "scale"),
    [
        ("ffdnet", 1),  # takes the noise level
        ("ipt", 1),
        ("nlrn", 1),
        ("nlsn", 2),  # sorts by hashes
        ("srresnet", 2),  # batch norm
        ("swinir-light", 2),
    ],
)
def test_a_step_compiles_into_one_graph_in_half_precision(name, scale):
    """As on a GPU: patches, network, branch and objective in one graph without breaks.

    The working copy is rounded to bfloat16, and gradients flow into it.
    """
    step = small_step(recipe_of(name, scale, FULL))
    step.half = True
    step.working_copy = half_copy(step.network, torch.bfloat16, share_buffers=True)
    torch.compiler.reset()
    step._loss = torch.compile(
        step._loss_of_patches, fullgraph=True, dynamic=False, backend="aot_eager"
    )
    num_weights = len(list(step.network.parameters()))
    assert len(idle_weights(step)) < num_weights  # the gradients reach the master weights
