"""What every metric over a data set can do."""

from abc import ABC, abstractmethod
from typing import Any, Self

from torch import Tensor

from musigma.uncertainty.metrics.blocks import Block, blocks, images


class Metric(ABC):
    """A metric over a data set, in memory that does not grow with it.

    Call `update` for every batch, then `compute`. Metrics of several parts of a data set, made on
    several processes, are joined by `merge`. A subclass writes `reset`, `add_block`, `merge` and
    `compute`, and `end_image` where images count and not values.

    Attributes:
        higher_is_better: The direction in which a model improves; `None` where there is none.
    """

    higher_is_better: bool | None = None

    def update(self, mean: Tensor, target: Tensor, sigma: Tensor) -> None:
        """Add the images of a batch.

        Args:
            mean: What the network predicted, ``(N, C, H, W)`` in ``[0, 1]``, on any device.
            target: What it should have predicted, of the same shape.
            sigma: The error that it predicted, of the same shape.
        """
        for maps in images(mean, target, sigma):
            for block in blocks(*maps):
                self.add_block(block)
            self.end_image()

    @abstractmethod
    def reset(self) -> None:
        """Forget all images."""

    @abstractmethod
    def add_block(self, block: Block) -> None:
        """Add a piece of an image."""

    def end_image(self) -> None:  # noqa: B027  (most metrics pool all values)
        """Take note that an image is complete."""

    @abstractmethod
    def merge(self, other: Self) -> None:
        """Add all that another metric of the same type has seen."""

    @abstractmethod
    def compute(self) -> Any:
        """Return the value over all images seen."""
