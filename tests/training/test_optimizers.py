import copy

import pytest
import torch
from torch import Tensor

from helpers.runs import small_recipe
from musigma.training.optimizers import UPDATE_RMS, Optimizer, orthogonalised


def weights() -> list[Tensor]:
    """A convolution for Muon, a tall one, a narrow one and a bias, for which Adam is kept."""
    torch.manual_seed(0)
    shapes = ((16, 20, 3, 3), (80, 8, 3, 3), (8, 3, 3, 3), (16,))
    return [torch.randn(shape).requires_grad_() for shape in shapes]


def gradients(step: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(step)
    return [torch.randn(weight.shape, generator=generator) for weight in weights()]


def run(optimizer: Optimizer, values: list[Tensor], steps: range) -> None:
    for step in steps:
        optimizer.learning_rate.fill_(0.01 / (1 + step))
        for weight, gradient in zip(values, gradients(step), strict=True):
            weight.grad.copy_(gradient)
        with torch.no_grad():
            optimizer.step()


def test_adam_is_adam():
    ours, theirs = weights(), weights()
    recipe = small_recipe(betas=[0.8, 0.95], epsilon=1e-6)
    run(Optimizer(recipe, ours, torch.tensor(0.0)), ours, range(5))
    reference = torch.optim.Adam(theirs, betas=(0.8, 0.95), eps=1e-6, foreach=False, fused=False)
    for step in range(5):
        reference.param_groups[0]["lr"] = 0.01 / (1 + step)
        for weight, gradient in zip(theirs, gradients(step), strict=True):
            weight.grad = gradient
        reference.step()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("shape", [(4, 16, 144), (2, 144, 16), (1, 64, 576), (3, 80, 72)])
def test_singular_values_come_near_one(shape):
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    found = orthogonalised(matrices)
    assert found.shape == shape
    values = torch.linalg.svdvals(found)
    assert values.min() > 0.6
    assert values.max() < 1.3
    # The directions stay: U^T (U f(S) V^T) V is diagonal.
    left, _, right = torch.linalg.svd(matrices.double(), full_matrices=False)
    middle = left.mT @ found.double() @ right.mT
    torch.testing.assert_close(
        middle, torch.diag_embed(middle.diagonal(dim1=1, dim2=2)), rtol=0, atol=1e-4
    )


def test_a_matrix_of_noughts_stays_one():
    assert not orthogonalised(torch.zeros(1, 16, 16)).any()


def test_muon_takes_the_wide_convolutions():
    values = weights()
    before = [value.detach().clone() for value in values]
    optimizer = Optimizer(small_recipe(optimizer="muon"), values, torch.tensor(0.0))
    assert [weight.shape for group in optimizer.groups for weight in group] == [
        value.shape for value in values[:2]
    ]
    run(optimizer, values, range(1))
    for value, old in zip(values[:2], before, strict=False):
        update = (value.detach() - old) / 0.01
        assert update.square().mean().sqrt() == pytest.approx(UPDATE_RMS, rel=0.2)
    # Adam's first update is a step of the learning rate against each sign.
    for value, old, gradient in list(zip(values, before, gradients(0), strict=True))[2:]:
        torch.testing.assert_close(value.detach(), old - 0.01 * gradient.sign(), rtol=0, atol=1e-6)


def test_muon_follows_its_momentum():
    """Two steps by hand: m = 0.95 m + 0.05 g, and the update looks ahead by 0.95 m + 0.05 g."""
    values = weights()[:1]
    old = values[0].detach().clone()
    optimizer = Optimizer(small_recipe(optimizer="muon"), [*values, weights()[3]], torch.zeros(()))
    momentum = torch.zeros_like(old)
    for step in range(2):
        gradient = gradients(step)[0]
        momentum = 0.95 * momentum + 0.05 * gradient
        ahead = (0.95 * momentum + 0.05 * gradient).flatten(1)
        old -= 0.1 * UPDATE_RMS * 180**0.5 * orthogonalised(ahead[None])[0].view(old.shape)
        optimizer.learning_rate.fill_(0.1)
        values[0].grad.copy_(gradient)
        with torch.no_grad():
            optimizer.step()
    torch.testing.assert_close(values[0].detach(), old, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["adam", "muon"])
def test_state_goes_round(name):
    recipe = small_recipe(optimizer=name)
    ours = weights()
    optimizer = Optimizer(recipe, ours, torch.tensor(0.0))
    run(optimizer, ours, range(3))
    state, at_three = copy.deepcopy(optimizer.state()), [w.detach().clone() for w in ours]
    run(optimizer, ours, range(3, 6))
    fresh = [weight.requires_grad_() for weight in at_three]
    other = Optimizer(recipe, fresh, torch.tensor(0.0))
    other.load_state(state)
    run(other, fresh, range(3, 6))
    for mine, theirs in zip(ours, fresh, strict=True):
        assert torch.equal(mine, theirs)
