"""The optimizers of a captured step: fused Adam, and Muon for the convolutions."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

MOMENTUM = 0.95
UPDATE_RMS = 0.2
"""Root mean square of a Muon update at learning rate 1; about Adam's, so that rates carry over."""


class OptimizerSettings(Protocol):
    """What a recipe, or anything else, says of an optimizer."""

    @property
    def optimizer(self) -> Literal["adam", "muon"]:
        """Its name."""
        ...

    @property
    def betas(self) -> tuple[float, float]:
        """Decay rates of Adam's two averages."""
        ...

    @property
    def epsilon(self) -> float:
        """What Adam adds to a denominator."""
        ...


class Optimizer:
    """Updates weights by the gradients in their ``grad``; its state never moves in memory.

    Args:
        settings: The optimizer and its decay rates; a recipe has them.
        weights: The weights to update.
        learning_rate: A tensor that is read at every step.
    """

    def __init__(
        self, settings: OptimizerSettings, weights: Sequence[Tensor], learning_rate: Tensor
    ) -> None:
        self.learning_rate = learning_rate
        self.groups: list[list[Tensor]] = []
        rest = list(weights)
        if settings.optimizer == "muon":
            self.groups = _by_shape([weight for weight in weights if _is_wide(weight)])
            rest = [weight for weight in weights if not _is_wide(weight)]
        self.momenta = [[torch.zeros_like(weight) for weight in group] for group in self.groups]
        self.adam = torch.optim.Adam(
            rest,
            lr=learning_rate,
            betas=settings.betas,
            eps=settings.epsilon,
            fused=True,
            capturable=learning_rate.is_cuda,
        )
        # Adam creates its averages at its first step. They must exist before a graph is captured
        # and before a checkpoint is loaded, so a step with zero gradients creates them here.
        for weight in weights:
            weight.grad = torch.zeros_like(weight)
        self.adam.step()
        for weight in rest:
            self.adam.state[weight]["step"].zero_()
        self.rest = rest

    def step(self) -> None:
        """Make one update."""
        for group, momenta in zip(self.groups, self.momenta, strict=True):
            gradients = [weight.grad for weight in group if weight.grad is not None]
            torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
            nesterov = torch._foreach_lerp(gradients, momenta, MOMENTUM)
            updates = orthogonalised(torch.stack([part.flatten(1) for part in nesterov]))
            size = UPDATE_RMS * max(updates.shape[1:]) ** 0.5
            parts = (updates * (-size * self.learning_rate)).unbind()
            torch._foreach_add_(
                group, [part.view(w.shape) for part, w in zip(parts, group, strict=True)]
            )
        self.adam.step()

    def state(self) -> list[Any]:
        """Return the tensors that the next step depends on."""
        return [self.momenta, [dict(self.adam.state[weight]) for weight in self.rest]]

    def load_state(self, state: list[Any]) -> None:
        """Copy a state into place."""
        momenta, averages = state
        for mine, theirs in zip(self.momenta, momenta, strict=True):
            for momentum, value in zip(mine, theirs, strict=True):
                momentum.copy_(value)
        for weight, values in zip(self.rest, averages, strict=True):
            for name, value in self.adam.state[weight].items():
                value.copy_(values[name])


def orthogonalised(matrices: Tensor, *, num_iterations: int = 5) -> Tensor:
    """Bring the singular values of matrices ``(K, rows, columns)`` near 1, keeping directions.

    Five steps of the quintic Newton-Schulz iteration, whose coefficients push every value between
    about 0.7 and 1.2 quickly rather than to 1 exactly (K. Jordan, Muon, 2024).
    """
    wide = matrices.shape[-1] >= matrices.shape[-2]
    x = matrices if wide else matrices.mT
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
    if x.is_cuda:
        x = x.bfloat16()
    for _ in range(num_iterations):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    x = x.to(matrices.dtype)
    return x if wide else x.mT


def _is_wide(weight: Tensor) -> bool:
    # The first and the last convolution have too few channels on one side for Muon to help.
    return weight.ndim == 4 and min(weight.shape[0], weight[0].numel()) >= 16


def _by_shape(weights: Sequence[Tensor]) -> list[list[Tensor]]:
    groups: dict[torch.Size, list[Tensor]] = {}
    for weight in weights:
        groups.setdefault(weight.shape, []).append(weight)
    return list(groups.values())
