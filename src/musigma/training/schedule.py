"""How much of a run's budget is used, and the learning rate that follows from it."""

import time
from dataclasses import dataclass

from musigma.training.recipe import Recipe


@dataclass
class Clock:
    """The budget over all the parts of a resumed run.

    Attributes:
        recipe: Whose budget.
        spent: Seconds of the parts before this one.
        slower: Factor on the learning rate: below 1 after a roll-back.
        started: When this part began.
    """

    recipe: Recipe
    spent: float = 0.0
    slower: float = 1.0
    started: float | None = None

    def start(self) -> None:
        """Begin to count: the first step is about to run."""
        self.started = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds of training so far."""
        return self.spent + (0.0 if self.started is None else time.monotonic() - self.started)

    def progress(self, step: int) -> float:
        """Share of the budget that is used up after so many steps."""
        if self.recipe.steps is not None:
            return step / self.recipe.steps
        assert self.recipe.seconds is not None
        return self.seconds / self.recipe.seconds

    def learning_rate(self, step: int, progress: float) -> float:
        """Learning rate of the next step."""
        return self.slower * self.recipe.learning_rate_at(step=step, progress=progress)
