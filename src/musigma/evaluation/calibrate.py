"""Fit a calibration to a model on held-out images, by the protocol it is measured by."""

from collections.abc import Callable
from typing import Literal, get_args

from musigma.datasets.catalog import Dataset
from musigma.evaluation.protocol import Protocol
from musigma.images.image_io import read_image
from musigma.model import Model
from musigma.prediction.predict import DEFAULT_MEMORY, predict
from musigma.types import ConfigError, nearest
from musigma.uncertainty.calibration import (
    Calibration,
    HeldOut,
    fit_average,
    fit_conformal,
    fit_expected,
    fit_isotonic,
    fit_risk_control,
    fit_scale,
)

Method = Literal["expected", "average", "scale", "isotonic", "conformal", "risk_control"]


def calibrate(
    model: Model,
    dataset: Dataset,
    protocol: Protocol,
    *,
    method: str,
    coverage: float,
    confidence: float,
    memory: int = DEFAULT_MEMORY,
    progress: Callable[[int, int, str], None] | None = None,
) -> Calibration:
    """Run a model over held-out images and fit the asked kind of calibration.

    Args:
        model: With a sigma branch.
        dataset: Images that the model was not trained on and will not be measured on.
        protocol: How inputs are made.
        method: ``expected``, ``average``, ``scale``, ``isotonic``, ``conformal`` or
            ``risk_control``.
        coverage: Share of the values that intervals should hold.
        confidence: Of the promise of ``conformal`` and ``risk_control``.
        memory: Bytes that a tile may need.
        progress: Called before each image with number, count and name.
    """
    if not model.has_sigma:
        raise ConfigError(f"{model.name} has no sigma branch; there is nothing to calibrate")
    if method not in get_args(Method):
        raise ConfigError(f"no calibration {method!r}; {nearest(method, get_args(Method))}")
    held_out = HeldOut()
    for number, item in enumerate(dataset.items):
        if progress:
            progress(number, len(dataset.items), item.name)
        degraded, target = protocol.pair(read_image(item.target)[0], item.name)
        mean, sigma = predict(
            model.network, degraded, noise_std=protocol.noise_level(model.network), memory=memory
        )
        assert sigma is not None
        held_out.update(mean, target, sigma)
    if method == "conformal":
        return fit_conformal(held_out, coverage=coverage, confidence=confidence)
    if method == "risk_control":
        return fit_risk_control(held_out, coverage=coverage, confidence=confidence)
    fits = {
        "expected": fit_expected,
        "average": fit_average,
        "scale": fit_scale,
        "isotonic": fit_isotonic,
    }
    return fits[method](held_out, coverage=coverage)
