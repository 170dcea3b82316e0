"""The noise of two noisy pictures of the same scene, from their difference."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from musigma.functional.poisson_gaussian import PoissonGaussian, fit_law
from musigma.types import DataError

Pair = tuple[Tensor, Tensor]
"""Two pictures of a scene, ``(1, C, H, W)`` in ``[0, 1]``."""

NUM_BINS = 32
LEAST_VALUES = 1000
"""Fewest values of a bin, whose variance is then known to 5 %."""

CLIPPED_WITHIN = 2.5
"""Distance from black and white, in standard deviations of the noise, within which values clip."""

MAX_SHIFT = 0.2
"""Pictures that are shifted by more pixels differ by more than noise."""

CERTAIN = 4.0
"""Standard errors beyond which a shift or an offset is no chance."""

MAX_OFFSET = 1.0 / 255
"""Pictures that differ more in brightness are not of the same exposure."""


@dataclass(frozen=True)
class MeasuredNoise:
    """Noise whose variance depends on the signal, for images in ``[0, 1]``.

    In a file the noise is less near black and white than its law says, because values are cut off
    there; so it is also known as it was measured, by signal.

    Attributes:
        law: How the variance grows with the signal where nothing is cut off; its black is 0.
        signals: Where the variance was measured, increasing; empty where it was not.
        variances: What was measured there.

    Example:
        >>> noise = MeasuredNoise(PoissonGaussian(gain=127.5, std=25.5, black=0.0))
        >>> noise.variance(torch.tensor([-1.0, 0.0, 0.5]))
        tensor([0.0100, 0.0100, 0.2600])
    """

    law: PoissonGaussian
    signals: tuple[float, ...] = ()
    variances: tuple[float, ...] = ()

    @property
    def std(self) -> float:
        """Standard deviation of the part that is the same everywhere, on the scale of images."""
        return self.law.std / 255

    @property
    def gain(self) -> float:
        """Variance over signal, of the part that grows with the light, on the scale of images."""
        return self.law.gain / 255

    def variance(self, signal: Tensor) -> Tensor:
        """Return the variance of the noise at each value, by straight lines between those measured.

        Below the first and above the last, and where nothing was measured, values below 0 count as
        0 and those above 1 as 1.
        """
        signal = signal.clamp(0, 1)
        if not self.signals:
            return self.law.variance(signal)
        values = np.interp(signal.double().cpu().numpy(), self.signals, self.variances)
        return torch.from_numpy(values).to(signal)

    def times(self, ratio: float) -> "MeasuredNoise":
        """Return noise of another size; `ratio` is that of the variances."""
        law = self.law._replace(gain=self.law.gain * ratio, std=self.law.std * ratio**0.5)
        return replace(self, law=law, variances=tuple(ratio * value for value in self.variances))

    def as_json(self) -> dict[str, Any]:
        """Return plain values, on the scale of images."""
        lists = {"signals": list(self.signals), "variances": list(self.variances)}
        return {"std": self.std, "gain": self.gain} | lists

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "MeasuredNoise":
        """Return what `as_json` described."""
        law = PoissonGaussian(gain=255 * values["gain"], std=255 * values["std"], black=0.0)
        return cls(law, tuple(values["signals"]), tuple(values["variances"]))


class Difference(NamedTuple):
    """In what else than noise two pictures differ.

    Attributes:
        shift: By how many pixels one is shifted against the other.
        offset: By how much one is brighter, for images in ``[0, 1]``.
        shift_error: Standard error of the shift, which the noise leaves.
        offset_error: The same of the offset.
    """

    shift: float
    offset: float
    shift_error: float
    offset_error: float

    @property
    def is_noise_alone(self) -> bool:
        """Whether the pictures can be taken for two exposures of the same scene."""
        is_shifted = self.shift > max(MAX_SHIFT, CERTAIN * self.shift_error)
        is_brighter = abs(self.offset) > max(MAX_OFFSET, CERTAIN * self.offset_error)
        return not (is_shifted or is_brighter)


def fit_noise(pairs: Iterable[Pair]) -> MeasuredNoise:
    """Estimate the noise of pairs of noisy pictures, both of which have the same noise.

    The variance of their difference is twice that of the noise. It is collected by the brightness
    of the smoothed mean of the two, which tells nothing of the sign or size of the difference. The
    line of the sensor is fitted to those values that are not cut off.

    Raises:
        DataError: The pictures of every pair are equal: there is no noise.
    """
    counts, signal, variance = torch.zeros(3, NUM_BINS, dtype=torch.float64)
    for first, second in pairs:
        level = _smoothed((first + second) / 2).flatten().double()
        noise = ((first - second).square() / 2).flatten().double()
        bins = (level * NUM_BINS).long().clamp(0, NUM_BINS - 1)
        counts += torch.bincount(bins, minlength=NUM_BINS)
        signal += torch.bincount(bins, weights=level, minlength=NUM_BINS)
        variance += torch.bincount(bins, weights=noise, minlength=NUM_BINS)
    if not variance.sum():
        raise DataError(
            "the two pictures of every pair are equal, so there is no noise between them; "
            "--noisy-pairs needs two exposures of each scene"
        )
    used = counts >= counts.max().clamp(max=LEAST_VALUES)
    counts, signals, variances = (
        counts[used],
        signal[used] / counts[used],
        variance[used] / counts[used],
    )
    margins = CLIPPED_WITHIN * variances.sqrt()
    whole = (signals > margins) & (signals < 1 - margins)
    chosen = whole if counts[whole].sum() > 0.1 * counts.sum() else torch.ones_like(whole)
    # The error of a variance is proportional to it, and falls with the root of their number.
    weights = counts / variances.clamp(min=1e-12) ** 2
    law = fit_law(signals[chosen], variances[chosen], weights[chosen])
    return MeasuredNoise(law, tuple(signals.tolist()), tuple(variances.tolist()))


def measure_difference(pair: Pair) -> Difference:
    """Measure shift and brightness of two pictures against each other.

    To first order a shift adds the slope of the scene, times the shift, to their difference, which
    a least-squares fit finds however strong the noise is.
    """
    first, second = (image.mean(1, keepdim=True).double() for image in pair)
    scene = _smoothed((first + second) / 2)
    across = ((scene[..., 1:-1, 2:] - scene[..., 1:-1, :-2]) / 2).flatten()
    down = ((scene[..., 2:, 1:-1] - scene[..., :-2, 1:-1]) / 2).flatten()
    columns = torch.stack([across, down, torch.ones_like(across)], dim=1)
    difference = (first - second)[..., 1:-1, 1:-1].flatten()
    # Least squares by the normal equations; the small term is for a scene without any slope.
    normal = columns.T @ columns + 1e-9 * len(columns) * torch.eye(3, dtype=torch.float64)
    fitted = torch.linalg.solve(normal, columns.T @ difference)
    rest = (difference - columns @ fitted).square().mean()
    errors = (rest * torch.linalg.inv(normal).diagonal()).sqrt().tolist()
    shift_x, shift_y, offset = fitted.tolist()
    return Difference(math.hypot(shift_x, shift_y), offset, math.hypot(*errors[:2]), errors[2])


def _smoothed(image: Tensor) -> Tensor:
    return functional.avg_pool2d(
        functional.pad(image, (2, 2, 2, 2), mode="replicate"), kernel_size=5, stride=1
    )
