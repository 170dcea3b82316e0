"""Fit a calibration to a model on held-out images, by the protocol it is measured by."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from musigma.datasets.catalog import Dataset, describe_data
from musigma.evaluation.protocol import Protocol
from musigma.evaluation.reference import measure_reference
from musigma.evaluation.restored_pairs import Progress, errors_name, restored_pairs
from musigma.functional.scores import check_share
from musigma.model import Model
from musigma.prediction.predict import DEFAULT_MEMORY
from musigma.types import ConfigError
from musigma.uncertainty.calibration import Calibration, check_method
from musigma.uncertainty.fitting import HeldOut, fit, fit_isotonic
from musigma.uncertainty.methods import (
    COVERAGES,
    DEFAULT_CONFIDENCE,
    DEFAULT_COVERAGE,
    METHODS,
    WITHOUT_FACTOR,
)

MAP_STEP = 5
"""Every fifth image fits the map of sigma of a mixture; the others fit the factors."""

MIN_MAP_IMAGES = 10
"""With fewer images for the map, all images fit the factors, and there is no map."""


def calibrate(
    model: Model,
    dataset: Dataset,
    protocols: Protocol | Sequence[Protocol],
    *,
    method: str = METHODS[0],
    coverage: float = DEFAULT_COVERAGE,
    confidence: float = DEFAULT_CONFIDENCE,
    sigma_map: bool = True,
    memory: int = DEFAULT_MEMORY,
    progress: Progress | None = None,
) -> Calibration:
    """Run a model over held-out images and fit a calibration, which names its conditions.

    All of `musigma.uncertainty.methods.COVERAGES` for which there are images enough are fitted.

    Args:
        model: A model with a sigma branch.
        dataset: Images that the model was not trained on and will not be measured on.
        protocols: How inputs are made. With several, each image is degraded in every way, and the
            promise holds for an image that is degraded in one of these ways, chosen at random.
            `uses_sigma_map` says when a map of sigma is fitted as well.
        method: One of `musigma.uncertainty.methods.METHODS`.
        coverage: Share of the values that intervals hold where nothing else is asked for.
        confidence: Probability of the promise of ``conformal`` and ``risk-control``.
        sigma_map: Whether a map of sigma may be fitted; without it all images fit the factors.
        memory: Bytes that a tile may need.
        progress: Called before each image with number, count and name.
    """
    return calibrate_with_groups(
        model,
        dataset,
        protocols,
        method=method,
        coverage=coverage,
        confidence=confidence,
        sigma_map=sigma_map,
        memory=memory,
        progress=progress,
    )[0]


def calibrate_with_groups(
    model: Model,
    dataset: Dataset,
    protocols: Protocol | Sequence[Protocol],
    *,
    method: str,
    coverage: float,
    confidence: float,
    sigma_map: bool = True,
    memory: int = DEFAULT_MEMORY,
    progress: Progress | None = None,
) -> tuple[Calibration, HeldOut]:
    """Do what `calibrate` does, and return as well what the fit was made from.

    In the latter each degradation is a group, whose coverage can be measured alone.
    """
    # Wrong settings are refused before the first image is restored.
    check_method(method)
    check_share("coverage", coverage)
    check_share("confidence", confidence)
    base, of_factors = None, dataset
    options: dict[str, Any] = {"memory": memory, "progress": progress}
    if sigma_map and uses_sigma_map(dataset, protocols, method):
        of_map, of_factors = split_off_map_images(dataset)
        base = fit_isotonic(
            collect_held_out(model, of_map, protocols, **options), coverage=coverage
        )
    held_out = collect_held_out(model, of_factors, protocols, base=base, **options)
    calibration = fit(
        held_out, method, coverage=coverage, confidence=confidence, other_coverages=COVERAGES
    )
    spoil = not model.takes_noise_level
    return with_conditions(calibration, dataset, protocols, spoil=spoil), held_out


def uses_sigma_map(dataset: Dataset, protocols: Protocol | Sequence[Protocol], method: str) -> bool:
    """Return whether `calibrate` fits a map of sigma before the factors.

    It does for a mixture of degradations, where small sigmas are too small more often than large
    ones, if every fifth image makes at least `MIN_MAP_IMAGES`. The map is the one of ``isotonic``.
    It comes from every fifth image and the factors from the others, because factors promise nothing
    for a map that was fitted to the same images.
    """
    enough = len(dataset.items) >= MAP_STEP * MIN_MAP_IMAGES
    return enough and len(_as_list(protocols)) > 1 and method not in WITHOUT_FACTOR


def split_off_map_images(dataset: Dataset) -> tuple[Dataset, Dataset]:
    """Return every fifth image of a set, for the map of sigma, and the others, for the factors."""
    of_map = dataset.items[::MAP_STEP]
    others = [item for n, item in enumerate(dataset.items) if n % MAP_STEP]
    return replace(dataset, items=of_map), replace(dataset, items=tuple(others))


def collect_held_out(
    model: Model,
    dataset: Dataset,
    protocols: Protocol | Sequence[Protocol],
    *,
    base: Calibration | None = None,
    memory: int = DEFAULT_MEMORY,
    progress: Progress | None = None,
) -> HeldOut:
    """Run a model over held-out images and return what fits need; arguments as in `calibrate`.

    Each degradation is a group of its own. A `base` from other images maps sigma first.
    """
    if not model.has_sigma:
        raise ConfigError(f"{model.name} has no sigma branch; there is nothing to calibrate")
    held_out = HeldOut(base)
    for protocol in _as_list(protocols):
        for item, (mean, sigma), target in restored_pairs(
            model.network, dataset, protocol, memory=memory, progress=progress
        ):
            assert sigma is not None
            with errors_name(item.target):
                held_out.update(mean, target, sigma, image=item.name, group=protocol.inputs)
    return held_out


def with_conditions(
    calibration: Calibration,
    dataset: Dataset,
    protocols: Protocol | Sequence[Protocol],
    *,
    spoil: bool = True,
) -> Calibration:
    """Return a calibration that names the images and the inputs it was fitted on.

    It also says what these inputs were like, so that unlike pictures can be told from them; `spoil`
    is for `measure_reference`.
    """
    reference = measure_reference(dataset, protocols, spoil=spoil)
    return replace(
        calibration,
        protocol=_as_json(_as_list(protocols)),
        data=describe_data(dataset),
        reference=None if reference is None else reference.to_dict(),
    )


def _as_json(protocols: Sequence[Protocol]) -> dict[str, Any]:
    if len(protocols) == 1:
        return protocols[0].as_json()
    shared = protocols[0].as_json() | {"name": "mixture", "noise_std": _all_levels(protocols)}
    return shared | {"degradation": [protocol.inputs for protocol in protocols]}


def _all_levels(protocols: Sequence[Protocol]) -> list[float] | None:
    """Return the least and the largest noise level, or `None` where a protocol has none."""
    levels: list[float] = []
    for protocol in protocols:
        level = protocol.as_json()["noise_std"]
        if level is None:
            return None
        levels += level if isinstance(level, list) else [level]
    return [min(levels), max(levels)]


def _as_list(protocols: Protocol | Sequence[Protocol]) -> list[Protocol]:
    return [protocols] if isinstance(protocols, Protocol) else list(protocols)
