"""Whether a picture is like those that a calibration was fitted on.

The promise of a calibration holds for pictures like the held-out ones. What those were like is kept
as a `Reference`: for each number of `musigma.functional.picture_statistics` the limits that hardly
any held-out input exceeds. `unlike` compares a picture with them and says in words what differs.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from musigma.functional.noise import noise_of
from musigma.functional.picture_statistics import PictureStatistics
from musigma.types import ConfigError

LEAST_INPUTS = 20
"""Limits of fewer inputs say little; no reference is made of them."""

_NOISE_OFFSET = 0.5
_LEVEL_RATIO, _LEVEL_EXCESS = 1.6, 3.0
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
    """

    below: float | None
    above: float
    margin: float
    least: float = 0.0


# Chosen by ten-fold cross-validation on DIV2K_crops, so that at most 5 % of clean inputs are spoken
# of. Softness gets nearly all of it: unknown blur costs the most coverage, and is hard to tell.
_TAILS = {
    "noise_std": _Tails(None, 0.0, 0.15),
    "coarse_noise_std": _Tails(None, 0.0, 0.1),
    "sharpness": _Tails(0.0, 0.0, 0.15),
    "rolloff": _Tails(0.02, 0.0, 0.05),
    "block_edges": _Tails(None, 0.0, 0.1, least=0.1),
}


_MIXTURE_MARGIN, _MIXTURE_NOISE_MARGIN = 0.1, 0.02


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What the inputs of a calibration were like.

    Attributes:
        num_inputs: Number of held-out inputs.
        limits: Lower and upper limit of each number of `PictureStatistics`, by its name. Levels of
            noise are in 8-bit levels.
    """

    num_inputs: int
    limits: Mapping[str, Limits]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; an open limit is `None`."""
        limits = {
            name: [round(value, 3) if math.isfinite(value) else None for value in limit]
            for name, limit in self.limits.items()
        }
        return {"num_inputs": self.num_inputs, "limits": limits}

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
            return cls(num_inputs=int(data["num_inputs"]), limits=limits)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"the reference of a calibration has num_inputs and limits: {error!r}"
            ) from error


def fit_reference(
    inputs: Sequence[PictureStatistics], *, mixture: bool = False
) -> Reference | None:
    """Return the limits of held-out inputs, or `None` where these are too few.

    Args:
        inputs: What `musigma.functional.picture_statistics.measure` found in each.
        mixture: Whether they were degraded in several ways. One of these may then lie at the limits
            as a whole, such as the strongest blur, so that none of the inputs is left outside.

    Example:
        >>> from musigma.functional.picture_statistics import PictureStatistics
        >>> inputs = [PictureStatistics(noise_std=0.1 * i, coarse_noise_std=0.1 * i, sharpness=-5.0,
        ...                             rolloff=-2.0, block_edges=0.0) for i in range(20)]
        >>> round(fit_reference(inputs).limits["noise_std"].high, 1)
        2.4
    """
    if len(inputs) < LEAST_INPUTS:
        return None
    rows = [asdict(statistics) for statistics in inputs]
    limits = {name: _limits(name, [row[name] for row in rows], mixture=mixture) for name in _TAILS}
    return Reference(num_inputs=len(inputs), limits=limits)


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
    sides = {
        name: _side(getattr(statistics, name), limits) for name, limits in reference.limits.items()
    }
    sentences = [_blocks_sentence(reference)] if sides.get("block_edges", 0) > 0 else []
    sentences += _noise_sentences(reference, statistics, sides, noise_std)
    softness = sides.get("sharpness", 0) or sides.get("rolloff", 0)
    if softness < 0:
        sentences.append(
            "The picture is softer than the calibration pictures: it was blurred, enlarged, or "
            "shrunk in another way."
        )
    elif softness > 0 and not sentences:  # noise and blocks look like fine details
        sentences.append(
            "The picture is sharper than the calibration pictures: it was sharpened, or shrunk "
            "without smoothing."
        )
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
        return _told_level_sentences(noise.std, noise_std, is_white=noise.is_white)
    for name, word in (("noise_std", "noise"), ("coarse_noise_std", "coarse noise or grain")):
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
    tails, numbers = _TAILS[name], np.array(values, np.float64)
    is_noise = name.endswith("noise_std")
    if mixture and is_noise:  # the levels of a mixture spread over octaves
        tails = tails._replace(margin=_MIXTURE_NOISE_MARGIN)
    elif mixture and tails.below is not None:
        tails = tails._replace(below=0.0, margin=_MIXTURE_MARGIN)
    if is_noise:  # a level spreads in proportion to itself
        numbers = np.log2(numbers + _NOISE_OFFSET)
    usual = float(np.quantile(numbers, 0.95) - np.quantile(numbers, 0.05))
    margin = max(tails.least, tails.margin * usual)
    high = float(np.quantile(numbers, 1 - tails.above)) + margin
    low = -math.inf
    if tails.below is not None:
        low = float(np.quantile(numbers, tails.below)) - margin
    return Limits(low, float(2**high - _NOISE_OFFSET) if is_noise else high)
