"""Fit a calibration to a model on held-out images, by the protocol it is measured by."""

from collections.abc import Callable
from dataclasses import replace

from musigma.datasets.catalog import Dataset, data_hash
from musigma.evaluation.protocol import Protocol
from musigma.images.image_io import read_image
from musigma.model import Model
from musigma.prediction.predict import DEFAULT_MEMORY, predict
from musigma.types import ConfigError
from musigma.uncertainty.calibration import Calibration, check_method
from musigma.uncertainty.fitting import HeldOut, fit
from musigma.uncertainty.methods import DEFAULT_CONFIDENCE


def calibrate(
    model: Model,
    dataset: Dataset,
    protocol: Protocol,
    *,
    method: str,
    coverage: float,
    confidence: float = DEFAULT_CONFIDENCE,
    memory: int = DEFAULT_MEMORY,
    progress: Callable[[int, int, str], None] | None = None,
) -> Calibration:
    """Run a model over held-out images and fit a calibration, which names its conditions.

    Args:
        model: With a sigma branch.
        dataset: Images that the model was not trained on and will not be measured on.
        protocol: How inputs are made.
        method: One of `musigma.uncertainty.methods.METHODS`.
        coverage: Share of the values that intervals should hold.
        confidence: Probability of the promise of ``conformal`` and ``risk-control``.
        memory: Bytes that a tile may need.
        progress: Called before each image with number, count and name.
    """
    if not model.has_sigma:
        raise ConfigError(f"{model.name} has no sigma branch; there is nothing to calibrate")
    check_method(method)
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
    calibration = fit(held_out, method, coverage=coverage, confidence=confidence)
    data = {"name": dataset.name, "hash": data_hash(dataset)}
    return replace(calibration, protocol=protocol.as_json(), data=data)
