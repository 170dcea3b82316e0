"""The record of a training run: what was trained, on what, how, and how it went."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from musigma.datasets.catalog import data_hash, find_dataset
from musigma.evaluation.protocol import Protocol
from musigma.evaluation.record import Record
from musigma.model import load
from musigma.networks import mean_only, num_params
from musigma.training.recipe import make_recipe
from musigma.training.setup import training_data

CURVE = 60
"""About how many points of a curve a record keeps."""


def record_of(weights: Path, protocol: Protocol, log: Sequence[dict[str, Any]]) -> Record:
    """Make the record of the run that ended in a weights file.

    Args:
        weights: The file, which says how it was trained.
        protocol: By which the run was validated.
        log: The lines of its journal.
    """
    model = load(weights)
    training = model.metadata["training"]
    recipe = make_recipe(training["recipe"])
    dataset = training_data(recipe)
    measured = protocol.as_json()
    if recipe.validation:
        validation = find_dataset(recipe.validation)
        measured |= {"validation": validation.name, "validation_hash": data_hash(validation)}
    keys = ("commit", "commit_source", "musigma", "torch", "python", "device", "date")
    return Record(
        kind="training",
        model={
            "name": model.name,
            "scale": model.scale,
            "params": num_params(mean_only(model.network)),
            "digest": model.digest,
            "start_from": recipe.start_from,
            "recipe": recipe.as_json(),
        },
        protocol=measured,
        data={
            "name": dataset.name,
            "num_images": len(dataset.items),
            "hash": data_hash(dataset),
        },
        result={
            "seconds": training["seconds"],
            "steps": training["steps"],
            "validation": training["validation"],
            "loss_curve": curve(log, "loss"),
            "psnr_curve": curve(log, "psnr_y") or curve(log, "psnr"),
        },
        provenance={key: training[key] for key in keys if key in training},
        seed=recipe.seed,
    )


def curve(log: Sequence[dict[str, Any]], name: str) -> list[tuple[int, float, float]]:
    """Return step, seconds and a number, thinned out.

    Example:
        >>> curve([{"step": 5, "seconds": 0.5, "loss": 0.1}, {"note": "resumed"}], "loss")
        [(5, 0.5, 0.1)]
    """
    points = [(line["step"], line["seconds"], line[name]) for line in log if name in line]
    every = max(1, len(points) // CURVE)
    return points[::-1][::every][::-1]  # the last point is always among them
