"""Metrics of joint error bars: intervals of quantities, energy score, spectrum of samples."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from musigma.types import ConfigError, ImageError
from musigma.uncertainty.joint import JointErrors
from musigma.uncertainty.metrics.histogram import LogHistogram
from musigma.uncertainty.quantities import Probes, probe_all, to_power

RULES = ("joint", "independent", "added")
"""How the standard deviation of a quantity is computed: by the joint model, or by a baseline.

``independent`` takes all errors as independent, ``added`` as all the same.
"""


class QuantityScores(NamedTuple):
    """Intervals of one kind of quantity over a data set.

    Attributes:
        coverage: Share of the quantities inside their interval, the mean over images.
        width: Mean width of the interval, in 8-bit levels.
        factor: The factor on the standard deviation that was used.
        coverage_error: Standard error of the coverage: how much it would differ on other images.
    """

    coverage: float
    width: float
    factor: float
    coverage_error: float


class QuantityIntervals:
    """Coverage and width of intervals of box means, profiles and differences, in fixed memory.

    Args:
        rule: One of `RULES`.
        factors: Factor on the standard deviation for each kind of quantity, or one for all. With
            `None` intervals are not counted, and `quantile` can fit factors.
        power: Of the standard deviation, as that of a `JointCalibration`; the factors are on it.
    """

    def __init__(
        self,
        rule: str = "joint",
        *,
        factors: float | dict[str, float] | None = None,
        power: float = 1.0,
    ) -> None:
        if rule not in RULES:
            raise ConfigError(f"there is no rule {rule!r}; known: {', '.join(RULES)}")
        self.rule, self.factors, self.power = rule, factors, power
        self.reset()

    def reset(self) -> None:
        """Forget all images."""
        self.num_images = 0
        self.sums: dict[str, NDArray[np.float64]] = {}
        self.ratios: dict[str, LogHistogram] = {}

    def update(self, residual: Tensor, errors: JointErrors) -> None:
        """Add a picture: ``target - mean``, ``(C, H, W)``, and what is known about it."""
        self.add(probe_all(residual, errors, seed=self.num_images))

    def add(self, measured: Iterable[tuple[str, Probes]]) -> None:
        """Add a picture by what `probe_all` measured in it."""
        rows: dict[str, list[tuple[float, float]]] = {}
        for name, probes in measured:
            error = probes.joint_errors if self.rule == "joint" else probes.errors
            stds = to_power(getattr(probes, f"{self.rule}_std"), self.power)
            ratio = error.abs() / stds
            histogram = LogHistogram(low=2.0**-6, high=2.0**10, num_bins=2**12)
            self.ratios.setdefault(name, histogram).add(ratio)
            factor = self._factor(name)
            inside = float((ratio <= factor).double().mean())
            rows.setdefault(name, []).append((inside, float(2 * 255 * factor * stds.mean())))
        for name, parts in rows.items():
            inside, width = np.mean(parts, axis=0)
            row = np.array([1.0, inside, inside**2, width])
            self.sums[name] = self.sums.get(name, np.zeros(4)) + row
        self.num_images += 1

    def merge(self, other: Self) -> None:
        """Add all that another metric of the same settings has seen."""
        self.num_images += other.num_images
        for name, row in other.sums.items():
            self.sums[name] = self.sums.get(name, np.zeros(4)) + row
            if name in self.ratios:
                self.ratios[name].merge(other.ratios[name])
            else:
                self.ratios[name] = other.ratios[name]

    def compute(self) -> dict[str, QuantityScores]:
        """Return coverage and width of each kind of quantity."""
        scores = {}
        for name, (count, inside, squares, width) in self.sums.items():
            coverage = inside / count
            variance = max(0.0, squares / count - coverage**2)
            error = math.sqrt(variance / (count - 1)) if count > 1 else math.nan
            scores[name] = QuantityScores(coverage, width / count, self._factor(name), error)
        return scores

    def quantile(self, share: float) -> dict[str, float]:
        """Return for each kind the factor that holds this share of all quantities seen."""
        factors: dict[str, float] = {}
        for name, histogram in self.ratios.items():
            part = histogram.counts[:-1].cumsum() / histogram.counts.sum()
            position = min(int((part < share).sum()), len(part) - 1)
            factors[name] = float(histogram.upper[position])
        return factors

    def _factor(self, name: str) -> float:
        if isinstance(self.factors, dict):
            return self.factors[name]
        return math.nan if self.factors is None else self.factors


def energy_score(samples: Tensor, target: Tensor, *, block: int = 8) -> float:
    r"""Return the energy score of samples in blocks of pixels; lower is better.

    .. math:: \frac1m \sum_i \|x_i - y\| - \frac{1}{2 m (m - 1)} \sum_{i, j} \|x_i - x_j\|

    of m samples, averaged over blocks and divided by the square root of a block's number of values,
    in the units of the picture. For blocks of one value it is the CRPS. The samples have to be
    independent of each other.

    Args:
        samples: ``(m, C, H, W)``, at least two.
        target: ``(C, H, W)``.
        block: Side of the blocks; what is left at the right and lower border is not counted.

    Example:
        >>> samples = torch.tensor([0.0, 1.0]).reshape(2, 1, 1, 1).expand(2, 1, 8, 8)
        >>> energy_score(samples, torch.zeros(1, 8, 8))
        0.0
    """
    if len(samples) < 2 or samples.shape[1:] != target.shape or min(target.shape[1:]) < block:
        raise ImageError(
            f"expected two samples or more of the shape {tuple(target.shape)}, with sides of at "
            f"least {block}, got {tuple(samples.shape)}"
        )
    drawn, truth = _blocks(samples, block), _blocks(target[None], block)
    count = len(drawn)
    to_truth = (drawn - truth).norm(dim=1).mean()
    between = sum(float((drawn - other).norm(dim=1).mean(1).sum()) for other in drawn)
    root = math.sqrt(drawn.shape[1])
    return (float(to_truth) - between / (2 * count * (count - 1))) / root


def _blocks(images: Tensor, side: int) -> Tensor:
    """Cut into blocks, ``(N, values of a block, number of blocks)``."""
    height, width = (length // side * side for length in images.shape[-2:])
    cut = images[..., :height, :width].double()
    return torch.nn.functional.unfold(cut, side, stride=side)


def radial_spectrum(images: Tensor, *, num_bands: int = 8) -> Tensor:
    """Return the mean power of the gray images in rings of frequency, ``(num_bands,)``.

    The rings are equally wide and reach from zero to half a cycle per pixel. The mean of each image
    is taken out, and its borders are faded out, so that they do not look like detail.

    Args:
        images: ``(N, C, H, W)``.
        num_bands: Number of rings.
    """
    grey = images.double().mean(1)
    height, width = grey.shape[-2:]
    fade = [
        torch.hann_window(side, periodic=False, dtype=torch.float64) for side in (height, width)
    ]
    faded = (grey - grey.mean((1, 2), keepdim=True)) * fade[0][:, None] * fade[1]
    power = torch.fft.fft2(faded).abs().square().mean(0) / (height * width)
    frequency = torch.hypot(torch.fft.fftfreq(height)[:, None], torch.fft.fftfreq(width)[None])
    ring = (frequency * 2 * num_bands).long().flatten()
    kept = ring < num_bands
    sums = torch.zeros(num_bands, dtype=torch.float64)
    counts = sums.clone()
    sums.index_add_(0, ring[kept], power.flatten()[kept])
    counts.index_add_(0, ring[kept], torch.ones_like(power.flatten()[kept]))
    return sums / counts.clamp_min(1)


def in_decibels(spectrum: Tensor, reference: Tensor) -> list[float]:
    """Return how much more power a spectrum has than another, in dB.

    Example:
        >>> in_decibels(torch.tensor([10.0, 1.0]), torch.tensor([1.0, 1.0]))
        [10.0, 0.0]
    """
    values: Any = (10 * (spectrum / reference.clamp_min(1e-12)).clamp_min(1e-12).log10()).tolist()
    return [round(value, 6) for value in values]
