"""Fit how the errors of a model are correlated, on held-out images."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from torch import Tensor

from musigma.datasets.catalog import Dataset
from musigma.evaluation.protocol import Protocol
from musigma.evaluation.restored_pairs import Progress, errors_name, read_pair, restored_pairs
from musigma.model import Model
from musigma.prediction.predict import DEFAULT_MEMORY
from musigma.types import ConfigError
from musigma.uncertainty.joint import Correlation, JointErrors
from musigma.uncertainty.joint_fit import HeldOutErrors
from musigma.uncertainty.quantities import HeldOutQuantities

CORRELATION_STEP = 3
"""Every third image fits the correlation; the others fit the factors of quantities."""


class HeldOutPicture(NamedTuple):
    """A restored image: its errors ``target - mean``, ``(C, H, W)``, and their joint model."""

    name: str
    residual: Tensor
    errors: JointErrors


def with_joint_errors(
    model: Model,
    dataset: Dataset,
    protocols: Sequence[Protocol],
    *,
    memory: int = DEFAULT_MEMORY,
    progress: Progress | None = None,
) -> tuple[Model, HeldOutQuantities]:
    """Return a calibrated model that also knows how its errors are correlated.

    Where the weights have a joint head, all images fit the factors of quantities. Otherwise every
    third image fits a correlation, which is the same in all pictures, and the others fit the
    factors: these would promise nothing if the correlation came from the same images.

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
    options: dict[str, Any] = {"memory": memory, "progress": progress}
    correlation, of_factors = None, dataset
    if model.joint_head is None:
        first, others = split_dataset(dataset)
        correlation = fit_correlation(model, first, protocols, **options)
        of_factors = others
    quantities = HeldOutQuantities()
    for picture in held_out_pictures(model, of_factors, protocols, correlation, **options):
        quantities.update(picture.residual, picture.errors, image=picture.name)
    fitted = replace(calibration, joint=quantities.fit(correlation).to_dict())
    return replace(model, calibration=fitted), quantities


def split_dataset(dataset: Dataset) -> tuple[Dataset, Dataset]:
    """Return the images that fit a correlation, and those that fit the factors."""
    others = [item for n, item in enumerate(dataset.items) if n % CORRELATION_STEP]
    first = replace(dataset, items=dataset.items[::CORRELATION_STEP])
    return first, replace(dataset, items=tuple(others))


def fit_correlation(
    model: Model,
    dataset: Dataset,
    protocols: Sequence[Protocol],
    *,
    memory: int = DEFAULT_MEMORY,
    progress: Progress | None = None,
) -> Correlation:
    """Return the correlation of a model's errors; arguments as for `with_joint_errors`."""
    calibration = model.require_calibration()
    errors = HeldOutErrors(scale=model.scale, channels=model.network.out_channels)
    for protocol in protocols:
        for _, (mean, sigma), target in restored_pairs(
            model.network, dataset, protocol, memory=memory, progress=progress
        ):
            assert sigma is not None
            errors.update(((target - mean) / calibration.std(sigma))[0])
    return errors.fit()


def held_out_pictures(
    model: Model,
    dataset: Dataset,
    protocols: Sequence[Protocol],
    correlation: Correlation | None,
    *,
    memory: int = DEFAULT_MEMORY,
    progress: Progress | None = None,
) -> Iterator[HeldOutPicture]:
    """Yield the errors of every image and protocol.

    Arguments are those of `with_joint_errors`. Without a correlation, the joint head gives it.
    """
    for protocol in protocols:
        for number, item in enumerate(dataset.items):
            if progress:
                progress(number, len(dataset.items), item.name)
            degraded, target = read_pair(item, protocol)
            noise_std = protocol.noise_level(model.network, item.name)
            with errors_name(item.target):
                (mean, _), errors = model.predict_errors(
                    degraded, correlation, noise_std=noise_std, memory=memory
                )
            yield HeldOutPicture(item.name, (target - mean)[0], errors)
