"""Every number that says how far a predicted sigma can be trusted, in one pass and fixed memory."""

import math
from typing import Protocol

import torch
from torch import Tensor

from musigma.functional.color import rgb_to_y
from musigma.functional.constants import SIGMA_FLOOR
from musigma.functional.scores import (
    crps_gaussian,
    log_likelihood,
    normal_factor,
    psnr_of,
    sigma_squared_error,
)
from musigma.types import ConfigError, DataError
from musigma.uncertainty.metrics.blocks import blocks, images
from musigma.uncertainty.metrics.intervals import Intervals, Reliability
from musigma.uncertainty.metrics.per_image_mean import ImageMean
from musigma.uncertainty.metrics.sparsification import Sparsification

MEAN_OVER_STD = math.sqrt(2 / math.pi)
"""Mean absolute value of a normal variable, in units of its std."""


class SigmaCalibration(Protocol):
    """What a metric asks of a calibration; `musigma.uncertainty.calibration` holds the real one."""

    @property
    def coverage(self) -> float:
        """The share of values its intervals aim at."""

    def std(self, sigma: Tensor) -> Tensor:
        """Return sigma as the std of a normal distribution."""

    def half_width(self, sigma: Tensor) -> Tensor:
        """Return the half-width of the interval round the mean."""


class UncertaintyMetrics:
    """All uncertainty metrics over a data set.

    ========================  ===========  ===================================================
    key                       over         meaning
    ========================  ===========  ===================================================
    ``pll``                   images       log-likelihood, sigma read as a std; nats
    ``sigma_psnr``            images       PSNR between sigma and the absolute error; dB
    ``sigma_psnr_y``          images       the same of the luma of both; asked for by `luma`
    ``crps``                  images       continuous ranked probability score; image units
    ``ause``                  all values   area under the sparsification error, of the MAE
    ``calibration_error``     all values   mean ``|observed - level|`` over levels 0.01 to 0.99
    ``coverage``              all values   share of targets inside the intervals
    ``width``                 all values   mean full width of the intervals; image units
    ========================  ===========  ===================================================

    "images" is the mean over images of the value of each, as PSNR is reported; "all values" pools
    pixels and channels. All but the intervals rate the raw sigma, as the paper does; with a
    calibration ``pll_calibrated``, ``sigma_psnr_calibrated`` and so on stand beside them. There
    sigma is read as the std of a normal distribution, whose mean absolute error is 0.798 of it.
    Intervals are the calibration's; without one, those of a normal distribution with std sigma.
    Sigma is floored at `SIGMA_FLOOR` except in ``sigma_psnr`` and ``ause``.

    Example:
        >>> import torch
        >>> generator = torch.Generator().manual_seed(0)
        >>> target = torch.rand(2, 3, 37, 31, generator=generator)
        >>> mean = target + 0.1 * torch.randn(target.shape, generator=generator)
        >>> metrics = UncertaintyMetrics(coverage=0.9)
        >>> metrics.update(mean, target, torch.full_like(mean, 0.1))
        >>> round(metrics.compute()["coverage"], 2)
        0.9
    """

    def __init__(
        self,
        calibration: SigmaCalibration | None = None,
        *,
        coverage: float,
        luma: bool = False,
    ) -> None:
        if calibration is not None and calibration.coverage != coverage:
            raise ConfigError(
                f"the calibration is for a coverage of {calibration.coverage}, asked was "
                f"{coverage}: ask for that coverage, or calibrate again for this one"
            )
        self.calibration = calibration
        self._factor = normal_factor(coverage)
        self._residuals = _Residuals(luma)
        self._calibrated_residuals = _Residuals(luma)
        self._sparsification = Sparsification()
        self._intervals = Intervals()
        self._raw = _Likelihoods()
        self._calibrated = _Likelihoods()

    def update(self, mean: Tensor, target: Tensor, sigma: Tensor) -> None:
        """Add the images of one batch, ``(N, C, H, W)`` in [0, 1]."""
        self._raw.update(mean, target, sigma)
        self._residuals.update(mean, target, sigma)
        self._sparsification.update(mean, target, sigma)
        if self.calibration is None:
            half_width = self._factor * sigma.clamp_min(SIGMA_FLOOR)
        else:
            half_width = self.calibration.half_width(sigma)
            std = self.calibration.std(sigma)
            self._calibrated.update(mean, target, std)
            self._calibrated_residuals.update(mean, target, MEAN_OVER_STD * std)
        self._intervals.update(mean, target, half_width)

    def compute(self) -> dict[str, float]:
        """Return the metrics of all images seen, by name."""
        results = self._raw.compute() | self._residuals.compute()
        if self.calibration is not None:
            calibrated = self._calibrated.compute() | self._calibrated_residuals.compute()
            results |= {f"{name}_calibrated": value for name, value in calibrated.items()}
        results["ause"] = self._sparsification.compute().ause
        return results | self._intervals.compute()._asdict()


class _Residuals:
    """How near sigma is to the absolute error it predicts."""

    def __init__(self, luma: bool) -> None:
        self.all = ImageMean(sigma_squared_error, finish=psnr_of)
        self.luma = ImageMean(sigma_squared_error, finish=psnr_of) if luma else None

    def update(self, mean: Tensor, target: Tensor, sigma: Tensor) -> None:
        self.all.update(mean, target, sigma)
        if self.luma is not None:
            black = rgb_to_y(torch.zeros_like(sigma))
            self.luma.update(rgb_to_y(mean), rgb_to_y(target), rgb_to_y(sigma) - black)

    def compute(self) -> dict[str, float]:
        found = {"sigma_psnr": self.all.compute()}
        return found if self.luma is None else found | {"sigma_psnr_y": self.luma.compute()}


class _Likelihoods:
    """The metrics that read sigma as the std of a normal distribution."""

    def __init__(self) -> None:
        self.pll = ImageMean(log_likelihood)
        self.crps = ImageMean(crps_gaussian)
        self.reliability = Reliability()

    def update(self, mean: Tensor, target: Tensor, sigma: Tensor) -> None:
        for metric in (self.pll, self.crps, self.reliability):
            metric.update(mean, target, sigma)

    def compute(self) -> dict[str, float]:
        return {
            "pll": self.pll.compute(),
            "crps": self.crps.compute(),
            "calibration_error": self.reliability.compute().calibration_error,
        }


class ConstantSigma:
    """The paper's baseline: one sigma for every pixel, the mean ``|target - mean|`` of a set.

    The mean is over all values of all images of the set, which the paper takes to be the training
    one. Rate it with ``sigma = torch.full_like(mean, baseline.compute())``.
    """

    def __init__(self) -> None:
        self.total = 0.0
        self.num_values = 0

    def update(self, mean: Tensor, target: Tensor) -> None:
        """Add the images of one batch."""
        for image_mean, image_target, _ in images(mean, target, target):
            error = (image_target - image_mean).abs()
            for *_, block_error in blocks(image_mean, image_target, error):
                self.total += float(block_error.sum())
                self.num_values += block_error.numel()

    def compute(self) -> float:
        """Return the constant."""
        if not self.num_values:
            raise DataError("a constant sigma needs at least one image; call update first")
        return self.total / self.num_values
