"""All metrics of a predicted sigma, in a single pass over each image and in fixed memory."""

import math
from collections.abc import Mapping
from typing import Self

import torch
from torch import Tensor

from musigma.functional.constants import SIGMA_FLOOR
from musigma.functional.scores import normal_factor
from musigma.types import ConfigError, DataError
from musigma.uncertainty.calibration import Calibration
from musigma.uncertainty.metrics.base import Metric
from musigma.uncertainty.metrics.blocks import Block, blocks, images
from musigma.uncertainty.metrics.intervals import Intervals, Reliability
from musigma.uncertainty.metrics.per_image_mean import crps_metric, pll_metric, sigma_psnr_metric
from musigma.uncertainty.metrics.sparsification import Sparsification

MEAN_OVER_STD = math.sqrt(2 / math.pi)
"""Mean absolute value of a normal variable, in units of its standard deviation."""

HIGHER_IS_BETTER: dict[str, bool | None] = {
    "pll": True,
    "sigma_psnr": True,
    "sigma_psnr_y": True,
    "crps": False,
    "ause": False,
    "calibration_error": False,
    "coverage": None,
    "width": False,
}
"""In which direction each number improves; coverage should be what was asked for."""


class UncertaintyMetrics(Metric):
    """All uncertainty metrics over a data set.

    ========================  ===========  ===================================================
    key                       over         meaning
    ========================  ===========  ===================================================
    ``pll``                   images       log-likelihood; nats
    ``sigma_psnr``            images       PSNR between sigma and the absolute error; dB
    ``sigma_psnr_y``          images       the same for the luma of both; only with `luma`
    ``crps``                  images       continuous ranked probability score; image units
    ``ause``                  all values   area under the sparsification error, of the MAE
    ``calibration_error``     all values   mean ``|observed - level|`` over levels 0.01 to 0.99
    ``coverage``              all values   share of targets inside the intervals
    ``width``                 all values   mean full width of the intervals; image units
    ``coverage_95`` ...       all values   coverage at each other level of the calibration
    ========================  ===========  ===================================================

    "images" is the mean over images of the value of each, as PSNR is reported; "all values" pools
    pixels and channels. All but the intervals rate sigma as the network predicts it, as the paper
    does; likelihood, CRPS and calibration error read it as the standard deviation of a normal
    distribution. With a calibration ``pll_calibrated``, ``sigma_psnr_calibrated`` and so on rate
    the calibrated standard deviation, of which a normal distribution has 0.798 as its mean absolute
    error. Intervals are those of the calibration; without one they are those of a normal
    distribution whose standard deviation is sigma. Sigma is floored at `SIGMA_FLOOR` except in
    ``sigma_psnr`` and ``ause``.

    Args:
        calibration: Turns sigma into a standard deviation and into intervals.
        coverage: Share of the values that the intervals should hold; one that was fitted, where
            there is a calibration.
        luma: Whether to measure ``sigma_psnr_y`` as well; the images must then be RGB.

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
        self, calibration: Calibration | None = None, *, coverage: float, luma: bool = False
    ) -> None:
        self.calibration = calibration.at(coverage) if calibration else None
        self._factor = normal_factor(coverage)
        self._luma = luma
        self.reset()

    def reset(self) -> None:
        """Forget all images."""
        self._of_sigma = {
            "pll": pll_metric(),
            "crps": crps_metric(),
            "calibration_error": Reliability(),
        } | self._sigma_psnrs()
        self._of_std = {
            "pll_calibrated": pll_metric(),
            "crps_calibrated": crps_metric(),
            "calibration_error_calibrated": Reliability(),
        }
        self._of_mean_error = {
            f"{name}_calibrated": metric for name, metric in self._sigma_psnrs().items()
        }
        self._sparsification = Sparsification()
        self._intervals = Intervals()
        others = self.calibration.other_factors if self.calibration else ()
        self._other_intervals = {coverage: Intervals() for coverage, _ in others}

    def add_block(self, block: Block) -> None:
        """Add a piece of an image to every metric."""
        _add(self._of_sigma, block)
        self._sparsification.add_block(block)
        if self.calibration is None:
            half_width = self._factor * block.sigma.clamp_min(SIGMA_FLOOR)
        else:
            std = self.calibration.std(block.sigma)
            half_width = self.calibration.factor * std
            _add(self._of_std, block.with_sigma(std))
            _add(self._of_mean_error, block.with_sigma(MEAN_OVER_STD * std))
            for coverage, factor in self.calibration.other_factors:
                self._other_intervals[coverage].add_block(block.with_sigma(factor * std))
        self._intervals.add_block(block.with_sigma(half_width))

    def end_image(self) -> None:
        """Take note that an image is complete."""
        for metric in self._named().values():
            metric.end_image()

    def merge(self, other: Self) -> None:
        """Add all that another metric with the same calibration has seen."""
        if (other.calibration, other._luma) != (self.calibration, self._luma):
            raise ConfigError("only metrics of the same calibration can be merged")
        theirs = other._named()
        for name, metric in self._named().items():
            metric.merge(theirs[name])
        self._sparsification.merge(other._sparsification)
        self._intervals.merge(other._intervals)
        for coverage, intervals in self._other_intervals.items():
            intervals.merge(other._other_intervals[coverage])

    def compute(self) -> dict[str, float]:
        """Return the metrics of all images seen, by name."""
        values: dict[str, float] = {}
        for name, metric in self._named().items():
            value = metric.compute()
            values[name] = value.calibration_error if isinstance(metric, Reliability) else value
        values["ause"] = self._sparsification.compute().ause
        others = {
            f"coverage_{100 * coverage:g}": intervals.compute().coverage
            for coverage, intervals in self._other_intervals.items()
        }
        return values | self._intervals.compute()._asdict() | others

    def _named(self) -> dict[str, Metric]:
        if self.calibration is None:
            return dict(self._of_sigma)
        return self._of_sigma | self._of_std | self._of_mean_error

    def _sigma_psnrs(self) -> dict[str, Metric]:
        metrics: dict[str, Metric] = {"sigma_psnr": sigma_psnr_metric()}
        return metrics | ({"sigma_psnr_y": sigma_psnr_metric(luma=True)} if self._luma else {})


def _add(metrics: Mapping[str, Metric], block: Block) -> None:
    for metric in metrics.values():
        metric.add_block(block)


class ConstantSigma:
    """The baseline of the paper: the mean ``|target - mean|`` of a set as the sigma of every pixel.

    The mean is over all values of all images of the set, which the paper takes to be the training
    set. Rate it with ``sigma = torch.full_like(mean, baseline.compute())``.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all images."""
        self.total, self.num_values = 0.0, 0

    def update(self, mean: Tensor, target: Tensor) -> None:
        """Add the images of a batch."""
        for maps in images(mean, target, torch.zeros_like(mean)):
            for block in blocks(*maps):
                self.total += float(block.error.sum())
                self.num_values += block.error.numel()

    def merge(self, other: Self) -> None:
        """Add all that another baseline has seen."""
        self.total += other.total
        self.num_values += other.num_values

    def compute(self) -> float:
        """Return the constant."""
        if not self.num_values:
            raise DataError("a constant sigma needs at least one image; call update first")
        return self.total / self.num_values
