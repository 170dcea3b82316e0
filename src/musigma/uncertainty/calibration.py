"""How to read the sigma of a network: as a standard deviation, and as an interval.

A `Calibration` is fitted on held-out images by `musigma.uncertainty.fitting` and stored with the
weights. It names the images and the inputs that it was fitted for: no promise holds for others.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from musigma.functional.constants import SIGMA_FLOOR
from musigma.functional.scores import check_share
from musigma.types import ConfigError, Prediction, nearest, short_repr
from musigma.uncertainty.conformal import images_needed
from musigma.uncertainty.methods import FORMER_METHODS, METHODS, Method

_CLAIMS: dict[Method, str] = {
    "conformal-risk-control": "On average, at least {share} of an image",
    "conformal": "With probability {confidence}, at least {share} of an image",
    "risk-control": "With confidence {confidence}, on average at least {share}",
}
_NO_GUARANTEE = "Without a guarantee, about {share}"

Json = Mapping[str, Any]

NOISY_PAIRS = "noisy-pairs"
"""What stands in the place of a degradation where the targets were noisy, too."""

VERSION = 2
"""Of the table that `Calibration.to_dict` writes. Version 1 had one factor and no version."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Turns the sigma of a network into a standard deviation and an interval.

    Sigma, floored at `SIGMA_FLOOR`, is mapped to a standard deviation by straight lines through
    ``(knots, values)``, and proportionally outside them: a single knot is a scale factor. The
    interval is ``mean +- factor * std``. Errors are not normal, so every coverage has a factor of
    its own, fitted by the same method.

    Attributes:
        method: How it was fitted, which decides what `promise` says.
        knots: Sigmas as the network predicts them, increasing.
        values: The standard deviation at each knot, positive and not decreasing.
        factor: Half-width of the interval in units of the standard deviation.
        coverage: The share of values that the intervals should hold.
        confidence: The probability of the promise, or `None` where the method has none.
        num_images: Number of held-out images of the fit.
        other_factors: Further coverages, each with its factor, by increasing coverage.
        protocol: How the inputs of the fit were made, as `Protocol.as_json` writes it; `None` in
            files that do not say.
        data: Name and hash of the held-out images; `None` in files that do not say.
        reference: What the inputs of the fit were like, as `Reference.to_dict` of
            `musigma.uncertainty.guard` writes it; `None` in files that do not say.
        joint: How errors are correlated, as `JointCalibration.to_dict` of
            `musigma.uncertainty.quantities` writes it; `None` where that was not fitted.

    Example:
        >>> calibration = Calibration(method="pooled-quantile", knots=(1.0,), values=(1.5,),
        ...                           factor=2.0, coverage=0.9, confidence=None, num_images=100,
        ...                           other_factors=((0.5, 0.6), (0.95, 2.4)))
        >>> calibration.half_width(torch.tensor([0.01, 0.02]))
        tensor([0.0300, 0.0600])
        >>> calibration.half_width(torch.tensor([0.01, 0.02]), coverage=0.5)
        tensor([0.0090, 0.0180])
    """

    method: Method
    knots: tuple[float, ...]
    values: tuple[float, ...]
    factor: float
    coverage: float
    confidence: float | None
    num_images: int
    other_factors: tuple[tuple[float, float], ...] = ()
    protocol: Json | None = field(default=None, hash=False)
    data: Json | None = field(default=None, hash=False)
    reference: Json | None = field(default=None, hash=False)
    joint: Json | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        """Refuse what no fit would give: the numbers may come from a file."""
        check_method(self.method)
        _check_map(self.knots, self.values)
        _check_factors([*self.other_factors, (self.coverage, self.factor)])
        if self.num_images < 1:
            raise ConfigError(f"a fit takes at least one image, got {self.num_images}")
        if self.method in ("conformal", "risk-control"):
            check_share("confidence", self.confidence or 0)
        for part in (self.protocol, self.data, self.reference, self.joint):
            if not isinstance(part, Mapping | None):
                raise ConfigError(
                    "protocol, data, reference and joint of a calibration are tables, got "
                    f"{short_repr(part)}"
                )

    def std(self, sigma: Tensor) -> Tensor:
        """Return the standard deviation that belongs to each sigma, of the same shape."""
        knots, values = np.array(self.knots), np.array(self.values)
        rise = np.diff(values) / np.diff(knots)
        slopes = np.concatenate([values[:1] / knots[:1], rise, values[-1:] / knots[-1:]])
        offsets = np.concatenate([[0.0], values[:-1] - rise * knots[:-1], [0.0]])
        sigma = sigma.clamp_min(SIGMA_FLOOR)
        if len(knots) == 1:
            return float(slopes[0]) * sigma
        piece = torch.bucketize(sigma, sigma.new_tensor(knots))
        return sigma.new_tensor(slopes)[piece] * sigma + sigma.new_tensor(offsets)[piece]

    def half_width(self, sigma: Tensor, coverage: float | None = None) -> Tensor:
        """Return the half-width of the interval around the mean, of the same shape.

        Args:
            sigma: What the network predicted.
            coverage: One of `coverages`; by default `coverage`.
        """
        return self.at(coverage).factor * self.std(sigma)

    @property
    def factors(self) -> dict[float, float]:
        """The factor of every fitted coverage, by increasing coverage."""
        return dict(sorted([*self.other_factors, (self.coverage, self.factor)]))

    @property
    def coverages(self) -> tuple[float, ...]:
        """The coverages that were fitted, increasing."""
        return tuple(self.factors)

    def at(self, coverage: float | None) -> "Calibration":
        """Return the same calibration with another of its coverages as `coverage`.

        Args:
            coverage: One of `coverages`; `None` changes nothing.

        Raises:
            ConfigError: That coverage was not fitted; it names those that were.
        """
        if coverage in (None, self.coverage):
            return self
        factors = self.factors
        if coverage not in factors:
            raise ConfigError(self._why_not(coverage))
        factor = factors.pop(coverage)
        others = tuple(factors.items())
        return replace(self, coverage=coverage, factor=factor, other_factors=others)

    def _why_not(self, coverage: float) -> str:
        fitted = ", ".join(f"{share:g}" for share in self.coverages)
        text = f"intervals are calibrated for coverages of {fitted}, not of {coverage:g}"
        needed = images_needed(self.method, check_share("coverage", coverage), self.confidence)
        if needed > self.num_images:
            return (
                f"{text}, which needs at least {needed} held-out images and had {self.num_images}"
            )
        return f"{text}; 'musigma calibrate --coverage {coverage:g}' fits it to held-out images"

    @property
    def conditions(self) -> str:
        """For which images the intervals were fitted, to be read after "the intervals hold".

        Example:
            >>> calibration = Calibration(
            ...     method="isotonic", knots=(1.0,), values=(1.5,), factor=2.0, coverage=0.9,
            ...     confidence=None, num_images=100, data={"name": "DIV2K_crops"},
            ...     protocol={"degradation": "bicubic", "scale": 2})
            >>> calibration.conditions  # doctest: +NORMALIZE_WHITESPACE
            'for images like the 100 of the calibration (DIV2K_crops): clean, shrunk by 2 with
            bicubic (MATLAB)'
        """
        source = f" ({self.data['name']})" if self.data and "name" in self.data else ""
        inputs = "unknown" if self.protocol is None else describe_inputs(self.protocol)
        return f"for images like the {self.num_images} of the calibration{source}: {inputs}"

    @property
    def has_guarantee(self) -> bool:
        """Whether the method of the fit promises a coverage, and does not only aim at it."""
        return self.method in _CLAIMS

    @property
    def promise(self) -> str:
        """What the intervals promise and for which images, in one sentence."""
        claim = _CLAIMS.get(self.method, _NO_GUARANTEE).format(
            share=f"{100 * self.coverage:.4g} % of the true values", confidence=self.confidence
        )
        return f"{claim} lie inside their intervals, {self.conditions}; method: {self.method}"

    def includes_noise_std(self, noise_std: float) -> bool:
        """Return whether a noise level, in 8-bit levels, is one of those of the fit.

        Example:
            >>> calibration = Calibration(
            ...     method="isotonic", knots=(1.0,), values=(1.5,), factor=2.0, coverage=0.9,
            ...     confidence=None, num_images=9, protocol={"noise_std": 25.0})
            >>> calibration.includes_noise_std(25), calibration.includes_noise_std(50)
            (True, False)
        """
        fitted = (self.protocol or {}).get("noise_std")
        if fitted is None:
            return False
        low, high = (fitted, fitted) if isinstance(fitted, int | float) else fitted
        return bool(low <= noise_std <= high)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, for the metadata of a weights file or a record."""
        lists = {"knots": list(self.knots), "values": list(self.values)}
        others = [list(pair) for pair in self.other_factors]
        table = {"version": VERSION} | asdict(self) | lists | {"other_factors": others}
        if self.joint is None:  # so that programs from before joint errors can read the file
            del table["joint"]
        return table

    @classmethod
    def from_dict(cls, data: Json) -> "Calibration":
        """Return what `to_dict` described, or say which part is missing, unknown or no number.

        The oldest files have other names of methods and no conditions. Files of version 1 have the
        factor of one coverage.
        """
        if not isinstance(data, Mapping):
            raise ConfigError(f"a calibration is a table of values, got {data!r}")
        data = _renamed(data)
        known = {field.name for field in fields(cls)}
        required = {field.name for field in fields(cls) if field.default is MISSING}
        missing, unknown = required - data.keys(), data.keys() - known
        if missing or unknown:
            raise ConfigError(
                f"a calibration has the keys {sorted(known)}; missing {sorted(missing)}, "
                f"unknown {sorted(unknown)}"
            )
        try:
            calibration = cls(**(data | _as_numbers(data)))
            # What is computed from the stored texts: a hostile file must fail here, and not later.
            calibration.includes_noise_std(0)
            _ = calibration.conditions
            return calibration
        except (TypeError, ValueError, OverflowError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"a part of the calibration has a wrong type: {error}") from error


def _renamed(data: Json) -> dict[str, Any]:
    """Return a stored table with the names of today, without its version."""
    data = dict(data)
    version = data.pop("version", 1)
    if not isinstance(version, int) or not 1 <= version <= VERSION:
        raise ConfigError(
            f"the calibration has version {version!r}, and this program reads up to {VERSION}; "
            "install a newer musigma"
        )
    if "kind" in data and "method" not in data:
        former = data.pop("kind")
        data["method"] = FORMER_METHODS.get(str(former), former)
    return data


def _as_numbers(data: Json) -> dict[str, Any]:
    """Return the numbers of a stored table, lists as the tuples that they were."""
    others = [(number(share), number(factor)) for share, factor in data.get("other_factors", ())]
    confidence = data["confidence"]
    return {
        "knots": tuple(map(number, data["knots"])),
        "values": tuple(map(number, data["values"])),
        "factor": number(data["factor"]),
        "coverage": number(data["coverage"]),
        "confidence": None if confidence is None else number(confidence),
        "num_images": int(number(data["num_images"])),
        "other_factors": tuple(others),
    }


def number(value: object) -> float:
    """Return a number of a stored table, or refuse what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"a calibration is made of numbers, got {value!r}")
    return float(value)


def check_method(method: str) -> None:
    """Refuse the name of a method that does not exist."""
    if method not in METHODS:
        raise ConfigError(
            f"there is no calibration method {method!r}; {nearest(str(method), METHODS)}"
        )


def describe_inputs(protocol: Json) -> str:
    """Return in words how the inputs of a protocol were made.

    Example:
        >>> describe_inputs({"degradation": "noise(25)", "noise_std": 25.0, "scale": 1})
        'clean, with white noise of standard deviation 25 (8-bit levels)'
        >>> describe_inputs({"degradation": "area | jpeg(75)", "scale": 2})
        'made by "area | jpeg(75)" at scale 2'
        >>> describe_inputs({"degradation": ["bicubic", "noise(5)", "jpeg(75)"], "scale": 2})
        'a mixture of clean, noisy, JPEG-compressed images (scale 2, 3 kinds of input)'
    """
    degradation, scale = protocol.get("degradation"), protocol.get("scale")
    if degradation == "bicubic":
        return f"clean, shrunk by {scale} with bicubic (MATLAB)"
    if degradation == "pairs":
        return "degraded as in the pairs of files of the calibration"
    if degradation == NOISY_PAIRS:
        return "noisy as the pairs of noisy pictures of the calibration, for the clean scene"
    texts = [degradation] if isinstance(degradation, str) else list(degradation or ["unknown"])
    if len(texts) == 1 and (level := _WHITE_NOISE.fullmatch(texts[0])):
        numbers = level[1] if level[2] is None else f"{level[1]} to {level[2]}"
        return f"clean, with white noise of standard deviation {numbers} (8-bit levels)"
    if len(texts) == 1 and len(texts[0]) <= _READABLE:
        return f'made by "{texts[0]}" at scale {scale}'
    kinds = f", {len(texts)} kinds of input" if len(texts) > 1 else ""
    return f"{_mixture(texts)} (scale {scale}{kinds})"


def _mixture(texts: list[str]) -> str:
    """Say in words what a mixture of degradations, too long to be read, holds."""
    stages = {name for text in texts for name in re.findall(r"[a-z_]+", text)}
    words = dict.fromkeys(word for stage, word in _STAGE_WORDS.items() if stage in stages)
    return f"a mixture of clean, {', '.join(words)} images"


_STAGE_WORDS = {
    "blur": "blurred",
    "motion": "blurred",
    "noise": "noisy",
    "poisson": "noisy",
    "bilateral": "smoothed",
    "wiener": "smoothed",
    "resample": "resampled",
    "jpeg": "JPEG-compressed",
}
_NUMBER = r"(\d+(?:\.\d+)?)"
_WHITE_NOISE = re.compile(rf"noise\({_NUMBER}(?:\.\.{_NUMBER}(?::log)?)?\)")
_READABLE = 100


def _check_factors(pairs: Sequence[tuple[float, float]]) -> None:
    coverages, factors = np.array(pairs, np.float64).T
    for coverage in coverages:
        check_share("coverage", float(coverage))
    if len(set(coverages)) < len(coverages):
        raise ConfigError("a coverage of the calibration has two factors")
    for factor in factors:
        if not 0 < factor < np.inf:
            raise ConfigError(f"the factor of a calibration must be positive, got {factor}")
    if not (np.diff(factors[np.argsort(coverages)]) >= 0).all():
        raise ConfigError("the factors of a calibration must not decrease with the coverage")


def _check_map(knots: tuple[float, ...], values: tuple[float, ...]) -> None:
    keys, stds = np.array(knots, np.float64), np.array(values, np.float64)
    if keys.ndim != 1 or keys.shape != stds.shape or not len(keys):
        raise ConfigError(
            "a calibration has as many knots as values, at least one of each; got "
            f"{len(knots)} knots for {len(values)} values"
        )
    if not (keys[0] > 0 and (np.diff(keys) > 0).all() and np.isfinite(keys).all()):
        raise ConfigError("the knots of a calibration must be positive and increase")
    if not (stds[0] > 0 and (np.diff(stds) >= 0).all() and np.isfinite(stds).all()):
        raise ConfigError("the values of a calibration must be positive and not decrease")


def sigma_of(prediction: Prediction) -> Tensor:
    """Return the sigma of a prediction, or refuse what has none."""
    if not isinstance(prediction, Prediction):
        raise ConfigError(
            f"expected the Prediction that `predict` returns, got {type(prediction).__name__}"
        )
    if prediction.sigma is None:
        raise ConfigError("the prediction has no sigma; use a model with a sigma branch")
    return prediction.sigma
