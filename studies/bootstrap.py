"""Confidence interval of a mean difference, by resampling images and runs."""

from typing import NamedTuple

import torch
from torch import Generator, Tensor

from musigma.functional.scores import check_share
from musigma.types import DataError


class Interval(NamedTuple):
    """A mean and the ends of its interval."""

    mean: float
    low: float
    high: float


def paired_bootstrap(
    ours: Tensor,
    theirs: Tensor,
    *,
    coverage: float = 0.95,
    num_resamples: int = 10_000,
    generator: Generator,
) -> Interval:
    """Mean of ``ours - theirs`` with the percentile interval of the bootstrap.

    Values are paired: the same image, and in several runs the same seed. Each resample draws as
    many images as there are, with replacement, and independently as many runs; so the interval
    speaks of other images *and* of other seeds.

    Args:
        ours: One value per image, ``(images,)``, or per run and image, ``(runs, images)``.
        theirs: The same shape.
        coverage: Share of the resampled means inside the interval.
        num_resamples: Number of resamples.
        generator: Source of randomness.

    Example:
        >>> ours, theirs = torch.tensor([33.2, 31.1, 35.6]), torch.tensor([33.1, 31.0, 35.5])
        >>> mean, low, high = paired_bootstrap(ours, theirs, generator=torch.Generator())
        >>> f"{mean:.2f} from {low:.2f} to {high:.2f}"
        '0.10 from 0.10 to 0.10'
    """
    check_share("coverage", coverage)
    if ours.shape != theirs.shape or ours.ndim not in (1, 2) or not ours.numel():
        shapes = f"{tuple(ours.shape)} and {tuple(theirs.shape)}"
        raise DataError(f"expected two equal shapes (images,) or (runs, images), got {shapes}")
    difference = (ours.double() - theirs.double()).reshape(-1, ours.shape[-1])
    if not bool(difference.isfinite().all()):
        raise DataError("a difference is not finite; leave out images that are restored exactly")
    # The mean over drawn runs and images is bilinear in how often each of them was drawn.
    runs, images = (
        _draw_shares(num_resamples, size, generator=generator) for size in difference.shape
    )
    means = ((runs @ difference) * images).sum(1)
    tail = (1 - coverage) / 2
    low, high = torch.quantile(means, torch.tensor([tail, 1 - tail], dtype=means.dtype)).tolist()
    return Interval(float(difference.mean()), low, high)


def _draw_shares(num_resamples: int, size: int, *, generator: Generator) -> Tensor:
    """Return what share each of `size` things has in each resample, ``(resamples, size)``."""
    drawn = torch.randint(size, (num_resamples, size), generator=generator)
    ones = torch.ones_like(drawn, dtype=torch.float64)
    return torch.zeros_like(ones).scatter_add_(1, drawn, ones) / size
