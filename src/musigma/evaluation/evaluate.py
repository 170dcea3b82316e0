"""Measure a model on a data set, by a protocol, image by image."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from musigma.datasets.catalog import Dataset, data_hash
from musigma.evaluation.protocol import Protocol
from musigma.evaluation.record import Record, provenance
from musigma.images.image_io import read_image
from musigma.images.listing import image_error
from musigma.model import Model
from musigma.networks import Network, num_params
from musigma.prediction.predict import DEFAULT_MEMORY, predict
from musigma.types import ConfigError, DataError, ImageError
from musigma.uncertainty.calibration import Calibration
from musigma.uncertainty.metrics.all_metrics import UncertaintyMetrics

Progress = Callable[[int, int, str], None]


STATED = ("baseline", "num_passes", "members", "calibration", "calibration_data")
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
        coverage: Of the intervals that are measured; by default the calibration's, or 0.9.
        tile: Largest side of a tile.
        memory: Bytes that a tile may need.
        progress: Called before each image with number, count and name.
    """
    images: dict[str, dict[str, float]] = {}
    uncertainty: UncertaintyMetrics | None = None
    for number, item in enumerate(dataset.items):
        if progress:
            progress(number, len(dataset.items), item.name)
        image = read_image(item.target)[0]
        try:
            degraded, target = protocol.pair(image, item.name)
            prediction = predict(
                network,
                degraded,
                noise_std=protocol.noise_level(network),
                tile=tile,
                memory=memory,
            )
            images[item.name] = protocol.fidelity(prediction.mean, target)
        except ImageError as error:
            raise image_error(item.target, str(error)) from error
        if prediction.sigma is not None:
            if uncertainty is None:
                if coverage is None:
                    coverage = calibration.coverage if calibration else 0.9
                luma = protocol.measured_on == "y" and prediction.sigma.shape[1] == 3
                uncertainty = UncertaintyMetrics(calibration, coverage=coverage, luma=luma)
            uncertainty.update(prediction.mean, target, prediction.sigma)
    if not images:
        raise DataError(f"{dataset.name} holds no images to evaluate on")
    names = next(iter(images.values())).keys()
    summary = {name: sum(one[name] for one in images.values()) / len(images) for name in names}
    if uncertainty is not None:
        summary |= uncertainty.compute()
    return Evaluation(summary, images)


def evaluate_model(model: Model, dataset: Dataset, protocol: Protocol, **options: object) -> Record:
    """Evaluate loaded weights and make a record of it."""
    task = model.network.info.task
    if (task == "denoising") != (protocol.scale == 1):
        raise ConfigError(f"{model.name} is made for {task}; evaluate it with that protocol")
    found = evaluate(
        model.network,
        dataset,
        protocol,
        calibration=model.calibration,
        **options,  # type: ignore[arg-type]
    )
    stored = model.stored_metadata()
    device = next((p.device for p in model.network.parameters()), torch.device("cpu"))
    return Record(
        kind="evaluation",
        model={
            "name": model.name,
            "scale": model.scale,
            "params": num_params(model.network),
            "digest": model.digest,
            "training": model.metadata.get("training", {}),
            **{key: stored[key] for key in STATED if key in stored},
        },
        protocol=protocol.as_json(),
        data={
            "name": dataset.name,
            "num_images": len(dataset.items),
            "hash": data_hash(dataset),
        },
        result=found.summary,
        images=found.images,
        provenance=provenance(device),
        seed=model.metadata.get("training", {}).get("seed"),
    )
