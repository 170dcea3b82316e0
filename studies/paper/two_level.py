"""Mean differences with intervals that count runs and images, and Holm's correction.

A study compares two objectives by the difference ``d[s, i]`` of image ``i``, restored by the two
runs of seed ``s``. Both vary: another seed gives other weights, and another image another gain. The
model has two crossed levels, ``d[s, i] = gain + run[s] + image[i] + rest[s, i]``. The variance of
the mean is the sum of two estimates. One comes from the means of the runs; with three seeds it has
two degrees of freedom. The other comes from the means of the images.

The quantile lies between the two t quantiles. Cochran and Cox weight them by the shares of the two
variances, which makes intervals of three seeds a little too wide (97 % where 95 % are asked for).
The share to the power of 1.5 was best on a grid of normal variances: 94.4 to 96.0 %.
``studies/paper/interval_coverage.py`` simulates how often these intervals hold the truth with the
variances of the records.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from torch import Tensor

from musigma.functional.scores import check_share
from musigma.types import DataError

SHARE_POWER = 1.5
"""Weights the quantile of the runs by the share of the variance that they have."""

LEAST_P = 1e-12
"""Smaller p-values are given as this one."""


class Interval(NamedTuple):
    """A mean and the ends of its interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class MeanDifference:
    """A mean over runs and images, and where its variance comes from.

    Attributes:
        values: The differences, ``(runs, images)``.
        mean: Over all runs and images.
        run_variance: Variance of the mean due to the runs, with the rest.
        image_variance: Variance of the mean due to the images, without the rest.
    """

    values: np.ndarray
    mean: float
    run_variance: float
    image_variance: float

    @property
    def variance(self) -> float:
        """Variance of the mean."""
        return self.run_variance + self.image_variance

    def quantile(self, coverage: float) -> float:
        """Return how many standard errors the mean may be off."""
        variances = np.array(self.run_variance), np.array(self.image_variance)
        return float(quantile_of_the_mean(coverage, self.values.shape, *variances))

    def interval(self, coverage: float = 0.95) -> Interval:
        """Return the interval that holds the true mean with the given probability."""
        check_share("coverage", coverage)
        half = self.quantile(coverage) * math.sqrt(self.variance) if self.variance else 0.0
        return Interval(self.mean, self.mean - half, self.mean + half)

    @property
    def p_value(self) -> float:
        """One minus the coverage of the interval that just reaches zero."""
        if not self.variance:
            return 1.0 if self.mean == 0 else LEAST_P
        distance = abs(self.mean) / math.sqrt(self.variance)
        low, high = math.log(LEAST_P), 0.0
        for _ in range(40):
            middle = (low + high) / 2
            if self.quantile(1 - math.exp(middle)) > distance:
                low = middle
            else:
                high = middle
        return math.exp(high)


def mean_difference(ours: Tensor, theirs: Tensor) -> MeanDifference:
    """Compare two tables of values, ``(runs, images)``, paired by run and image.

    Args:
        ours: One value per run and image.
        theirs: The same shape.

    Raises:
        DataError: For fewer than two runs or images, from which no variance can be had.

    Example:
        >>> import torch
        >>> theirs = torch.tensor([[33.1, 31.0, 35.5], [33.0, 31.2, 35.4]])
        >>> ours = theirs + torch.tensor([[0.1, 0.2, 0.3], [0.2, 0.3, 0.4]])
        >>> mean, low, high = mean_difference(ours, theirs).interval()
        >>> f"{mean:.2f} from {low:.2f} to {high:.2f}"
        '0.25 from -0.26 to 0.76'
    """
    if ours.shape != theirs.shape or ours.ndim != 2 or min(ours.shape, default=0) < 2:
        shapes = f"{tuple(ours.shape)} and {tuple(theirs.shape)}"
        raise DataError(
            f"expected two equal shapes (runs, images) with two of each or more, got {shapes}"
        )
    difference = ours.double() - theirs.double()
    if not bool(difference.isfinite().all()):
        raise DataError("a difference is not finite; leave out images that are restored exactly")
    values = difference.numpy()
    return MeanDifference(values, *map(float, variances_of_the_mean(values)))


def variances_of_the_mean(
    difference: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean of ``(..., runs, images)`` and its variances due to runs and images.

    The means of the images vary by what the images do and by a share of the rest. The means of the
    runs contain the rest as well, so it is taken out of the images' variance.
    """
    runs, images = difference.shape[-2:]
    by_run, by_image = difference.mean(-1), difference.mean(-2)
    mean = by_run.mean(-1)
    rest = difference - by_run[..., None] - by_image[..., None, :] + mean[..., None, None]
    rest_variance = (rest**2).sum((-1, -2)) / ((runs - 1) * (images - 1)) / (runs * images)
    image_variance = (by_image.var(-1, ddof=1) / images - rest_variance).clip(0)
    return mean, by_run.var(-1, ddof=1) / runs, image_variance


def quantile_of_the_mean(
    coverage: float, sizes: Sequence[int], run_variance: np.ndarray, image_variance: np.ndarray
) -> np.ndarray:
    """Return by how many standard errors a mean over ``(runs, images)`` may be off."""
    of_runs, of_images = (t_quantile(coverage, size - 1) for size in sizes)
    share = (run_variance / (run_variance + image_variance)) ** SHARE_POWER
    return share * of_runs + (1 - share) * of_images


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for their number, by Holm's method; it holds for dependent comparisons.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected


@cache
def t_quantile(coverage: float, freedom: int) -> float:
    """Return the `t` for which Student's distribution has the share `coverage` in ``[-t, t]``.

    Example:
        >>> round(t_quantile(0.95, 2), 3), round(t_quantile(0.95, 218), 3)
        (4.303, 1.971)
    """
    # By angles the search has two ends: t = sqrt(freedom) tan(angle).
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        if _t_share(middle, freedom) < coverage:
            low = middle
        else:
            high = middle
    return math.sqrt(freedom) * math.tan((low + high) / 2)


def _t_share(angle: float, freedom: int) -> float:
    """Return the share of Student's distribution in ``[-t, t]`` (Abramowitz, Stegun 26.7.3)."""
    odd = freedom % 2
    steps = np.arange(1 + odd, freedom - 2 + 1, 2)
    factors = (steps / (steps + 1)) * math.cos(angle) ** 2
    total = 1 + float(np.cumprod(factors).sum())
    if not odd:
        return math.sin(angle) * total
    rest = math.sin(angle) * math.cos(angle) * total if freedom > 1 else 0.0
    return 2 / math.pi * (angle + rest)
