"""Turn a network's sigma into error bars that hold, by a fit on held-out pairs.

Run the network over held-out pairs once, collect them in `HeldOut`, and fit:

================== =================================================================================
`fit_scale`        sigma times one factor; intervals of a normal distribution; no promise
`fit_isotonic`     a monotone map of sigma; intervals of a normal distribution; no promise
`fit_average`      intervals that cover the asked share of the held-out values; no promise
`fit_expected`     in expectation, at least `coverage` of a new image is covered
`fit_conformal`    with probability `confidence`, at least `coverage` of a new image is covered
`fit_risk_control` with probability `confidence`, images are covered to `coverage` on average
================== =================================================================================

Images are the exchangeable units of every promise: the pixels of one image are not independent.
"""

import bisect
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from musigma.functional.constants import SIGMA_FLOOR
from musigma.functional.scores import check_share, normal_factor
from musigma.types import ConfigError, DataError, nearest
from musigma.uncertainty.conformal import (
    conformal_mean,
    conformal_min_scores,
    conformal_rank,
    hoeffding_bentkus,
    isotonic_regression,
    risk_control_min_samples,
)
from musigma.uncertainty.metrics.blocks import blocks, images
from musigma.uncertainty.metrics.histogram import LogHistogram

Kind = Literal["scale", "isotonic", "average", "expected", "conformal", "risk_control"]

_MAX_FACTOR = 2.0**10  # |e| <= 1 and sigma >= SIGMA_FLOOR: no ratio of an image in [0, 1] is larger
_NUM_FACTORS = 2**12  # steps of 0.27 % from 2^-6 to 2^10
_NUM_KNOTS = 32


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """How to read a network's sigma: as a std, and as an interval of a stated coverage.

    Sigma, floored at `SIGMA_FLOOR`, is mapped to a std by straight lines through
    ``(knots, values)``, and proportionally outside them: one knot is one scale factor. The interval
    is ``mean +- factor * std``.

    Attributes:
        kind: How it was fitted, which decides what `promise` says.
        knots: Raw sigmas, increasing.
        values: The std at each knot, positive and not decreasing.
        factor: Half-width of the interval in units of the std.
        coverage: The share of values the intervals aim at.
        confidence: The probability of the promise, or ``None`` where it has none.
        num_images: Held-out images of the fit.

    Example:
        >>> calibration = Calibration(kind="average", knots=(1.0,), values=(1.5,), factor=2.0,
        ...                           coverage=0.9, confidence=None, num_images=100)
        >>> calibration.half_width(torch.tensor([0.01, 0.02]))
        tensor([0.0300, 0.0600])
    """

    kind: Kind
    knots: tuple[float, ...]
    values: tuple[float, ...]
    factor: float
    coverage: float
    confidence: float | None
    num_images: int

    def __post_init__(self) -> None:
        """Refuse what no fit would give: the numbers may come from a file."""
        if self.kind not in get_args(Kind):
            raise ConfigError(f"no calibration {self.kind!r}; {nearest(self.kind, get_args(Kind))}")
        knots, values = np.array(self.knots), np.array(self.values)
        if len(knots) != len(values) or not len(knots):
            raise ConfigError(f"got {len(knots)} knots for {len(values)} values of a calibration")
        if not (knots[0] > 0 and (np.diff(knots) > 0).all() and np.isfinite(knots).all()):
            raise ConfigError("the knots of a calibration must be positive and increase")
        if not (values[0] > 0 and (np.diff(values) >= 0).all() and np.isfinite(values).all()):
            raise ConfigError("the values of a calibration must be positive and not decrease")
        if not 0 < self.factor < np.inf:
            raise ConfigError(f"the factor of a calibration must be positive, got {self.factor}")
        check_share("coverage", self.coverage)
        if self.kind in ("conformal", "risk_control"):
            check_share("confidence", self.confidence or 0)

    def std(self, sigma: Tensor) -> Tensor:
        """Return the std that belongs to each raw sigma, of the same shape."""
        knots, values = np.array(self.knots), np.array(self.values)
        rise = np.diff(values) / np.diff(knots)
        slopes = np.concatenate([values[:1] / knots[:1], rise, values[-1:] / knots[-1:]])
        offsets = np.concatenate([[0.0], values[:-1] - rise * knots[:-1], [0.0]])
        sigma = sigma.clamp_min(SIGMA_FLOOR)
        piece = torch.bucketize(sigma, sigma.new_tensor(knots))
        return sigma.new_tensor(slopes)[piece] * sigma + sigma.new_tensor(offsets)[piece]

    def half_width(self, sigma: Tensor) -> Tensor:
        """Return the half-width of the interval round the mean, of the same shape."""
        return self.factor * self.std(sigma)

    @property
    def promise(self) -> str:
        """What the intervals promise, in one sentence."""
        share = f"{self.coverage} of the values"
        if self.kind == "expected":
            claim = f"in expectation intervals cover at least {share} of an image"
        elif self.kind == "conformal":
            claim = (
                f"with probability {self.confidence} intervals cover at least {share} of an image"
            )
        elif self.kind == "risk_control":
            claim = f"with confidence {self.confidence} intervals cover on average at least {share}"
        else:
            claim = f"intervals cover about {share}, without a guarantee"
        return f"{claim} ({self.kind}, {self.num_images} held-out images)"

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, for the metadata of a weights file or a record."""
        return asdict(self) | {"knots": list(self.knots), "values": list(self.values)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Calibration":
        """Return what `to_dict` described, or say what of it is missing, unknown or no number."""
        expected = {field.name for field in fields(cls)}
        if data.keys() != expected:
            raise ConfigError(
                f"a calibration has the keys {sorted(expected)}; missing "
                f"{sorted(expected - data.keys())}, unknown {sorted(data.keys() - expected)}"
            )
        try:
            return cls(**{**data, "knots": tuple(data["knots"]), "values": tuple(data["values"])})
        except TypeError as error:
            raise ConfigError(f"a calibration is made of numbers: {error}") from error


class HeldOut:
    """What the fits need to know of held-out pairs: 32 KiB for each image, whatever its size.

    The ratio ``|e| / sigma`` is counted, image by image, on a fixed grid of factors 0.27 % apart,
    and rounded up to it: every interval is wider than the exact one by at most that, and what it
    promises holds.

    Args:
        base: A calibration whose sigma map is applied first, such as an isotonic one. It must come
            from other images than these, or the promises of the fits are void. (A scale is
            harmless: any factor absorbs it.)
    """

    def __init__(self, base: Calibration | None = None) -> None:
        self.base = base
        self.factors: NDArray[np.float64] = self._ratio_histogram().upper
        self.num_values: list[int] = []
        self.num_covered: list[NDArray[np.int64]] = []
        self.squared_ratios: list[float] = []
        self.by_sigma = LogHistogram(low=SIGMA_FLOOR, high=4.0, num_bins=2**12, num_sums=2)

    @property
    def num_images(self) -> int:
        """The number of images seen."""
        return len(self.num_values)

    def update(self, mean: Tensor, target: Tensor, sigma: Tensor) -> None:
        """Add the images of one batch, ``(N, C, H, W)`` in [0, 1]."""
        for image in images(mean, target, sigma):
            ratios, squared_ratio = self._ratio_histogram(), 0.0
            for block_mean, block_target, raw_sigma in blocks(*image):
                error = (block_target - block_mean).abs()
                floored = raw_sigma.clamp_min(SIGMA_FLOOR)
                ratio = error / (self.base.std(floored) if self.base else floored)
                ratios.add(ratio)
                squared_ratio += float(ratio.square().sum())
                self.by_sigma.add(floored, floored, error.square())
            self.num_values.append(image[0].numel())
            self.num_covered.append(ratios.counts[:-1].cumsum())
            self.squared_ratios.append(squared_ratio / image[0].numel())

    def coverages(self) -> NDArray[np.float64]:
        """Return the share of each image within each factor, ``(num_images, num_factors)``."""
        return np.stack(self.num_covered) / np.array(self.num_values)[:, None]

    @staticmethod
    def _ratio_histogram() -> LogHistogram:
        return LogHistogram(low=2.0**-6, high=_MAX_FACTOR, num_bins=_NUM_FACTORS)


def fit_scale(held_out: HeldOut, *, coverage: float) -> Calibration:
    """Fit the one factor on sigma that maximises PLL: ``s^2 = E[e^2 / sigma^2]``.

    The expectation is the mean over images of each image's mean, as PLL is. A sigma trained by
    ``sigma_l1`` is a conditional median, so expect 1.48 for normal residuals and 2.04 for Laplace
    ones; by ``sigma_l2`` it is a mean, so expect 1.25 and 1.41. The optimum is exact for s >= 1;
    for s < 1 the floor of PLL can hide a part of it.
    """
    _require_images(held_out, 1, "a scale")
    return _calibration(held_out, "scale", coverage)


def fit_isotonic(held_out: HeldOut, *, coverage: float) -> Calibration:
    """Fit the non-decreasing map from raw sigma to the RMS error, over all values together.

    Values are grouped by sigma into at most 32 groups of about equal number; the monotone fit to
    their mean squared errors is also the one of largest normal likelihood.
    """
    _require_images(held_out, 1, "an isotonic map")
    histogram = held_out.by_sigma
    share = histogram.counts.cumsum() / histogram.counts.sum()
    starts = np.unique(np.searchsorted(share, np.arange(_NUM_KNOTS) / _NUM_KNOTS, side="right"))
    counts = np.add.reduceat(histogram.counts, starts).astype(np.float64)
    sigma, squared_error = np.add.reduceat(histogram.sums, starts, axis=1) / counts
    rms = np.sqrt(isotonic_regression(squared_error, counts)).clip(min=SIGMA_FLOOR)
    return Calibration(
        kind="isotonic",
        knots=tuple(sigma.tolist()),
        values=tuple(rms.tolist()),
        factor=normal_factor(coverage),
        coverage=coverage,
        confidence=None,
        num_images=held_out.num_images,
    )


def fit_average(held_out: HeldOut, *, coverage: float) -> Calibration:
    """Fit the smallest factor that covers `coverage` of all held-out values together."""
    check_share("coverage", coverage)
    _require_images(held_out, 1, "an average")
    covered = np.sum(held_out.num_covered, axis=0) / sum(held_out.num_values)
    first = int((covered < coverage).sum())
    return _calibration(held_out, "average", coverage, first=first)


def fit_expected(held_out: HeldOut, *, coverage: float) -> Calibration:
    """Fit by conformal risk control (Angelopoulos et al., ICLR 2024), with images as the samples.

    The fit is the smallest factor whose mean uncovered share over the n held-out images, counted as
    if one more had been missed altogether, is at most ``1 - coverage``. For a new image,
    exchangeable with the held-out ones, ``E[share of its values covered] >= coverage``, over the
    held-out images and the new one together. That asks ``coverage / n`` more of the held-out images
    than `fit_average` does; the bound of `fit_risk_control` asks several times as much.

    Raises:
        DataError: Fewer than ``coverage / (1 - coverage)`` images; it says how many are needed.
    """
    needed = conformal_min_scores(check_share("coverage", coverage))
    _require_images(held_out, needed, f"an expected coverage of {coverage}")
    asked = conformal_mean(held_out.num_images, coverage)
    first = int((held_out.coverages().mean(axis=0) < asked).sum())
    return _calibration(held_out, "expected", coverage, first=first)


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
    return _calibration(held_out, "risk_control", coverage, confidence, first=first)


def _calibration(
    held_out: HeldOut,
    kind: Kind,
    coverage: float,
    confidence: float | None = None,
    *,
    first: int | None = None,
) -> Calibration:
    """Join the sigma map of largest PLL and the `first` factor that passed, or the normal one."""
    scale = float(np.sqrt(np.mean(held_out.squared_ratios)))
    if scale == 0:
        raise DataError("every held-out mean equals its target: pass predictions, not the targets")
    if first == len(held_out.factors):
        raise DataError(
            f"errors exceed {_MAX_FACTOR:g} times sigma too often: no interval can hold; "
            "check that mean, target and sigma are of the same images, in [0, 1]"
        )
    base = held_out.base
    return Calibration(
        kind=kind,
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
            "add images, ask for less confidence or coverage, or take the method average, which "
            "promises nothing"
        )
