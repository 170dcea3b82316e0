"""Measure a model on a data set, by a protocol, image by image."""

from dataclasses import dataclass
from typing import Any

import torch

from musigma.datasets.catalog import Dataset, describe_data
from musigma.evaluation.protocol import Protocol
from musigma.evaluation.record import Record, provenance
from musigma.evaluation.restored_pairs import Progress, errors_name, restored_pairs
from musigma.model import Model
from musigma.networks import Network, num_params
from musigma.prediction.engines import Engine
from musigma.prediction.predict import DEFAULT_MEMORY
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
    network: Network,
    dataset: Dataset,
    protocol: Protocol,
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
        network: In evaluation mode, on its device.
        dataset: What to restore.
        protocol: How inputs are made and results measured.
        calibration: Turns sigma into intervals; by default sigma is taken as it is.
        coverage: Share of the values that the measured intervals should hold; by default that of
            the calibration, or 0.9.
        engine: Runs the network; by default PyTorch in float32.
        tile: Largest side of a tile.
        memory: Bytes that a tile may need.
        progress: Called before each image with number, count and name.
    """
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
    if coverage is None:
        coverage = calibration.coverage if calibration else DEFAULT_COVERAGE
    luma = protocol.measured_on != "all" and network.out_channels == 3
    return UncertaintyMetrics(calibration, coverage=coverage, luma=luma)
