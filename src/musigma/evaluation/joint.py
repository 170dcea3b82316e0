"""Fit how the errors of a model belong together, on held-out images."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from musigma.datasets.catalog import Dataset
from musigma.evaluation.protocol import Protocol
from musigma.evaluation.restored_pairs import Progress, restored_pairs
from musigma.model import Model
from musigma.prediction.predict import DEFAULT_MEMORY
from musigma.types import ConfigError
from musigma.uncertainty.joint import Correlation
from musigma.uncertainty.joint_fit import HeldOutErrors
from musigma.uncertainty.quantities import HeldOutQuantities

CORRELATION_STEP = 3
"""One image in so many fits the correlation; the others fit the factors of quantities."""


class Errors(NamedTuple):
    """What became of a held-out image: ``target - mean`` and its std, ``(C, H, W)``."""

    name: str
    residual: Tensor
    std: Tensor


def with_joint_errors(
    model: Model,
    dataset: Dataset,
    protocols: Sequence[Protocol],
    *,
    memory: int = DEFAULT_MEMORY,
    progress: Progress | None = None,
) -> tuple[Model, HeldOutQuantities]:
    """Return a calibrated model that also knows how its errors belong together.

    Every third image fits the correlation, and the others the factors of quantities, which promise
    nothing for a correlation that was fitted to the same images.

    Args:
        model: A calibrated model.
        dataset: Images that the model was not trained on and will not be measured on.
        protocols: How inputs are made; each image is degraded in every way.
        memory: Bytes that a tile may need.
        progress: Called before each image with number, count and name.

    Returns:
        The model, and what its factors were fitted on.
    """
    calibration = model.require_calibration()
    if len(dataset.items) < 2:
        raise ConfigError("joint errors need two held-out images at least, and better a hundred")
    of_correlation = replace(dataset, items=dataset.items[::CORRELATION_STEP])
    others = [item for n, item in enumerate(dataset.items) if n % CORRELATION_STEP]
    options = {"memory": memory, "progress": progress}
    correlation = fit_correlation(model, of_correlation, protocols, **options)  # type: ignore[arg-type]
    quantities = HeldOutQuantities(correlation)
    of_factors = replace(dataset, items=tuple(others))
    for name, residual, std in held_out_errors(model, of_factors, protocols, **options):  # type: ignore[arg-type]
        quantities.update(residual, std, image=name)
    fitted = replace(calibration, joint=quantities.fit().to_dict())
    return replace(model, calibration=fitted), quantities


def fit_correlation(
    model: Model,
    dataset: Dataset,
    protocols: Sequence[Protocol],
    *,
    memory: int = DEFAULT_MEMORY,
    progress: Progress | None = None,
) -> Correlation:
    """Return the correlation of a model's errors; arguments as for `with_joint_errors`."""
    errors = HeldOutErrors(scale=model.scale, channels=model.network.out_channels)
    for _, residual, std in held_out_errors(
        model, dataset, protocols, memory=memory, progress=progress
    ):
        errors.update(residual / std)
    return errors.fit()


def held_out_errors(
    model: Model,
    dataset: Dataset,
    protocols: Sequence[Protocol],
    *,
    memory: int = DEFAULT_MEMORY,
    progress: Progress | None = None,
) -> Iterator[Errors]:
    """Yield the errors of every image and protocol; arguments as for `with_joint_errors`."""
    calibration = model.require_calibration()
    for protocol in protocols:
        for item, (mean, sigma), target in restored_pairs(
            model.network, dataset, protocol, memory=memory, progress=progress
        ):
            assert sigma is not None
            yield Errors(item.name, (target - mean)[0], calibration.std(sigma)[0])
