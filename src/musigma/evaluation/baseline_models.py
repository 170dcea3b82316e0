"""Rivals of the sigma branch in the same harness: made, calibrated and measured like models."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

from musigma.datasets.catalog import Dataset, data_hash
from musigma.evaluation.calibrate import calibrate
from musigma.evaluation.evaluate import Progress
from musigma.evaluation.protocol import Protocol
from musigma.images.image_io import read_image
from musigma.networks import Model, entry, mean_only
from musigma.prediction.predict import DEFAULT_MEMORY, predict, with_noise_map
from musigma.types import ConfigError, nearest
from musigma.uncertainty.baselines import (
    Ensemble,
    MeanOverViews,
    Rival,
    SpreadOverViews,
    WithConstantSigma,
    mc_dropout,
)
from musigma.uncertainty.metrics.all_metrics import ConstantSigma

Method = Literal["constant", "ensemble", "mc-dropout", "self-ensemble", "tta"]
METHODS: tuple[Method, ...] = get_args(Method)

NUM_DRAWS = 8
"""Of Monte-Carlo dropout: as many forward passes as test-time augmentation has."""


def make_rival(
    method: str,
    models: Sequence[Model],
    *,
    protocol: Protocol,
    held_out: Dataset | None = None,
    memory: int = DEFAULT_MEMORY,
    progress: Progress | None = None,
) -> Model:
    """Make a rival out of loaded weights; it is to be calibrated anew, whatever they carry.

    Args:
        method: ``constant``, ``ensemble``, ``mc-dropout``, ``self-ensemble`` or ``tta``.
        models: On their device; several for an ensemble, one for the others.
        protocol: How pairs are made from held-out images.
        held_out: Images on which a constant sigma is the mean absolute error.
        memory: Bytes that a tile may need.
        progress: Called before each held-out image with number, count and name.
    """
    if method not in METHODS:
        raise ConfigError(f"there is no rival {method!r}; {nearest(method, METHODS)}")
    if method == "ensemble":
        if len({model.digest for model in models}) < len(models):
            raise ConfigError("an ensemble is made of different weights; one of them came twice")
        return _rival(method, Ensemble([model.network for model in models]), models)
    if len(models) > 1:
        raise ConfigError(f"only an ensemble takes several models; {method} got {len(models)}")
    network = models[0].network
    if method == "tta":
        return _rival(method, SpreadOverViews(network), models)
    if method == "self-ensemble":
        return _rival(method, MeanOverViews(network), models)
    if method == "mc-dropout":
        return _rival(method, mc_dropout(network, num_samples=NUM_DRAWS), models)
    if held_out is None:
        raise ConfigError("a constant sigma is fitted to held-out images; give --calibrate-on")
    sigma = mean_error(models[0], held_out, protocol, memory=memory, progress=progress)
    return _rival(method, WithConstantSigma(network, sigma), models)


def mean_error(
    model: Model,
    dataset: Dataset,
    protocol: Protocol,
    *,
    memory: int = DEFAULT_MEMORY,
    progress: Progress | None = None,
) -> float:
    """Return the mean absolute error of a model over all values of all images of a set."""
    found = ConstantSigma()
    for number, item in enumerate(dataset.items):
        if progress:
            progress(number, len(dataset.items), item.name)
        low, target = protocol.pair(read_image(item.target)[0], item.name)
        if entry(model.name).noise_map:
            low = with_noise_map(low, protocol.noise_std)
        found.update(predict(mean_only(model.network), low, memory=memory).mean, target)
    return found.compute()


def calibrated(
    model: Model, held_out: Dataset, protocol: Protocol, *, coverage: float, **options: Any
) -> Model:
    """Return a model with a calibration in memory: of one kind, ``average``, for all rivals.

    One factor on sigma of largest PLL, and one on the intervals that makes them hold `coverage` of
    the held-out values. Options go to `calibrate`.
    """
    fit = calibrate(
        model, held_out, protocol, method="average", coverage=coverage, confidence=0.9, **options
    )
    source = {"name": held_out.name, "hash": data_hash(held_out)}
    facts = {"calibration": fit.to_dict(), "calibration_data": source}
    return replace(model, metadata={**model.metadata, **facts})


def _rival(method: Method, network: Rival, models: Sequence[Model]) -> Model:
    facts: dict[str, Any] = {"rival": method, "num_passes": network.num_passes}
    if len(models) == 1:
        training, digest = models[0].metadata.get("training", {}), models[0].digest
    else:
        training = _shared_training(models)
        facts["members"] = [model.digest for model in models]
        digest = hashlib.sha256("".join(facts["members"]).encode()).hexdigest()
    return Model(
        network=network.eval(),
        name=models[0].name,
        metadata={"training": training, **facts},
        digest=digest,
    )


def _shared_training(models: Sequence[Model]) -> dict[str, Any]:
    """Return the recipe of all members, where it differs in the seed alone."""
    recipes = [model.metadata.get("training", {}).get("recipe", {}) for model in models]
    shared = [{k: v for k, v in recipe.items() if k != "seed"} for recipe in recipes]
    equal = all(recipe == shared[0] for recipe in shared)
    return {"recipe": shared[0]} if shared[0] and equal else {}
