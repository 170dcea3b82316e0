"""The noise of two noisy pictures of the same scene, from their difference."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from musigma.degradations.pairs import Pair
from musigma.types import DataError

Floats = NDArray[np.float64]

NUM_BINS = 32
LEAST_VALUES = 1000
"""So many values tell the variance of their noise to 5 %."""

CLIPPED_WITHIN = 2.5
"""Nearer to black or white than so many deviations of the noise, some values are cut off."""

MAX_SHIFT = 0.2
"""Pictures that are shifted by more pixels differ by more than noise."""

CERTAIN = 4.0
"""Standard errors beyond which a shift or an offset is no chance."""

MAX_OFFSET = 1.0 / 255
"""Pictures that differ more in brightness are not of the same exposure."""


@dataclass(frozen=True)
class NoiseModel:
    """Noise whose variance depends on the signal, for images in ``[0, 1]``.

    A sensor has noise of the variance ``std^2 + gain * signal``. In a file it is less near black
    and white, where values are cut off; so it is also known as it was measured, by signal.

    Attributes:
        std: Standard deviation of the part that is the same everywhere.
        gain: Variance over signal, of the part that grows with the light.
        signals: Where the variance was measured, increasing; empty where it was not.
        variances: What was measured there.

    Example:
        >>> NoiseModel(std=0.1, gain=0.5).variance(torch.tensor([-1.0, 0.0, 0.5]))
        tensor([0.0100, 0.0100, 0.2600])
    """

    std: float
    gain: float
    signals: tuple[float, ...] = ()
    variances: tuple[float, ...] = ()

    def variance(self, signal: Tensor) -> Tensor:
        """Return the variance of the noise at each value, by straight lines between those measured.

        Below the first and above the last, and where nothing was measured, values below 0 count as
        0 and those above 1 as 1.
        """
        signal = signal.clamp(0, 1)
        if not self.signals:
            return self.std**2 + self.gain * signal
        values = np.interp(signal.double().cpu().numpy(), self.signals, self.variances)
        return torch.from_numpy(values).to(signal)

    def times(self, ratio: float) -> "NoiseModel":
        """Return noise of another size; `ratio` is that of the variances."""
        variances = tuple(ratio * variance for variance in self.variances)
        return NoiseModel(self.std * ratio**0.5, self.gain * ratio, self.signals, variances)

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        lists = {"signals": list(self.signals), "variances": list(self.variances)}
        return asdict(self) | lists

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "NoiseModel":
        """Return what `as_json` described."""
        signals, variances = (tuple(values[key]) for key in ("signals", "variances"))
        return cls(values["std"], values["gain"], signals, variances)


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


def fit_noise(pairs: Iterable[Pair]) -> NoiseModel:
    """Estimate the noise of pairs of noisy pictures, both of which have the same noise.

    The variance of their difference is twice that of the noise. It is collected by the brightness
    of the smoothed mean of the two, which tells nothing of the sign or size of the difference. The
    line of the sensor is fitted to those values that are not cut off.

    Raises:
        DataError: The pictures of every pair are equal: there is no noise.
    """
    counts, signal, variance = (np.zeros(NUM_BINS) for _ in range(3))
    for first, second in pairs:
        level = _smoothed((first + second) / 2).flatten().double()
        noise = ((first - second).square() / 2).flatten().double()
        bins = (level * NUM_BINS).long().clamp(0, NUM_BINS - 1)
        counts += torch.bincount(bins, minlength=NUM_BINS).numpy()
        signal += torch.bincount(bins, weights=level, minlength=NUM_BINS).numpy()
        variance += torch.bincount(bins, weights=noise, minlength=NUM_BINS).numpy()
    if not variance.sum():
        raise DataError(
            "the two pictures of every pair are equal, so there is no noise between them; "
            "--noisy-pairs needs two exposures of each scene"
        )
    used = counts >= min(LEAST_VALUES, counts.max())
    counts, levels, variances = (
        counts[used],
        signal[used] / counts[used],
        variance[used] / counts[used],
    )
    margins = CLIPPED_WITHIN * np.sqrt(variances)
    whole = (levels > margins) & (levels < 1 - margins)
    chosen = whole if counts[whole].sum() > 0.1 * counts.sum() else np.ones_like(whole)
    line = _fit_line(levels[chosen], variances[chosen], counts[chosen])
    return replace(line, signals=tuple(levels.tolist()), variances=tuple(variances.tolist()))


def _fit_line(level: Floats, noise: Floats, counts: Floats) -> NoiseModel:
    """Fit a line without negative parts; a bin counts by the certainty of its variance."""
    weights = counts / noise.clip(min=1e-12) ** 2
    mean = np.average(noise, weights=weights)
    centred = level - np.average(level, weights=weights)
    spread = np.sum(weights * centred**2)
    gain = float(np.sum(weights * centred * noise) / spread) if spread > 0 else 0.0
    offset = float(mean - gain * np.average(level, weights=weights))
    if gain <= 0:
        return NoiseModel(std=float(mean) ** 0.5, gain=0.0)
    if offset < 0:
        return NoiseModel(std=0.0, gain=float(np.average(noise / level, weights=weights)))
    return NoiseModel(std=offset**0.5, gain=gain)


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
