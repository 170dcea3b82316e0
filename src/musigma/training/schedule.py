"""How much of a run's budget is used, and the learning rate that follows from it."""

import math
import time
from dataclasses import dataclass

from musigma.training.recipe import Recipe

LOWEST = 1e-3
"""The first and the last learning rate, over the highest: no step is without effect."""


def learning_rate_at(recipe: Recipe, *, step: int, progress: float) -> float:
    """Return the learning rate of a recipe's schedule.

    Args:
        recipe: Has the schedule.
        step: Updates done so far.
        progress: Share of the budget that is used.

    Example:
        >>> from musigma.training.recipe import load_recipe
        >>> paper = load_recipe("paper")
        >>> [learning_rate_at(paper, step=step, progress=0.5) for step in (0, 200_000)]
        [0.0001, 5e-05]
    """
    if recipe.schedule == "cosine" or progress < recipe.warmup:
        return recipe.learning_rate * cosine_share(progress, warmup=recipe.warmup)
    if recipe.schedule == "halving":
        return recipe.learning_rate * 0.5 ** (step // recipe.halve_every)
    return recipe.learning_rate


def cosine_share(progress: float, *, warmup: float) -> float:
    """Return the learning rate over the highest: it rises in a line, then falls as a cosine.

    Args:
        progress: Share of the budget that is used.
        warmup: Share of the budget over which the rate rises.

    Example:
        >>> [cosine_share(progress, warmup=0.5) for progress in (0.25, 0.5, 0.75)]
        [0.5, 1.0, 0.5]
    """
    if progress < warmup:
        return max(progress, LOWEST * warmup) / warmup
    after_warmup = (min(progress, 1.0) - warmup) / (1 - warmup)
    return max(0.5 * (1 + math.cos(math.pi * after_warmup)), LOWEST)


def is_closing(recipe: Recipe, progress: float) -> bool:
    """Return whether the second objective of a recipe counts, where it has two.

    Args:
        recipe: Has the share of the budget for it.
        progress: Share of the budget that is used.
    """
    return progress >= 1 - recipe.closing


@dataclass
class Clock:
    """The budget of a run, over all its parts if it was resumed.

    Attributes:
        recipe: Has the budget and the schedule.
        spent: Seconds of the parts before this one.
        rate_factor: Factor on the learning rate; below 1 after a roll-back.
        started: When this part began.
    """

    recipe: Recipe
    spent: float = 0.0
    rate_factor: float = 1.0
    started: float | None = None

    def start(self) -> None:
        """Start counting, before the first step."""
        self.started = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds of training so far."""
        return self.spent + (0.0 if self.started is None else time.monotonic() - self.started)

    def progress(self, step: int) -> float:
        """Return the share of the budget that is used after a number of steps."""
        if self.recipe.steps is not None:
            return step / self.recipe.steps
        assert self.recipe.seconds is not None
        return self.seconds / self.recipe.seconds

    def learning_rate(self, step: int, progress: float) -> float:
        """Return the learning rate of the next step."""
        return self.rate_factor * learning_rate_at(self.recipe, step=step, progress=progress)
