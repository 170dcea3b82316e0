"""Measure a model on a data set, by a protocol, image by image."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from musigma.datasets.catalog import Dataset, describe_data, find_dataset
from musigma.evaluation.protocol import Protocol, protocol_for
from musigma.evaluation.record import Record, provenance
from musigma.evaluation.restored_pairs import Progress, errors_name, restored_pairs
from musigma.model import Model
from musigma.networks import Network, num_params
from musigma.prediction.engines import Engine
from musigma.prediction.predict import DEFAULT_MEMORY
from musigma.types import ConfigError
from musigma.uncertainty.calibration import Calibration
from musigma.uncertainty.methods import DEFAULT_COVERAGE
from musigma.uncertainty.metrics.all_metrics import UncertaintyMetrics

COPIED_METADATA = ("baseline", "num_passes", "members", "calibration", "wraps")
"""Metadata of a model that a record repeats, besides how it was trained."""


@dataclass(frozen=True)
class Evaluation:
    """The numbers of a data set: the mean over its images, and each image's own."""

    summary: dict[str, float]
    images: dict[str, dict[str, float]]


def evaluate(
    network: Network | Model,
    dataset: Dataset | str | Path,
    protocol: Protocol | None = None,
    *,
    calibration: Calibration | None = None,
    coverage: float | None = None,
    engine: Engine | None = None,
    tile: int | None = None,
    memory: int = DEFAULT_MEMORY,
    progress: Progress | None = None,
) -> Evaluation:
    """Restore every image of a set and measure the results.

    Args:
        network: A model, or a network in evaluation mode, on its device.
        dataset: What to restore; or a folder of images, or the name of a set, as for
            `musigma.datasets.catalog.find_dataset`.
        protocol: How inputs are made and results measured; by default that of
            `musigma.evaluation.protocol_for`. A network of scale 1 needs one, unless the set has
            pairs.
        calibration: Turns sigma into intervals; by default that of the model. Without one sigma is
            taken as it is.
        coverage: Share of the values that the measured intervals should hold; by default that of
            the calibration, or 0.9.
        engine: Runs the network; by default PyTorch in float32.
        tile: Largest side of a tile.
        memory: Bytes that a tile may need.
        progress: Called before each image with number, count and name.
    """
    if isinstance(network, Model):
        calibration = calibration or network.calibration
        network = network.network
    if not isinstance(network, Network):
        raise ConfigError(
            f"evaluate takes a model or a network, got {type(network).__name__}; musigma.load "
            "gives a model"
        )
    dataset, protocol = _chosen(network, dataset, protocol)
    # Made first, so that a wrong coverage is refused before the first image is restored.
    uncertainty = _uncertainty_metrics(network, protocol, calibration, coverage)
    images: dict[str, dict[str, float]] = {}
    options: dict[str, Any] = {"engine": engine, "tile": tile, "memory": memory}
    for item, (mean, sigma), target in restored_pairs(
        network, dataset, protocol, progress=progress, **options
    ):
        with errors_name(item.target):
            images[item.name] = protocol.fidelity(mean, target)
            if uncertainty is not None and sigma is not None:
                uncertainty.update(mean, target, sigma)
    names = next(iter(images.values())).keys()
    summary = {name: sum(own[name] for own in images.values()) / len(images) for name in names}
    if uncertainty is not None:
        summary |= uncertainty.compute()
    return Evaluation(summary, images)


def _chosen(
    network: Network, dataset: Dataset | str | Path, protocol: Protocol | None
) -> tuple[Dataset, Protocol]:
    if not isinstance(dataset, Dataset):
        reads_inputs = protocol is None or protocol.degradation is None
        dataset = find_dataset(dataset, scale=network.scale if reads_inputs else None)
    if protocol is None:
        pairs = dataset.inputs == "pairs"
        if network.scale == 1 and not pairs:
            raise ConfigError(
                "a network of scale 1 must be told how its inputs are made: give a protocol, such "
                "as musigma.evaluation.protocol_for(network, noise_std=25)"
            )
        protocol = protocol_for(network, pairs=pairs)
    return dataset, protocol


def evaluate_model(model: Model, dataset: Dataset, protocol: Protocol, **options: Any) -> Record:
    """Evaluate a model and make a record of it; options go to `evaluate`."""
    evaluation = evaluate(
        model.network, dataset, protocol, calibration=model.calibration, **options
    )
    stored = model.stored_metadata()
    training = model.metadata.get("training", {})
    device = next((p.device for p in model.network.parameters()), torch.device("cpu"))
    return Record(
        kind="evaluation",
        model={
            **describe_model(model),
            "training": training,
            **{key: stored[key] for key in COPIED_METADATA if key in stored},
        },
        protocol=protocol.as_json(),
        data={"num_images": len(dataset.items), **describe_data(dataset)},
        result=evaluation.summary,
        images=evaluation.images,
        provenance=provenance(device),
        seed=training.get("seed"),
    )


def describe_model(model: Model) -> dict[str, Any]:
    """Return what a record says of a model: name, scale, number of parameters, digest."""
    return {
        "name": model.name,
        "scale": model.scale,
        "params": num_params(model.network),
        "digest": model.digest,
    }


def _uncertainty_metrics(
    network: Network, protocol: Protocol, calibration: Calibration | None, coverage: float | None
) -> UncertaintyMetrics | None:
    if not network.has_sigma:
        return None
    luma = protocol.measured_on != "all" and network.out_channels == 3
    share = measured_coverage(calibration, coverage)
    return UncertaintyMetrics(calibration, coverage=share, luma=luma)


def measured_coverage(calibration: Calibration | None, coverage: float | None) -> float:
    """Return the coverage whose intervals are measured: the one asked for, or the calibration's."""
    if coverage is not None:
        return coverage
    return calibration.coverage if calibration else DEFAULT_COVERAGE
