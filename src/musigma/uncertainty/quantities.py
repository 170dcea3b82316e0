"""Quantities that people read off a picture, such as the mean of a box, and their intervals.

A quantity is a weighted sum of the values of a picture. A joint error model gives its standard
deviation. A power and a factor that were fitted on held-out images make an interval of that.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from musigma.functional.scores import check_share
from musigma.types import ConfigError, short_repr
from musigma.uncertainty.fitting import HeldOut, fit
from musigma.uncertainty.joint import Correlation, JointErrors, support
from musigma.uncertainty.methods import COVERAGES, DEFAULT_COVERAGE
from musigma.uncertainty.stored_table import checked_table, real, whole

PROBES_PER_IMAGE = 12
"""How often each kind of quantity is measured in a held-out image, at random places."""

LEVEL = 1 / 255
"""The standard deviation that a power leaves as it is: one 8-bit level of a mean."""

POWERS = (0.5, 1.5)
"""The least and the largest power of a standard deviation."""

SMALLEST = 1e-9
"""Smaller errors and standard deviations count as this one where their logarithm is taken."""

IMAGES_OF_A_POWER = 50
"""With fewer held-out images the power stays 1."""

Array = NDArray[np.float64]


class Box(NamedTuple):
    """A rectangle of pixels; ``x`` and ``y`` are those of its upper left pixel."""

    x: int
    y: int
    width: int
    height: int


Region = Box | tuple[int, ...] | Tensor | NDArray[np.bool_]
"""A box as x, y, width, height in pixels of the result, or a mask ``(H, W)`` of booleans."""


class Quantity(NamedTuple):
    """A number read off a picture, with its interval, in the units of the picture (0 to 1).

    Attributes:
        value: What the restored picture gives, corrected by what its input says about the error.
        low: Lower end of the interval.
        high: Upper end of the interval.
        coverage: The share of such quantities that their intervals should hold.
        std: Standard deviation by the joint error model, before calibration.
    """

    value: float
    low: float
    high: float
    coverage: float
    std: float


def parse_box(text: str) -> Box:
    """Read a box.

    Example:
        >>> parse_box("10,20,30,40")
        Box(x=10, y=20, width=30, height=40)
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 4 or not all(re.fullmatch("[0-9]{1,9}", part) for part in parts):
        got = short_repr(text)
        raise ConfigError(f"a box is x,y,width,height in whole pixels of the result, got {got}")
    return Box(*(int(part) for part in parts))


def region_weights(shape: tuple[int, ...], region: Region, channel: int | None = None) -> Tensor:
    """Return the weights, ``(C, H, W)``, whose sum with a picture is its mean over a region.

    Args:
        shape: Of the picture, ``(C, H, W)``.
        region: A box as x, y, width, height; or a mask ``(H, W)`` of booleans.
        channel: The only channel that counts; by default the mean over all channels.

    Example:
        >>> region_weights((3, 4, 4), Box(0, 0, 2, 1)).sum((1, 2))
        tensor([0.3333, 0.3333, 0.3333])
    """
    if isinstance(region, Tensor | np.ndarray):
        mask = torch.as_tensor(region)
    else:
        mask = _box_mask(shape, region)
    if mask.shape != shape[1:] or mask.dtype != torch.bool or not bool(mask.any()):
        raise ConfigError(
            f"a mask has the shape {tuple(shape[1:])} of the result, booleans, and at least one "
            f"true value; got {tuple(mask.shape)} of {mask.dtype}"
        )
    weights = mask.float() / float(mask.sum())
    if channel is None:
        return (weights / shape[0]).expand(shape)
    if not 0 <= channel < shape[0]:
        raise ConfigError(f"the result has the channels 0 to {shape[0] - 1}, got {channel}")
    chosen = torch.zeros(shape)
    chosen[channel] = weights
    return chosen


def _box_mask(shape: tuple[int, ...], box: tuple[int, ...]) -> Tensor:
    if len(box) != 4:
        raise ConfigError(f"a box is x, y, width, height, got {box}")
    x, y, width, height = box
    inside = x >= 0 and y >= 0 and x + width <= shape[2] and y + height <= shape[1]
    if not inside or width < 1 or height < 1:
        raise ConfigError(
            f"the box {x},{y},{width},{height} does not lie inside the result of {shape[2]} x "
            f"{shape[1]} pixels"
        )
    mask = torch.zeros(shape[1:], dtype=torch.bool)
    mask[y : y + height, x : x + width] = True
    return mask


Deviation = TypeVar("Deviation", float, Tensor)


def to_power(std: Deviation, power: float) -> Deviation:
    """Return standard deviations of means to a power, in units of one 8-bit level.

    Example:
        >>> to_power(LEVEL, 0.9) == LEVEL
        True
        >>> round(to_power(16 * LEVEL, 0.5) / LEVEL, 6)
        4.0
    """
    return std if power == 1 else LEVEL * (std / LEVEL) ** power


def size_of(weights: Tensor) -> float:
    """Return the sum of the positive weights or of the negative ones, whichever is larger.

    It is 1 for a mean and for a difference of two means.

    Example:
        >>> size_of(torch.tensor([0.5, 0.5, -1.0]))
        1.0
    """
    parts = weights.double()
    return max(float(parts.clamp_min(0).sum()), float(-parts.clamp_max(0).sum()))


@dataclass(frozen=True, kw_only=True)
class JointCalibration:
    """What a weights file says about how errors are correlated.

    Attributes:
        correlation: Of the errors in units of their calibrated standard deviation; `None` for
            weights with a joint head, which predicts it.
        factors: Half-width of the interval of a quantity over its standard deviation to the power,
            for each coverage, by increasing coverage.
        num_images: Number of held-out images that power and factors were fitted on.
        power: Of the standard deviation of a mean, counted in 8-bit levels. Below 1, small standard
            deviations get wider intervals, and large ones narrower.
    """

    correlation: Correlation | None
    factors: tuple[tuple[float, float], ...]
    num_images: int
    power: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what no fit would give."""
        shares, factors = zip(*self.factors, strict=True) if self.factors else ((), ())
        for share in shares:
            check_share("coverage", share)
        grows = list(shares) == sorted(set(shares)) and list(factors) == sorted(factors)
        if not factors or not grows or not 0 < factors[0] <= factors[-1] <= 1e6:
            raise ConfigError("factors of quantities are positive and grow with the coverage")
        if not POWERS[0] <= self.power <= POWERS[1]:
            raise ConfigError(
                f"the power of quantities lies from {POWERS[0]:g} to {POWERS[1]:g}, "
                f"got {self.power:g}"
            )
        if self.num_images < 1:
            raise ConfigError(f"a fit takes at least one image, got {self.num_images}")

    @property
    def coverages(self) -> tuple[float, ...]:
        """The coverages that were fitted, increasing."""
        return tuple(share for share, _ in self.factors)

    def factor(self, coverage: float) -> float:
        """Return the factor of a coverage, or say which coverages there are."""
        if coverage not in self.coverages:
            fitted = ", ".join(f"{share:g}" for share in self.coverages)
            raise ConfigError(
                f"quantities are calibrated for coverages of {fitted}, not of {coverage:g}"
            )
        return dict(self.factors)[coverage]

    def half_width(self, std: float, coverage: float, *, size: float = 1.0) -> float:
        """Return the half-width of the interval of a quantity.

        Args:
            std: Its standard deviation by the joint error model.
            coverage: One of `coverages`.
            size: What `size_of` says of its weights. The power is that of the mean, so that the
                interval of a sum is that of the mean, times the number of values.
        """
        factor = self.factor(coverage)
        return size * factor * to_power(std / size, self.power) if size else 0.0

    def promise(self, coverage: float, conditions: str) -> str:
        """Say in one sentence what the intervals of quantities promise, and for which images."""
        return (
            f"On average, at least {100 * coverage:.4g} % of the true quantities (boxes of 4 to 32 "
            f"pixels and profiles of 16, all together) lie inside their intervals, {conditions}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        factors = [[share, round(factor, 5)] for share, factor in self.factors]
        correlation = self.correlation and self.correlation.to_dict()
        table = {"correlation": correlation, "factors": factors, "num_images": self.num_images}
        # Programs from before powers can read a file without one.
        return table if self.power == 1 else table | {"power": self.power}

    @classmethod
    def from_dict(cls, data: Any) -> "JointCalibration":
        """Return what `to_dict` described, or say what is wrong with it."""
        keys = {"correlation", "factors", "num_images"}
        if isinstance(data, Mapping) and "power" in data:
            keys.add("power")
        table = checked_table(data, keys, "joint errors")
        try:
            factors = tuple((real(share), real(factor)) for share, factor in table["factors"])
        except (TypeError, ValueError) as error:
            raise ConfigError("factors of quantities are pairs of numbers") from error
        correlation = table["correlation"]
        return cls(
            correlation=None if correlation is None else Correlation.from_dict(correlation),
            factors=factors,
            num_images=whole(table["num_images"]),
            power=real(table.get("power", 1.0)),
        )


def probe_patterns(channels: int) -> dict[str, list[Tensor]]:
    """Return the weights of the quantities that intervals are fitted and measured on, by kind.

    Boxes, profiles of 16 pixels in both directions, the box of one channel, and the difference of
    two boxes that are 8 pixels apart.
    """
    kinds = {f"box {n}": [torch.ones(channels, n, n)] for n in (4, 8, 16, 32)}
    kinds["profile 16"] = [torch.ones(channels, 1, 16), torch.ones(channels, 16, 1)]
    single, difference = torch.zeros(channels, 8, 8), torch.zeros(channels, 8, 24)
    single[channels // 2] = 1
    difference[:, :, :8], difference[:, :, 16:] = 1, -1
    kinds |= {"channel 8": [single], "difference 8": [difference]}
    return {
        name: [pattern / pattern.clamp_min(0).sum() for pattern in patterns]
        for name, patterns in kinds.items()
    }


def expected_sum(errors: JointErrors, weights: Tensor) -> float:
    """Return the expectation of the weighted sum of all errors of a picture."""
    rows, columns = support(weights)
    shift = errors.shift.expand_as(weights)[:, rows, columns]
    return float((weights[:, rows, columns].double() * shift).sum())


class Probes(NamedTuple):
    """A quantity at several places of a picture, ``(n,)`` each.

    Attributes:
        errors: Its true errors.
        joint_errors: Its true errors less what the joint model expects.
        joint_std: Its standard deviation by the joint model.
        independent_std: The same if all errors were independent.
        added_std: An upper bound: fully correlated errors that never cancel.
    """

    errors: Tensor
    joint_errors: Tensor
    joint_std: Tensor
    independent_std: Tensor
    added_std: Tensor


def probe(
    residual: Tensor, errors: JointErrors, pattern: Tensor, generator: torch.Generator
) -> Probes | None:
    """Measure a quantity at random places; `None` where the picture is too small for it.

    Args:
        residual: ``target - mean``, ``(C, H, W)``.
        errors: What is known about it.
        pattern: Weights of the quantity, ``(C, h, w)``.
        generator: Of the places.
    """
    height, width = pattern.shape[1:]
    free = (residual.shape[1] - height, residual.shape[2] - width)
    if min(free) < 0:
        return None
    rows = []
    for _ in range(PROBES_PER_IMAGE):
        top, left = (int(torch.randint(side + 1, (), generator=generator)) for side in free)
        weights = torch.zeros_like(residual)
        weights[:, top : top + height, left : left + width] = pattern
        rows.append(_probe_at(residual, errors, weights))
    return Probes(*torch.tensor(rows, dtype=torch.float64).T)


def _probe_at(residual: Tensor, errors: JointErrors, weights: Tensor) -> tuple[float, ...]:
    rows, columns = support(weights)
    inside = (slice(None), rows, columns)
    scaled = (weights[inside] * errors.std[inside]).double()
    error = float((weights[inside] * residual[inside]).double().sum())
    return (
        error,
        error - expected_sum(errors, weights),
        errors.variance_of(weights) ** 0.5,
        float(scaled.square().sum()) ** 0.5,
        float(scaled.abs().sum()),
    )


def probe_all(residual: Tensor, errors: JointErrors, *, seed: int) -> Iterator[tuple[str, Probes]]:
    """Measure every kind of quantity at random places of a picture; arguments as for `probe`."""
    generator = torch.Generator().manual_seed(seed)
    for name, patterns in probe_patterns(len(residual)).items():
        measured = [probe(residual, errors, pattern, generator) for pattern in patterns]
        yield from ((name, probes) for probes in measured if probes is not None)


class HeldOutQuantities:
    """Errors of quantities in held-out images, with their standard deviations.

    Images count alike, and so do the kinds of quantities in an image. The joint model comes from
    other images, or the promise of the factors is void. The power comes from the same images: it is
    a single number in steps of 0.01, and the factors are fitted after it.
    """

    def __init__(self) -> None:
        self.probes: list[tuple[str, str, Probes]] = []
        self.held_out = HeldOut()

    def update(self, residual: Tensor, errors: JointErrors, *, image: str) -> None:
        """Add an image: ``target - mean``, ``(C, H, W)``, and what is known about it."""
        seed = len({name for name, _, _ in self.probes})
        measured = probe_all(residual, errors, seed=seed)
        self.probes += [(image, kind, probes) for kind, probes in measured]

    def fit(self, correlation: Correlation | None) -> JointCalibration:
        """Fit a power, and factors by conformal risk control: one for all kinds, for each coverage.

        Args:
            correlation: What the joint model was; `None` for that of a joint head.
        """
        power = self._fitted_power()
        self.held_out = HeldOut()
        for image, kind, probes in self.probes:
            scaled = to_power(probes.joint_std, power)
            ratios = (probes.joint_errors / scaled).float()[None, None, None]
            nothing, unit = torch.zeros_like(ratios), torch.ones_like(ratios)
            self.held_out.update(nothing, ratios, unit, image=image, group=kind)
        fitted = fit(
            self.held_out,
            "conformal-risk-control",
            coverage=DEFAULT_COVERAGE,
            other_coverages=COVERAGES,
        )
        unit = torch.ones(1)
        factors = [(share, float(fitted.half_width(unit, share))) for share in fitted.coverages]
        return JointCalibration(
            correlation=correlation,
            factors=tuple(factors),
            num_images=self.held_out.num_images,
            power=power,
        )

    def _fitted_power(self) -> float:
        counts = Counter(image for image, _, probes in self.probes for _ in probes.errors)
        if len(counts) < IMAGES_OF_A_POWER:
            return 1.0
        shares = [np.full(len(probes.errors), 1 / counts[name]) for name, _, probes in self.probes]
        stds = torch.cat([probes.joint_std for _, _, probes in self.probes])
        errors = torch.cat([probes.joint_errors for _, _, probes in self.probes])
        return fit_power(stds.numpy(), errors.numpy(), np.concatenate(shares))

    def coverage_by_kind(self, factor: float) -> dict[str, float]:
        """Return the share of quantities of each kind that an interval of this factor holds."""
        grid = self.held_out.factors
        position = int((grid <= factor * (1 + 1e-9)).sum()) - 1
        shares: dict[str, float] = {}
        for name in self.held_out.groups:
            rows = self.held_out.of_group(name).coverages()
            shares[name] = float(rows[:, position].mean())
        return shares


def fit_power(stds: Array, errors: Array, shares: Array) -> float:
    """Return the power of the standard deviation that a large error grows with.

    This is quantile regression of the logarithm of the error: at the power of the least pinball
    loss, about a tenth of the errors is larger than a factor times the power of the standard
    deviation, whether that is small or large.

    Args:
        stds: Standard deviations of quantities.
        errors: Their errors.
        shares: How much each counts.

    Example:
        >>> stds = np.geomspace(0.001, 0.1, 99)
        >>> fit_power(stds, 2 * stds**0.8, np.ones(99))
        0.8
    """
    logs = np.log(np.maximum(stds, SMALLEST)), np.log(np.maximum(np.abs(errors), SMALLEST))
    powers = np.arange(100 * POWERS[0], 100 * POWERS[1] + 1) / 100
    losses = [_pinball_loss(logs[1] - power * logs[0], shares) for power in powers]
    return float(powers[int(np.argmin(losses))])


def _pinball_loss(values: Array, shares: Array) -> float:
    """Return the mean pinball loss of the quantile that has the least."""
    order = np.argsort(values)
    part = shares[order].cumsum() / shares.sum()
    first = min(int(np.searchsorted(part, DEFAULT_COVERAGE)), len(values) - 1)
    above = values - values[order[first]]
    loss = np.where(above > 0, DEFAULT_COVERAGE * above, (DEFAULT_COVERAGE - 1) * above)
    return float(shares @ loss / shares.sum())


def in_words(quantity: Quantity, *, levels: int = 255) -> str:
    """Say a quantity and its interval in 8-bit levels.

    Example:
        >>> in_words(Quantity(0.5, 0.4, 0.6, 0.9, 0.05))
        '127.5 of 255, 90 % interval from 102.0 to 153.0'

        A narrow interval gets more digits, so that its ends differ from its middle:

        >>> in_words(Quantity(0.5, 0.4999, 0.5001, 0.9, 0.0001))
        '127.50 of 255, 90 % interval from 127.47 to 127.53'
    """
    value, low, high = (levels * part for part in quantity[:3])
    digits = next((number for number in (1, 2, 3) if high - low > 4 * 10.0**-number), 4)
    return (
        f"{value:.{digits}f} of {levels}, {100 * quantity.coverage:.4g} % interval from "
        f"{low:.{digits}f} to {high:.{digits}f}"
    )
