"""Whether a picture is like those that a calibration was fitted on.

The promise of a calibration holds for pictures like the held-out ones. What those were like is kept
as a `Reference`: for each number of `musigma.functional.picture_statistics` the limits that hardly
any held-out input exceeds. `unlike` compares a picture with them and says in words what differs.

A little blur is hard to tell from a picture of soft things by one number. So one more number is
fitted: the weighted sum of the energies between several radii that tells the held-out inputs best
from the same inputs, softened. Further sums of more numbers tell them from inputs that were spoiled
in other ways, by noise reduction or sharpening for example; see `musigma.uncertainty.fitted_sums`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from musigma.functional.noise import noise_of
from musigma.functional.picture_statistics import PictureStatistics
from musigma.types import ConfigError
from musigma.uncertainty.fitted_sums import FittedSum, discriminant, exceeded, fit_sums

LEAST_INPUTS = 20
"""Limits of fewer inputs say little; no reference is made of them."""

_NOISE_OFFSET = 0.5
_LEVEL_RATIO, _LEVEL_EXCESS = 1.35, 4.0
"""Measured noise may differ by this factor and so many levels from what a denoiser is told."""

_BLOCKS = 0.3
"""Inputs with more than this have JPEG blocks that can be seen."""


class Limits(NamedTuple):
    """The range of a number over the held-out inputs."""

    low: float
    high: float


class _Tails(NamedTuple):
    """How the limits of a number are found: quantiles, and how much is added beyond them.

    Attributes:
        below: Share of the inputs below the lower limit; `None` for no lower limit.
        above: Share of the inputs above the upper limit.
        margin: How far both limits are moved outwards, in units of the range from the 5 % to the
            95 % quantile.
        least: The least amount by which they are moved.
        floor: The least upper limit, which intervals still bear.
        of_mixture: The first three for inputs that were degraded in several ways.
    """

    below: float | None
    above: float | None
    margin: float
    least: float = 0.0
    floor: float = -math.inf
    of_mixture: tuple[float | None, float | None, float] = (None, None, 0.0)

    def chosen(self, *, mixture: bool) -> "_Tails":
        """Return those of one way of degrading, or of several."""
        if not mixture:
            return self
        below, above, margin = self.of_mixture
        return self._replace(below=below, above=above, margin=margin)


# Chosen by ten-fold cross-validation on DIV2K_crops, so that at most 5 % of clean inputs are spoken
# of. Softness gets nearly all of it: unknown blur costs the most coverage, and is hard to tell.
# In a mixture one way of degrading may lie at the limits as a whole, such as the strongest blur, so
# that hardly any input is left outside. Its levels of noise spread over octaves. A mixture has no
# `detail`, which elsewhere tells better what a low rolloff would tell.
_TAILS = {
    "noise_std": _Tails(None, 0.0, 0.15, of_mixture=(None, 0.0, 0.02)),
    "coarse_noise_std": _Tails(None, 0.0, 0.1, of_mixture=(None, 0.0, 0.02)),
    "colour_grain_std": _Tails(None, 0.0, 0.15, least=0.2, of_mixture=(None, 0.0, 0.05)),
    "sharpness": _Tails(0.0, 0.0, 0.3, of_mixture=(0.0, 0.0, 0.1)),
    "rolloff": _Tails(None, 0.0, 0.35, of_mixture=(0.0, 0.0, 0.1)),
    "softest_direction": _Tails(0.0, None, 0.3, of_mixture=(0.01, None, 0.0)),
    "detail": _Tails(0.02, None, 0.0),
    "block_edges": _Tails(None, 0.0, 0.1, least=0.1, of_mixture=(None, 0.0, 0.1)),
    "shifted_blocks": _Tails(None, 0.0, 0.3, floor=0.17, of_mixture=(None, 0.002, 0.1)),
    "period_of_two": _Tails(None, 0.0, 0.7, of_mixture=(None, 0.002, 0.1)),
    "lines": _Tails(None, 0.0, 1.8, of_mixture=(None, 0.002, 0.1)),
    "ripple": _Tails(None, 0.0, 0.7, of_mixture=(None, 0.002, 0.1)),
    "impulses": _Tails(None, 0.0, 0.25, of_mixture=(None, 0.002, 0.1)),
    "empty_levels": _Tails(None, 0.0, 0.0, floor=0.85, of_mixture=(None, 0.002, 0.0)),
    "colour_shift": _Tails(None, 0.0, 0.0, floor=0.9, of_mixture=(None, 0.002, 0.0)),
    "echo": _Tails(None, 0.0, 2.5, floor=0.15, of_mixture=(None, 0.015, 0.0)),
}

_SOFTNESS = ("sharpness", "rolloff", "softest_direction", "detail")
_NOISE_WORDS = {
    "noise_std": "noise",
    "coarse_noise_std": "coarse noise or grain",
    "colour_grain_std": "coarse noise of the colors",
}

_TRACES = {
    "shifted_blocks": "The picture has blocks that do not begin at its corner: it was cut or moved "
    "after it was saved, or saved by another codec than JPEG.",
    "period_of_two": "Every other row or column of the picture is different: it was enlarged, its "
    "colors were interpolated from those of a sensor, or it is a field of video.",
    "lines": "The picture has noise of whole rows or columns.",
    "ripple": "The picture has a fine, regular pattern, such as that of printed dots, screens or "
    "electric disturbances.",
    "impulses": "Single pixels of the picture stand out from all their neighbors, as defective "
    "pixels, dust or dithering do.",
    "empty_levels": "The picture has few levels of brightness, as with a small palette.",
    "colour_shift": "Red and blue are shifted against green, as by a lens.",
    "echo": "The picture shows its content a second time, weaker and shifted, as reflections, "
    "double exposures and averaged frames do.",
}
_SMOOTHED = (
    "Weak texture of the picture was smoothed away, but sharp edges were not, as by noise "
    "reduction or strong compression."
)
_SOFTER = (
    "The picture is softer than the calibration pictures: it was blurred, enlarged, or shrunk in "
    "another way."
)
_SPOILED = {
    "enlarged": _SOFTER,
    "defocused": "The picture is out of focus in a way that the calibration pictures were not.",
    "moved": "The picture is blurred in one direction, as by a moving camera, and the calibration "
    "pictures were not, or less.",
    "smoothed": _SMOOTHED,
    "denoised": _SMOOTHED,
    "processed": _SMOOTHED,
    "sharpened": "The picture was sharpened strongly: its edges have halos.",
    "grainy": "The picture has coarse noise or grain that the calibration pictures did not have.",
    "colour_noise": "The picture has coarse noise of the colors that the calibration pictures did "
    "not have.",
}
"""What is said of a picture that looks spoiled, by the names of the fitted sums."""

_DETAIL_SHRINKAGE = 0.01
_SPOILED_SHARE, _SPOILED_MARGIN = 0.004, 1.0
"""Share of the inputs of a mixture that may exceed the limit of a fitted sum, and how far the limit
lies above the sums of all inputs of one degradation, in standard deviations."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What the inputs of a calibration were like.

    Attributes:
        num_inputs: Number of held-out inputs.
        limits: Lower and upper limit of each number of `PictureStatistics`, by its name. Levels of
            noise are in 8-bit levels. ``detail`` is the weighted sum of its spectrum.
        weights: Those of ``detail``; none where it was not fitted.
        sums: Those of `musigma.uncertainty.fitted_sums`, by what they tell.
    """

    num_inputs: int
    limits: Mapping[str, Limits]
    weights: tuple[float, ...] = ()
    sums: Mapping[str, FittedSum] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; an open limit is `None`."""
        limits = {
            name: [round(value, 3) if math.isfinite(value) else None for value in limit]
            for name, limit in self.limits.items()
        }
        stored: dict[str, Any] = {"num_inputs": self.num_inputs, "limits": limits}
        if self.weights:
            stored["weights"] = list(self.weights)
        if self.sums:
            stored["sums"] = {
                name: {"weights": list(fitted.weights), "limit": fitted.limit}
                for name, fitted in self.sums.items()
            }
        return stored

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Reference":
        """Return what `to_dict` described; numbers that are not known here are left out."""
        try:
            limits = {
                name: Limits(
                    -math.inf if low is None else float(low),
                    math.inf if high is None else float(high),
                )
                for name, (low, high) in data["limits"].items()
                if name in _TAILS
            }
            weights = tuple(float(weight) for weight in data.get("weights", ()))
            sums = {
                name: FittedSum(tuple(map(float, stored["weights"])), float(stored["limit"]))
                for name, stored in data.get("sums", {}).items()
            }
            number = int(data["num_inputs"])
            return cls(num_inputs=number, limits=limits, weights=weights, sums=sums)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"the reference of a calibration has num_inputs and limits: {error!r}"
            ) from error


def fit_reference(
    inputs: Sequence[PictureStatistics],
    *,
    softened: Sequence[PictureStatistics] = (),
    spoiled: Mapping[str, Sequence[PictureStatistics]] | None = None,
    num_images: int | None = None,
    mixture: bool = False,
) -> Reference | None:
    """Return the limits of held-out inputs, or `None` where these are too few.

    Args:
        inputs: What `musigma.functional.picture_statistics.measure` found in each.
        softened: The same after a little blur. With them ``detail`` is fitted.
        spoiled: Some of them, spoiled, by the names of `musigma.evaluation.spoiled_inputs`.
        num_images: Number of different images; the i-th input shows image ``i % num_images``. As
            many as there are inputs where it is left out.
        mixture: Whether they were degraded in several ways, among them blur: then the limits are
            wider, and ``detail`` is not fitted.

    Example:
        >>> from musigma.functional.picture_statistics import PictureStatistics
        >>> inputs = [PictureStatistics(noise_std=0.1 * i, coarse_noise_std=0.1 * i, sharpness=-5.0,
        ...                             rolloff=-2.0, block_edges=0.0) for i in range(20)]
        >>> round(fit_reference(inputs).limits["noise_std"].high, 1)
        2.4
    """
    if len(inputs) < LEAST_INPUTS:
        return None
    weights = () if mixture else _detail_weights(inputs, softened)
    rows = [_numbers(statistics, weights) for statistics in inputs]
    limits = {
        name: _limits(name, [row[name] for row in rows if name in row], mixture=mixture)
        for name in _TAILS
        if any(name in row for row in rows)
    }
    sums = fit_sums(
        inputs,
        spoiled or {},
        num_images=num_images or len(inputs),
        share=_SPOILED_SHARE if mixture else 0.0,
        margin=0.0 if mixture else _SPOILED_MARGIN,
    )
    return Reference(num_inputs=len(inputs), limits=limits, weights=weights, sums=sums)


def _detail_weights(
    inputs: Sequence[PictureStatistics], softened: Sequence[PictureStatistics]
) -> tuple[float, ...]:
    """Return the weights of ``detail``; none where the inputs are too few."""
    sharp, soft = (
        np.array([statistics.spectrum for statistics in part if statistics.spectrum])
        for part in (inputs, softened)
    )
    if min(len(sharp), len(soft)) < LEAST_INPUTS:
        return ()
    weights = discriminant(sharp, soft, shrinkage=_DETAIL_SHRINKAGE)
    return tuple(round(float(weight), 4) for weight in weights)


def _numbers(statistics: PictureStatistics, weights: Sequence[float]) -> dict[str, float]:
    """Return the numbers of a picture that are compared, by their names."""
    numbers = {
        name: value for name, value in statistics.to_dict().items() if not isinstance(value, tuple)
    }
    if weights and len(statistics.spectrum) == len(weights):
        numbers["detail"] = float(np.dot(weights, statistics.spectrum))
    return numbers


def unlike(
    reference: Reference, statistics: PictureStatistics, *, noise_std: float | None = None
) -> list[str]:
    """Say in words how a picture differs from the inputs of a calibration.

    Args:
        reference: What those were like.
        statistics: What was measured in the picture.
        noise_std: The noise level that the network is told, for a network that takes one. The
            measured noise is then compared with it.

    Returns:
        Whole sentences; none where the picture is like the inputs.

    Example:
        >>> from musigma.functional.picture_statistics import PictureStatistics
        >>> reference = Reference(num_inputs=100, limits={"block_edges": Limits(-math.inf, 0.2)})
        >>> picture = PictureStatistics(noise_std=0.4, coarse_noise_std=0.4, sharpness=-5.0,
        ...                             rolloff=-2.0, block_edges=1.1)
        >>> unlike(reference, picture)
        ['The picture has JPEG blocks, and the calibration pictures had none.']
    """
    numbers = _numbers(statistics, reference.weights)
    sides = {
        name: _side(numbers[name], limits)
        for name, limits in reference.limits.items()
        if name in numbers
    }
    if noise_std is not None:  # noise of another level has another spectrum
        sides.pop("detail", None)
        sides.pop("impulses", None)
    sentences = [_blocks_sentence(reference)] if sides.get("block_edges", 0) > 0 else []
    sentences += _noise_sentences(reference, statistics, sides, noise_std)
    sentences += [text for name, text in _TRACES.items() if sides.get(name, 0) > 0]
    softness = [sides.get(name, 0) for name in _SOFTNESS]
    if min(softness) < 0:
        sentences.append(_SOFTER)
    elif max(softness) > 0 and not sentences:  # noise and blocks look like fine details
        sentences.append(
            "The picture is sharper than the calibration pictures: it was sharpened, or shrunk "
            "without smoothing."
        )
    if not sentences and noise_std is None:
        spoiled = exceeded(reference.sums, statistics)
        sentences += [text for name, text in _SPOILED.items() if name in spoiled][:1]
    return sentences


def _blocks_sentence(reference: Reference) -> str:
    if reference.limits["block_edges"].high < _BLOCKS:
        return "The picture has JPEG blocks, and the calibration pictures had none."
    return "The picture has stronger JPEG blocks than the calibration pictures had."


def _noise_sentences(
    reference: Reference,
    statistics: PictureStatistics,
    sides: Mapping[str, int],
    noise_std: float | None,
) -> list[str]:
    noise = noise_of(statistics)
    if noise_std is not None:
        is_white = noise.is_white and sides.get("colour_grain_std", 0) <= 0
        return _told_level_sentences(noise.std, noise_std, is_white=is_white)
    for name, word in _NOISE_WORDS.items():
        if sides.get(name, 0) > 0:
            value, limit = getattr(statistics, name), reference.limits[name].high
            return [
                f"The picture has {word} of about {value:.2g} of 255, and the calibration pictures "
                f"had at most {limit:.2g}."
            ]
    return []


def _told_level_sentences(measured: float, told: float, *, is_white: bool) -> list[str]:
    if not is_white:
        return ["The noise of the picture is not white, and that of the calibration pictures was."]
    low, high = sorted((measured, told))
    if high <= _LEVEL_RATIO * low + _LEVEL_EXCESS:
        return []
    text = f"The noise of the picture is about {measured:.2g} of 255"
    return [f"{text}, and the model is told {told:.2g}."]


def _side(value: float, limits: Limits) -> int:
    """Return -1 below the limits, 1 above them, 0 between them."""
    return int(value > limits.high) - int(value < limits.low)


def _limits(name: str, values: Sequence[float], *, mixture: bool) -> Limits:
    tails, numbers = _TAILS[name].chosen(mixture=mixture), np.array(values, np.float64)
    is_level = name in _NOISE_WORDS
    if is_level:  # a level spreads in proportion to itself
        numbers = np.log2(numbers + _NOISE_OFFSET)
    usual = float(np.quantile(numbers, 0.95) - np.quantile(numbers, 0.05))
    margin = max(tails.least, tails.margin * usual)
    low, high = -math.inf, math.inf
    if tails.below is not None:
        low = float(np.quantile(numbers, tails.below)) - margin
    if tails.above is not None:
        high = max(tails.floor, float(np.quantile(numbers, 1 - tails.above)) + margin)
    return Limits(low, float(2**high - _NOISE_OFFSET) if is_level else high)
