"""Error bars from targets that are themselves noisy: the noise is taken off the residuals.

The residual of a restored picture to a second noisy picture of the scene is the error to the clean
scene minus the noise of that picture. The noise has mean zero and is independent of the first
picture, hence of the error, so that the variances add: ``E r^2 = E e^2 + v``. The difference of the
two noisy pictures gives ``v``.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from musigma.datasets.catalog import Dataset, Item, describe_data
from musigma.evaluation.protocol import Protocol
from musigma.evaluation.restored_pairs import Progress, read_pair, restored_pairs
from musigma.functional.noisy_pairs import MeasuredNoise
from musigma.functional.scores import normal_factor
from musigma.model import Model
from musigma.uncertainty.calibration import NOISY_PAIRS, Calibration
from musigma.uncertainty.fitting import HeldOut, fit
from musigma.uncertainty.methods import DEFAULT_COVERAGE

COVERAGES = (0.8, 0.9, 0.95)
"""Coverages of the intervals, which are those of a normal distribution.

At 0.9 the intervals of a normal and of a Laplace distribution of one variance hold the same within
0.3 %; at 0.5 and 0.99 they differ much, and only a clean truth could tell which one is right.
"""


@dataclass(frozen=True)
class NoisyCalibration:
    """A calibration for the clean scene, fitted to noisy targets.

    Attributes:
        calibration: Intervals for the clean scene.
        noise: The noise of a picture, as the calibration pictures have it.
    """

    calibration: Calibration
    noise: MeasuredNoise

    def noisy_half_width(self, mean: Tensor, sigma: Tensor) -> Tensor:
        """Return the half-width of the interval of a new noisy picture around the mean."""
        error_variance = self.calibration.std(sigma).square()
        noisy_std = (error_variance + self.noise.variance(mean)).sqrt()
        return normal_factor(DEFAULT_COVERAGE) * noisy_std


def calibrate_on_noisy(
    model: Model,
    dataset: Dataset,
    protocol: Protocol,
    noise: MeasuredNoise,
    *,
    progress: Progress | None = None,
) -> NoisyCalibration:
    """Fit how the error to the clean scene grows with sigma, from noisy targets.

    Args:
        model: A model with a sigma branch.
        dataset: Pairs of noisy pictures that the model was not trained on.
        protocol: Of pairs.
        noise: How the noise grows with the signal; its size is fitted to these pictures anew.
        progress: Called before each picture.
    """
    residuals, of_noise = HeldOut(), HeldOut()
    measured = modeled = 0.0
    for item, (mean, sigma), target in restored_pairs(
        model.network, dataset, protocol, progress=progress
    ):
        assert sigma is not None
        variance = noise.variance(mean)
        residuals.update(mean, target, sigma, image=item.name)
        # As a "residual" the deviation of the noise gives, by sigma, the sums of its variance.
        of_noise.update(torch.zeros_like(mean), variance.sqrt(), sigma, image=item.name)
        measured += noise_variance(item, protocol) * mean.numel()
        modeled += float(variance.double().sum())
    ratio = measured / modeled
    for group, histogram in residuals.by_sigma.items():
        histogram.sums[1] -= ratio * of_noise.by_sigma[group].sums[1]
    calibration = fit(residuals, "isotonic", coverage=DEFAULT_COVERAGE, other_coverages=COVERAGES)
    fitted = noise.times(ratio)
    conditions = protocol.as_json() | {"degradation": NOISY_PAIRS, "target_noise": fitted.as_json()}
    return NoisyCalibration(
        replace(calibration, protocol=conditions, data=describe_data(dataset)), fitted
    )


def noise_variance(item: Item, protocol: Protocol) -> float:
    """Return the variance of the noise of a pair, half that of their difference."""
    degraded, target = read_pair(item, protocol)
    return float((degraded - target).double().square().mean() / 2)


def measure_on_noisy(
    model: Model,
    dataset: Dataset,
    protocol: Protocol,
    calibrated: NoisyCalibration | None = None,
    *,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure a model on pairs of noisy pictures.

    Args:
        model: A model with a sigma branch.
        dataset: Pairs that the model was neither trained nor calibrated on.
        protocol: Of pairs.
        calibrated: With it, the share of the second noisy pictures inside their intervals is
            measured as well.
        progress: Called before each picture.

    Returns:
        ``psnr_noisy``, to the second noisy picture; ``psnr``, to the clean scene, estimated, unless
        the noise hides the error; ``coverage_noisy`` and ``width``; and ``pictures``, the numbers
        of each picture.
    """
    pictures: dict[str, dict[str, float]] = {}
    for item, (mean, sigma), target in restored_pairs(
        model.network, dataset, protocol, progress=progress
    ):
        assert sigma is not None
        squared = float((mean.clamp(0, 1) - target).double().square().mean())
        values = {"mse_noisy": squared, "noise_variance": noise_variance(item, protocol)}
        if calibrated is not None:
            widened = calibrated.noisy_half_width(mean, sigma)
            inside = ((mean - target).abs() <= widened).double().mean()
            half_width = calibrated.calibration.half_width(sigma)
            values |= {"coverage_noisy": float(inside), "width": 2 * float(half_width.mean())}
        pictures[item.name] = values
    names = next(iter(pictures.values()))
    means = {name: float(np.mean([own[name] for own in pictures.values()])) for name in names}
    clean = means["mse_noisy"] - means["noise_variance"]
    summary: dict[str, Any] = {
        "psnr_noisy": _psnr(means["mse_noisy"]),
        "noise_std": 255 * means["noise_variance"] ** 0.5,
    }
    if clean > 0:  # otherwise the noise hides the error
        summary["psnr"] = _psnr(clean)
    summary |= {name: means[name] for name in ("coverage_noisy", "width") if name in means}
    return summary | {"pictures": pictures}


def _psnr(squared_error: float) -> float:
    return float(-10 * np.log10(squared_error))
