"""Fit a calibration to held-out images.

Run the network over held-out images, collect the results in `HeldOut`, and `fit`:

========================== =========================================================================
method                     what the intervals promise
========================== =========================================================================
``conformal-risk-control`` in expectation, at least `coverage` of a new image is covered
``pooled-quantile``        nothing; they cover `coverage` of all held-out values together
``gaussian-scale``         nothing; sigma times a factor is read as that of a normal distribution
``isotonic``               nothing; the same with a monotone map of sigma
``conformal``              with probability `confidence`, `coverage` of a new image is covered
``risk-control``           with `confidence`, images are covered to `coverage` on average
========================== =========================================================================

Images are the exchangeable units of every promise: the pixels of an image are not independent.
"""

import bisect
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from musigma.functional.constants import SIGMA_FLOOR
from musigma.functional.scores import check_share, normal_factor
from musigma.types import ConfigError, DataError
from musigma.uncertainty.calibration import Calibration, check_method
from musigma.uncertainty.conformal import (
    conformal_mean,
    conformal_min_scores,
    conformal_rank,
    hoeffding_bentkus,
    isotonic_regression,
    risk_control_min_samples,
)
from musigma.uncertainty.methods import DEFAULT_CONFIDENCE, Method
from musigma.uncertainty.metrics.blocks import blocks, images
from musigma.uncertainty.metrics.histogram import LogHistogram

_MAX_FACTOR = 2.0**10  # |e| <= 1 and sigma >= SIGMA_FLOOR: no ratio of an image in [0, 1] is larger
_NUM_FACTORS = 2**12  # steps of 0.27 % from 2^-6 to 2^10
_NUM_KNOTS = 32


class HeldOutInput(NamedTuple):
    """What the fits need to know of the prediction for an input.

    Attributes:
        image: Name of the image that the input was made from. Inputs made from the same image are
            not independent, so they count together as a single image.
        group: Name of the stratum that the input belongs to, such as its degradation.
        num_values: Number of values of the prediction.
        num_covered: How many of them each factor of the grid covers.
        squared_ratio: Mean of ``(e / sigma)^2``.
    """

    image: str
    group: str
    num_values: int
    num_covered: NDArray[np.int64]
    squared_ratio: float


class HeldOut:
    """What the fits need to know of held-out predictions: 32 KiB for each, whatever its size.

    The ratio ``|e| / sigma`` is counted, input by input, on a fixed grid of factors 0.27 % apart,
    and rounded up to it: every interval is wider than the exact one by at most that, and what it
    promises holds.

    Args:
        base: A calibration whose sigma map is applied first, such as an isotonic one. It must come
            from other images than these, or the promises of the fits are void. (A scale is
            harmless: any factor absorbs it.)
    """

    def __init__(self, base: Calibration | None = None) -> None:
        self.base = base
        self.factors: NDArray[np.float64] = _ratio_histogram().upper
        self.inputs: list[HeldOutInput] = []
        self.by_sigma: dict[str, LogHistogram] = {}

    @property
    def num_images(self) -> int:
        """The number of different images seen."""
        return len({seen.image for seen in self.inputs})

    @property
    def groups(self) -> list[str]:
        """The groups seen, sorted."""
        return sorted(self.by_sigma)

    def update(
        self,
        mean: Tensor,
        target: Tensor,
        sigma: Tensor,
        *,
        image: str | None = None,
        group: str = "",
    ) -> None:
        """Add the predictions of a batch, ``(N, C, H, W)`` in ``[0, 1]``.

        Args:
            mean: What the network predicted.
            target: What it should have predicted.
            sigma: The error that the network predicted.
            image: Name of the image that all of the batch was made from; by default every element
                of the batch is an image of its own.
            group: Name of the stratum.
        """
        by_sigma = self.by_sigma.setdefault(
            group, LogHistogram(low=SIGMA_FLOOR, high=4.0, num_bins=2**12, num_sums=2)
        )
        for maps in images(mean, target, sigma):
            ratios, squared_ratio = _ratio_histogram(), 0.0
            for block in blocks(*maps):
                ratio = block.error / self.base.std(block.floored) if self.base else block.ratio
                ratios.add(ratio)
                squared_ratio += float(ratio.square().sum())
                by_sigma.add(block.floored, block.floored, block.error.square())
            num_values = maps[0].numel()
            name = f"image {len(self.inputs)}" if image is None else image
            num_covered = ratios.counts[:-1].cumsum()
            mean_square = squared_ratio / num_values
            self.inputs.append(HeldOutInput(name, group, num_values, num_covered, mean_square))

    def of_group(self, group: str) -> Self:
        """Return the part that belongs to one group, to be fitted or measured alone."""
        part = type(self)(self.base)
        part.inputs = [seen for seen in self.inputs if seen.group == group]
        part.by_sigma = {group: self.by_sigma[group]}
        return part

    def coverages(self) -> NDArray[np.float64]:
        """Return the share of each image within each factor, ``(num_images, num_factors)``.

        The share of an image is the mean over the inputs that were made from it.
        """
        shares: dict[str, list[NDArray[np.float64]]] = {}
        for seen in self.inputs:
            shares.setdefault(seen.image, []).append(seen.num_covered / seen.num_values)
        return np.stack([np.mean(rows, axis=0) for rows in shares.values()])

    def coverage_of(self, calibration: Calibration) -> float:
        """Return the share of all values that the intervals of a calibration cover.

        The calibration must be a factor on sigma, or on the sigma map of `base`.
        """
        if len(calibration.knots) > 1 and self.base is None:
            raise ConfigError(
                "the coverage of a sigma map with several knots is not known from ratios"
            )
        factor = calibration.factor * calibration.values[0]
        factor /= self.base.values[0] if self.base else calibration.knots[0]
        # A fitted factor is a point of the grid, up to rounding.
        position = int(np.searchsorted(self.factors, factor * (1 + 1e-9), side="right")) - 1
        if position < 0:
            return 0.0
        return float(self._pooled()[position])

    def _pooled(self) -> NDArray[np.float64]:
        covered: NDArray[np.int64] = np.sum([seen.num_covered for seen in self.inputs], axis=0)
        return covered / sum(seen.num_values for seen in self.inputs)


def fit(
    held_out: HeldOut,
    method: str,
    *,
    coverage: float,
    confidence: float = DEFAULT_CONFIDENCE,
    other_coverages: Sequence[float] = (),
) -> Calibration:
    """Fit a calibration by the method of this name.

    Args:
        held_out: The predictions.
        method: One of `musigma.uncertainty.methods.METHODS`.
        coverage: Share of the values that intervals should hold.
        confidence: Probability of the promise of ``conformal`` and ``risk-control``.
        other_coverages: Further shares, each fitted in the same way. Those are left out for which
            there are too few images, or errors too large for any interval.
    """
    check_method(method)
    calibration = _fit(held_out, method, coverage, confidence)
    factors = {}
    for other in sorted({*other_coverages} - {coverage}):
        with suppress(DataError):
            factors[other] = _fit(held_out, method, other, confidence).factor
    return replace(calibration, other_factors=tuple(factors.items()))


def _fit(held_out: HeldOut, method: str, coverage: float, confidence: float) -> Calibration:
    if method in _FITS_WITH_CONFIDENCE:
        return _FITS_WITH_CONFIDENCE[method](held_out, coverage=coverage, confidence=confidence)
    return _FITS[method](held_out, coverage=coverage)


def fit_gaussian_scale(held_out: HeldOut, *, coverage: float) -> Calibration:
    """Fit the factor on sigma that maximizes PLL: ``s^2 = E[e^2 / sigma^2]``.

    The expectation is the mean over inputs of the mean of each, as PLL is. A sigma trained by
    ``sigma_l1`` is a conditional median, so expect 1.48 for normal residuals and 2.04 for Laplace
    ones; by ``sigma_l2`` it is a mean, so expect 1.25 and 1.41. The optimum is exact for s >= 1;
    for s < 1 the floor of PLL can hide a part of it.
    """
    _require_images(held_out, 1, "a scale")
    return _calibration(held_out, "gaussian-scale", coverage)


def fit_isotonic(held_out: HeldOut, *, coverage: float) -> Calibration:
    """Fit the non-decreasing map from sigma to the RMS error, over all values together.

    Values are grouped by sigma into at most 32 groups of about equal number; the monotone fit to
    their mean squared errors is also the one of largest normal likelihood.
    """
    _require_images(held_out, 1, "an isotonic map")
    all_counts = np.sum([part.counts for part in held_out.by_sigma.values()], axis=0)
    all_sums = np.sum([part.sums for part in held_out.by_sigma.values()], axis=0)
    share = all_counts.cumsum() / all_counts.sum()
    starts = np.unique(np.searchsorted(share, np.arange(_NUM_KNOTS) / _NUM_KNOTS, side="right"))
    counts = np.add.reduceat(all_counts, starts).astype(np.float64)
    sigma, squared_error = np.add.reduceat(all_sums, starts, axis=1) / counts
    # Squared errors from which the noise of the targets was taken off may be negative.
    rms = np.sqrt(isotonic_regression(squared_error, counts).clip(min=SIGMA_FLOOR**2))
    return Calibration(
        method="isotonic",
        knots=tuple(sigma.tolist()),
        values=tuple(rms.tolist()),
        factor=normal_factor(coverage),
        coverage=coverage,
        confidence=None,
        num_images=held_out.num_images,
    )


def fit_pooled_quantile(held_out: HeldOut, *, coverage: float) -> Calibration:
    """Fit the smallest factor that covers `coverage` of all held-out values together."""
    check_share("coverage", coverage)
    _require_images(held_out, 1, "a pooled quantile")
    first = int((held_out._pooled() < coverage).sum())
    return _calibration(held_out, "pooled-quantile", coverage, first=first)


def fit_conformal_risk_control(held_out: HeldOut, *, coverage: float) -> Calibration:
    """Fit by conformal risk control (Angelopoulos et al., ICLR 2024), with images as the samples.

    The fit is the smallest factor whose mean uncovered share over the n held-out images, counted as
    if one more had been missed altogether, is at most ``1 - coverage``. For a new image,
    exchangeable with the held-out ones, ``E[share of its values covered] >= coverage``, over the
    held-out images and the new one together. That asks ``coverage / n`` more of the held-out images
    than `fit_pooled_quantile` does; the bound of `fit_risk_control` asks several times as much.

    Raises:
        DataError: Fewer than ``coverage / (1 - coverage)`` images; it says how many are needed.
    """
    needed = conformal_min_scores(check_share("coverage", coverage))
    _require_images(held_out, needed, f"conformal risk control at coverage {coverage}")
    asked = conformal_mean(held_out.num_images, coverage)
    first = int((held_out.coverages().mean(axis=0) < asked).sum())
    return _calibration(held_out, "conformal-risk-control", coverage, first=first)


def fit_conformal(held_out: HeldOut, *, coverage: float, confidence: float) -> Calibration:
    """Fit split-conformal intervals over images.

    The score of an image is the smallest factor that covers at least `coverage` of its values; the
    fit is the ``ceil((n + 1) confidence)``-th smallest of n scores. For a new image, exchangeable
    with the held-out ones, ``P(share of its values covered >= coverage) >= confidence``, the
    probability being over the held-out images and the new one together.

    Raises:
        DataError: Fewer than ``confidence / (1 - confidence)`` images; it says how many are needed.
    """
    check_share("coverage", coverage)
    needed = conformal_min_scores(check_share("confidence", confidence))
    _require_images(held_out, needed, f"conformal intervals with confidence {confidence}")
    scores = np.sort((held_out.coverages() < coverage).sum(axis=1))
    first = int(scores[conformal_rank(len(scores), confidence) - 1])
    return _calibration(held_out, "conformal", coverage, confidence, first=first)


def fit_risk_control(held_out: HeldOut, *, coverage: float, confidence: float) -> Calibration:
    """Fit risk-controlling intervals, as im2im-uq does, with images as the samples.

    The risk of a factor is the expected share of an image left uncovered. The fit is the smallest
    factor whose Hoeffding-Bentkus bound stays at or below ``1 - coverage``: with probability at
    least `confidence` over the held-out images, ``E[share of an image covered] >= coverage``.

    Raises:
        DataError: Too few images to show it even if none missed a value; it says how many.
    """
    bound = 1 - check_share("coverage", coverage)
    needed = risk_control_min_samples(bound, check_share("confidence", confidence))
    name = f"risk control at coverage {coverage} with confidence {confidence}"
    _require_images(held_out, needed, name)
    risks = 1 - held_out.coverages().mean(axis=0)
    # The risk falls as the factor grows, and its p-value with it: bisection finds the first.
    first = bisect.bisect_left(
        range(len(risks)),
        True,
        key=lambda i: hoeffding_bentkus(risks[i], bound, held_out.num_images) <= 1 - confidence,
    )
    return _calibration(held_out, "risk-control", coverage, confidence, first=first)


_FITS: dict[str, Callable[..., Calibration]] = {
    "conformal-risk-control": fit_conformal_risk_control,
    "pooled-quantile": fit_pooled_quantile,
    "gaussian-scale": fit_gaussian_scale,
    "isotonic": fit_isotonic,
}
_FITS_WITH_CONFIDENCE: dict[str, Callable[..., Calibration]] = {
    "conformal": fit_conformal,
    "risk-control": fit_risk_control,
}


def _ratio_histogram() -> LogHistogram:
    return LogHistogram(low=2.0**-6, high=_MAX_FACTOR, num_bins=_NUM_FACTORS)


def _calibration(
    held_out: HeldOut,
    method: Method,
    coverage: float,
    confidence: float | None = None,
    *,
    first: int | None = None,
) -> Calibration:
    """Join the sigma map of largest PLL and the `first` factor that passed, or the normal one."""
    scale = float(np.sqrt(np.mean([seen.squared_ratio for seen in held_out.inputs])))
    if scale == 0:
        raise DataError("every held-out mean equals its target: pass predictions, not the targets")
    if first == len(held_out.factors):
        raise DataError(
            f"errors exceed {_MAX_FACTOR:g} times sigma too often: no interval can hold; "
            "check that mean, target and sigma are of the same images, in [0, 1]"
        )
    base = held_out.base
    return Calibration(
        method=method,
        knots=base.knots if base else (1.0,),
        values=tuple(scale * value for value in (base.values if base else (1.0,))),
        factor=normal_factor(coverage) if first is None else float(held_out.factors[first]) / scale,
        coverage=coverage,
        confidence=confidence,
        num_images=held_out.num_images,
    )


def _require_images(held_out: HeldOut, needed: int, what: str) -> None:
    if held_out.num_images < needed:
        raise DataError(
            f"{what} needs at least {needed} held-out images, got {held_out.num_images}: "
            "add images, ask for less confidence or coverage, or take the method pooled-quantile, "
            "which promises nothing"
        )
