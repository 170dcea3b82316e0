"""The record of a training run: what was trained, on which data, how, and with which result."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from musigma.datasets.catalog import data_hash, find_dataset
from musigma.evaluation.protocol import Protocol
from musigma.evaluation.record import Record
from musigma.model import load
from musigma.networks import mean_only, num_params
from musigma.training.recipe import DRAWN_SHAPES, Recipe
from musigma.training.setup import load_training_images, load_weights, training_data

CURVE = 60
"""About how many points of a curve a record keeps."""


def record_of(
    recipe: Recipe, weights: Path, protocol: Protocol, log: Sequence[dict[str, Any]]
) -> Record:
    """Make the record of the run that ended in a weights file.

    Args:
        recipe: The recipe of the run, with the paths of its data.
        weights: The file, which says how it was trained.
        protocol: The protocol by which the run was validated.
        log: The lines of its log.
    """
    model = load(weights)
    training = model.metadata["training"]
    published = recipe.published()
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
            "start_from": published["start_from"],
            **_start(recipe),
            "recipe": published,
        },
        protocol=measured,
        data=_data(recipe),
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


def _start(recipe: Recipe) -> dict[str, str]:
    """Return the digest of the weights that a run started from, if from any."""
    if not recipe.start_from:
        return {}
    start = load_weights(recipe.start_from, recipe.scale, any_scale=True)
    return {"start_digest": start.digest}


def _data(recipe: Recipe) -> dict[str, Any]:
    if DRAWN_SHAPES in recipe.data:
        images = load_training_images(recipe)
        digest = hashlib.sha256(b"".join(image.numpy().tobytes() for image in images))
        return {"name": DRAWN_SHAPES, "num_images": len(images), "hash": digest.hexdigest()}
    dataset = training_data(recipe)
    return {
        "name": dataset.name,
        "num_images": len(dataset.items),
        "hash": data_hash(dataset),
    }


def curve(log: Sequence[dict[str, Any]], name: str) -> list[tuple[int, float, float]]:
    """Return step, seconds and a number for about `CURVE` lines of a log.

    Example:
        >>> curve([{"step": 5, "seconds": 0.5, "loss": 0.1}, {"note": "resumed"}], "loss")
        [(5, 0.5, 0.1)]
    """
    points = [(line["step"], line["seconds"], line[name]) for line in log if name in line]
    every = max(1, len(points) // CURVE)
    return points[::-1][::every][::-1]  # reversed, so that the last point is always included
