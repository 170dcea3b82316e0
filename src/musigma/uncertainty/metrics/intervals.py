"""Do intervals hold what they say? Coverage, width, and calibration error at all levels."""

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from musigma.functional.constants import SIGMA_FLOOR
from musigma.types import DataError
from musigma.uncertainty.metrics.blocks import blocks, images

NUM_LEVELS = 100


class IntervalScore(NamedTuple):
    """What intervals ``mean +- half_width`` did, over all values of all images together.

    Attributes:
        coverage: The share of targets inside.
        width: The mean full width, ``2 half_width``, not clipped to [0, 1].
    """

    coverage: float
    width: float


class Intervals:
    """Coverage and mean width of intervals; the state is three numbers."""

    def __init__(self) -> None:
        self.num_values = 0
        self.num_covered = 0
        self.total_width = 0.0

    def update(self, mean: Tensor, target: Tensor, half_width: Tensor) -> None:
        """Add the images of one batch."""
        for image in images(mean, target, half_width):
            for block_mean, block_target, half in blocks(*image):
                self.num_values += half.numel()
                self.num_covered += int(((block_target - block_mean).abs() <= half).sum())
                self.total_width += 2 * float(half.sum())

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
        observed: The share found within ``mean +- normal_factor(level) * sigma``.
    """

    level: NDArray[np.float64]
    observed: NDArray[np.float64]

    @property
    def calibration_error(self) -> float:
        """The mean over the levels of ``|observed - level|``; 0 is calibrated, 0.5 the worst."""
        return float(np.abs(self.observed - self.level).mean())


class Reliability:
    """The reliability curve of all values of all images together; the state is 100 counts.

    The smallest level whose interval holds the target is ``erf(|e| / (sigma sqrt 2))``, with sigma
    floored at `SIGMA_FLOOR`: counting it in 100 equal bins gives the observed share at every level,
    exactly.
    """

    def __init__(self) -> None:
        self.counts = np.zeros(NUM_LEVELS, np.int64)

    def update(self, mean: Tensor, target: Tensor, sigma: Tensor) -> None:
        """Add the images of one batch."""
        for image in images(mean, target, sigma):
            for block_mean, block_target, block_sigma in blocks(*image):
                ratio = (block_target - block_mean).abs() / block_sigma.clamp_min(SIGMA_FLOOR)
                level = torch.erf(ratio / math.sqrt(2))
                bins = (level * NUM_LEVELS).long().clamp_max(NUM_LEVELS - 1)
                self.counts += torch.bincount(bins, minlength=NUM_LEVELS).numpy()

    def compute(self) -> ReliabilityCurve:
        """Return the curve of all values seen."""
        if not self.counts.any():
            raise DataError("a reliability curve needs at least one image; call update first")
        level = np.arange(1, NUM_LEVELS) / NUM_LEVELS
        return ReliabilityCurve(level, self.counts.cumsum()[:-1] / self.counts.sum())
