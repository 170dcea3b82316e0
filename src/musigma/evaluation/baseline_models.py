"""Models whose sigma comes from a baseline, to be calibrated and measured like any other model.

The networks themselves are in `musigma.uncertainty.baselines`; this module puts loaded weights into
them, and fits what must be fitted to held-out images.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

from musigma.datasets.catalog import Dataset
from musigma.evaluation.calibrate import calibrate
from musigma.evaluation.protocol import Protocol
from musigma.evaluation.restored_pairs import Progress, errors_name, restored_pairs
from musigma.model import Model
from musigma.networks import mean_only
from musigma.prediction.predict import DEFAULT_MEMORY
from musigma.types import ConfigError, nearest
from musigma.uncertainty.baselines import (
    Baseline,
    Ensemble,
    MeanOverViews,
    SpreadOverViews,
    WithConstantSigma,
    mc_dropout,
)
from musigma.uncertainty.metrics.all_metrics import ConstantSigma

Method = Literal["constant", "ensemble", "mc-dropout", "self-ensemble", "tta"]
METHODS: tuple[Method, ...] = get_args(Method)

NUM_DRAWS = 8
"""Forward passes of Monte-Carlo dropout: as many as test-time augmentation has."""


def make_baseline(
    method: str,
    models: Sequence[Model],
    *,
    protocols: Sequence[Protocol],
    held_out: Dataset | None = None,
    memory: int = DEFAULT_MEMORY,
    progress: Progress | None = None,
) -> Model:
    """Make a baseline out of loaded weights. It has no calibration, whatever the weights carry.

    Args:
        method: ``constant``, ``ensemble``, ``mc-dropout``, ``self-ensemble`` or ``tta``.
        models: Loaded weights on their device; several for an ensemble, one for the others.
        protocols: How the inputs of held-out images are made.
        held_out: Images on which a constant sigma is the mean absolute error.
        memory: Bytes that a tile may need.
        progress: Called before each held-out image with number, count and name.
    """
    if method not in METHODS:
        raise ConfigError(f"there is no baseline {method!r}; {nearest(method, METHODS)}")
    if method == "ensemble":
        if len({model.digest for model in models}) < len(models):
            raise ConfigError("an ensemble is made of different weights; one of them came twice")
        return _baseline(method, Ensemble([model.network for model in models]), models)
    if len(models) > 1:
        raise ConfigError(f"only an ensemble takes several models; {method} got {len(models)}")
    network = models[0].network
    if method == "tta":
        return _baseline(method, SpreadOverViews(network), models)
    if method == "self-ensemble":
        return _baseline(method, MeanOverViews(network), models)
    if method == "mc-dropout":
        return _baseline(method, mc_dropout(network, num_samples=NUM_DRAWS), models)
    if held_out is None:
        raise ConfigError("a constant sigma is fitted to held-out images; give --calibrate-on")
    sigma = mean_error(models[0], held_out, protocols, memory=memory, progress=progress)
    return _baseline(method, WithConstantSigma(network, sigma), models)


def mean_error(
    model: Model,
    dataset: Dataset,
    protocols: Sequence[Protocol],
    *,
    memory: int = DEFAULT_MEMORY,
    progress: Progress | None = None,
) -> float:
    """Return the mean absolute error of a model over all values of all images of a set."""
    error, network = ConstantSigma(), mean_only(model.network)
    for protocol in protocols:
        for item, prediction, target in restored_pairs(
            network, dataset, protocol, memory=memory, progress=progress
        ):
            with errors_name(item.target):
                error.update(prediction.mean, target)
    return error.compute()


def calibrated(
    model: Model,
    held_out: Dataset,
    protocols: Sequence[Protocol],
    *,
    coverage: float,
    **options: Any,
) -> Model:
    """Return a model that is calibrated by ``pooled-quantile``, as all baselines are compared.

    It has the factor on sigma of largest PLL, and the factor on the intervals that makes them hold
    `coverage` of the held-out values. Options go to `calibrate`.
    """
    calibration = calibrate(
        model,
        held_out,
        protocols,
        method="pooled-quantile",
        coverage=coverage,
        sigma_map=False,
        **options,
    )
    return replace(model, calibration=calibration)


def _baseline(method: Method, network: Baseline, models: Sequence[Model]) -> Model:
    metadata: dict[str, Any] = {"baseline": method, "num_passes": network.num_passes}
    if len(models) == 1:
        training, digest = models[0].metadata.get("training", {}), models[0].digest
    else:
        training = _shared_training(models)
        metadata["members"] = [model.digest for model in models]
        digest = hashlib.sha256("".join(metadata["members"]).encode()).hexdigest()
    return Model(
        network=network.eval(),
        name=models[0].name,
        metadata={"training": training, **metadata},
        digest=digest,
    )


def _shared_training(models: Sequence[Model]) -> dict[str, Any]:
    """Return the recipe of all members, where it differs in the seed alone."""
    recipes = [model.metadata.get("training", {}).get("recipe", {}) for model in models]
    shared = [{k: v for k, v in recipe.items() if k != "seed"} for recipe in recipes]
    equal = all(recipe == shared[0] for recipe in shared)
    return {"recipe": shared[0]} if shared[0] and equal else {}
