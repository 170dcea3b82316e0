"""What the inputs of a calibration were like, measured for the guard."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from musigma.datasets.catalog import Dataset, data_hash
from musigma.degradations.pairs import PAIRS
from musigma.evaluation.protocol import Protocol, protocol_for
from musigma.evaluation.restored_pairs import errors_name, read_pair
from musigma.evaluation.spoiled_inputs import SPOILERS
from musigma.functional.blur import blur, gaussian_kernels
from musigma.functional.color import quantise
from musigma.functional.noise import image_generator
from musigma.functional.picture_statistics import MIN_SIDE, PictureStatistics, measure
from musigma.model import Model
from musigma.networks import Network
from musigma.types import ConfigError
from musigma.uncertainty.guard import Reference, fit_reference

SOFTENING_STD, SOFTENING_RADIUS = 0.5, 2
"""The blur of `soften`, in pixels of the input."""

_EVERY_OF_MIXTURE = 4
"""Of the inputs of a mixture, every so many are spoiled; all of those of one degradation."""


def measure_reference(
    dataset: Dataset, protocols: Protocol | Sequence[Protocol], *, spoil: bool = True
) -> Reference | None:
    """Measure the inputs that protocols make of a data set; no network is run.

    Args:
        dataset: The held-out images.
        protocols: How inputs are made. With several, each image is degraded in every way.
        spoil: Whether the guard also learns what spoiled inputs look like. Those of a network that
            is told the noise level differ more by that level than by anything else.

    Returns:
        The limits of the inputs, or `None` where these are too few.
    """
    listed = [protocols] if isinstance(protocols, Protocol) else protocols
    inputs, softened = [], []
    spoiled: dict[str, list[PictureStatistics]] = {name: [] for name in SPOILERS}
    step = _EVERY_OF_MIXTURE if len(listed) > 1 else 1
    for offset, protocol in enumerate(listed):
        for index, degraded in enumerate(_inputs(dataset, protocol)):
            inputs.append(measure(degraded))
            if len(listed) == 1:
                softened.append(measure(soften(degraded)))
            if spoil and (index + offset) % step == 0 and min(degraded.shape[2:]) >= MIN_SIDE:
                generator = image_generator(index, offset)
                for name, change in SPOILERS.items():
                    spoiled[name].append(measure(change(degraded, generator)))
    return fit_reference(
        inputs,
        softened=softened,
        spoiled=spoiled,
        num_images=len(dataset.items),
        mixture=len(listed) > 1,
    )


def add_reference(model: Model, dataset: Dataset) -> Model:
    """Return a calibrated model whose calibration also says what its inputs were like.

    The inputs follow from the conditions that the calibration names; only the weights file's
    metadata changes. ``python -m studies.shipped_weights.shipped_references`` does it for the
    shipped files.

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
    reference = measure_reference(dataset, protocols, spoil=not model.takes_noise_level)
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


def _inputs(dataset: Dataset, protocol: Protocol) -> Iterator[Tensor]:
    for item in dataset.items:
        degraded = read_pair(item, protocol).degraded
        with errors_name(item.target):
            yield degraded
