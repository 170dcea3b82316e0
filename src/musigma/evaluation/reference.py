"""What the inputs of a calibration were like, measured for the guard."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from musigma.datasets.catalog import Dataset, data_hash
from musigma.degradations.pairs import PAIRS
from musigma.evaluation.protocol import Protocol, protocol_for
from musigma.evaluation.restored_pairs import errors_name, read_pair
from musigma.functional.blur import blur, gaussian_kernels
from musigma.functional.color import quantise
from musigma.functional.picture_statistics import PictureStatistics, measure
from musigma.model import Model
from musigma.networks import Network
from musigma.types import ConfigError
from musigma.uncertainty.guard import Reference, fit_reference

SOFTENING_STD, SOFTENING_RADIUS = 0.5, 2
"""The blur of `soften`, in pixels of the input."""


def measure_reference(
    dataset: Dataset, protocols: Protocol | Sequence[Protocol]
) -> Reference | None:
    """Measure the inputs that protocols make of a data set; no network is run.

    Args:
        dataset: The held-out images.
        protocols: How inputs are made. With several, each image is degraded in every way.

    Returns:
        The limits of the inputs, or `None` where these are too few.
    """
    listed = [protocols] if isinstance(protocols, Protocol) else protocols
    inputs = [part for protocol in listed for part in _measured(dataset, protocol)]
    if len(listed) > 1:
        return fit_reference(inputs, mixture=True)
    softened = _measured(dataset, listed[0], change=soften)
    return fit_reference(inputs, softened=softened)


def add_reference(model: Model, dataset: Dataset) -> Model:
    """Return a calibrated model whose calibration also says what its inputs were like.

    The inputs follow from the conditions that the calibration names; only the weights file's
    metadata changes. ``python -m studies.shipped_references`` does it for the shipped files.

    Args:
        model: A model whose calibration has no reference yet, or an old one.
        dataset: The images that it was calibrated on; their hash must be the same.
    """
    calibration = model.require_calibration()
    if calibration.data is None or calibration.data.get("hash") != data_hash(dataset):
        raise ConfigError(
            f"{dataset.name} is not what {model.name} was calibrated on; use 'musigma calibrate'"
        )
    protocols = protocols_of(model.network, calibration.protocol or {})
    reference = measure_reference(dataset, protocols)
    stored = None if reference is None else reference.to_dict()
    return replace(model, calibration=replace(calibration, reference=stored))


def protocols_of(network: Network, conditions: Mapping[str, Any]) -> list[Protocol]:
    """Return the protocols that a calibration names as its conditions."""
    degradation = conditions.get("degradation") or []
    texts = [degradation] if isinstance(degradation, str) else degradation
    if not texts:
        raise ConfigError("the calibration does not say how its inputs were made")
    return [
        protocol_for(network, pairs=True)
        if text == PAIRS
        else protocol_for(network, degradation=str(text))
        for text in texts
    ]


def soften(degraded: Tensor) -> Tensor:
    """Blur an input a little, about as much as the guard should be able to tell.

    Args:
        degraded: ``(1, C, H, W)`` in ``[0, 1]``; what comes back is rounded to 8 bits.

    Example:
        >>> dot = torch.zeros(1, 1, 9, 9)
        >>> dot[..., 4, 4] = 1
        >>> 0.5 < float(soften(dot)[0, 0, 4, 4]) < 0.8
        True
    """
    kernels = gaussian_kernels(torch.tensor([SOFTENING_STD]), radius=SOFTENING_RADIUS)
    return quantise(blur(degraded, kernels))


def _measured(
    dataset: Dataset, protocol: Protocol, *, change: Callable[[Tensor], Tensor] = lambda same: same
) -> list[PictureStatistics]:
    numbers = []
    for item in dataset.items:
        degraded = read_pair(item, protocol).degraded
        with errors_name(item.target):
            numbers.append(measure(change(degraded)))
    return numbers
