"""Whether intervals hold what they say: coverage, width, and calibration error at all levels."""

from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray

from musigma.types import DataError
from musigma.uncertainty.metrics.base import Metric
from musigma.uncertainty.metrics.blocks import Block

NUM_LEVELS = 100


class IntervalScore(NamedTuple):
    """Coverage and width of intervals ``mean +- half_width`` over all values of all images.

    Attributes:
        coverage: The share of targets inside.
        width: The mean full width, ``2 half_width``, not clipped to [0, 1].
    """

    coverage: float
    width: float


class Intervals(Metric):
    """Coverage and mean width of intervals; the state is three numbers.

    The third map of `update` is the half-width of the intervals.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all images."""
        self.num_values, self.num_covered, self.total_width = 0, 0, 0.0

    def add_block(self, block: Block) -> None:
        """Add a piece of an image, whose sigma is the half-width."""
        half_width = block.sigma.flatten()
        self.num_values += half_width.numel()
        self.num_covered += int((block.error <= half_width).sum())
        self.total_width += 2 * float(half_width.sum())

    def merge(self, other: Self) -> None:
        """Add all that another metric has seen."""
        self.num_values += other.num_values
        self.num_covered += other.num_covered
        self.total_width += other.total_width

    def compute(self) -> IntervalScore:
        """Return coverage and width over all values seen."""
        if not self.num_values:
            raise DataError("intervals over no images have no coverage; call update first")
        return IntervalScore(
            self.num_covered / self.num_values,
            self.total_width / self.num_values,
        )


class ReliabilityCurve(NamedTuple):
    """How often central normal intervals hold the target.

    Attributes:
        level: The promised share: 0.01, ..., 0.99.
        observed: The observed share within ``mean +- normal_factor(level) * sigma``.
    """

    level: NDArray[np.float64]
    observed: NDArray[np.float64]

    @property
    def calibration_error(self) -> float:
        """The mean over the levels of ``|observed - level|``; 0 is calibrated, 0.5 the worst."""
        return float(np.abs(self.observed - self.level).mean())


class Reliability(Metric):
    """The reliability curve of all values of all images together; the state is 100 counts.

    The smallest level whose interval holds the target is ``erf(|e| / (sigma sqrt 2))``, with sigma
    floored at `SIGMA_FLOOR`: counting it in 100 equal bins gives the observed share at every level,
    exactly.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all images."""
        self.counts = np.zeros(NUM_LEVELS, np.int64)

    def add_block(self, block: Block) -> None:
        """Add a piece of an image."""
        bins = (block.level * NUM_LEVELS).long().clamp_max(NUM_LEVELS - 1)
        self.counts += torch.bincount(bins, minlength=NUM_LEVELS).numpy()

    def merge(self, other: Self) -> None:
        """Add all that another metric has seen."""
        self.counts += other.counts

    def compute(self) -> ReliabilityCurve:
        """Return the curve of all values seen."""
        if not self.counts.any():
            raise DataError("a reliability curve needs at least one image; call update first")
        level = np.arange(1, NUM_LEVELS) / NUM_LEVELS
        return ReliabilityCurve(level, self.counts.cumsum()[:-1] / self.counts.sum())
