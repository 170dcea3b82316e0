"""Counts and sums by a positive key, in logarithmic bins: order statistics in fixed memory."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class LogHistogram:
    """How many keys, and the sums of which values, fall into each of fixed logarithmic bins.

    Bin j holds the keys in ``(upper[j - 1], upper[j]]``; bin 0 all those up to `low`, and an
    additional last bin all those above `high`. Keys in the same bin cannot be told apart: they
    differ by less than ``(high / low) ** (1 / (num_bins - 1)) - 1`` of their value.

    Attributes:
        counts: Keys in each bin, shape ``(num_bins + 1,)``.
        sums: Sums of each value by bin, shape ``(num_sums, num_bins + 1)``.

    Example:
        >>> histogram = LogHistogram(low=1, high=4, num_bins=3)
        >>> histogram.add(torch.tensor([0.0, 1.0, 1.5, 4.0, 9.0]))
        >>> histogram.upper.tolist(), histogram.counts.tolist()
        ([1.0, 2.0, 4.0], [2, 1, 1, 1])
    """

    def __init__(self, *, low: float, high: float, num_bins: int, num_sums: int = 0) -> None:
        self.low, self.high = low, high
        self.counts: NDArray[np.int64] = np.zeros(num_bins + 1, np.int64)
        self.sums: NDArray[np.float64] = np.zeros((num_sums, num_bins + 1))

    @property
    def upper(self) -> NDArray[np.float64]:
        """The upper edges of all bins but the last, shape ``(num_bins,)``."""
        return np.geomspace(self.low, self.high, len(self.counts) - 1)

    def merge(self, other: "LogHistogram") -> None:
        """Add the counts and sums of a histogram with the same bins."""
        self.counts += other.counts
        self.sums += other.sums

    def add(self, keys: Tensor, *values: Tensor) -> None:
        """Add flat `keys` and, for each row of `sums`, as many values."""
        last = len(self.counts) - 1
        bins_per_octave = (last - 1) / math.log2(self.high / self.low)
        position = (keys.log2() - math.log2(self.low)) * bins_per_octave
        bins = position.ceil().clamp(0, last).long()
        self.counts += torch.bincount(bins, minlength=last + 1).numpy()
        for row, value in zip(self.sums, values, strict=True):
            row += torch.bincount(bins, weights=value, minlength=last + 1).numpy()
