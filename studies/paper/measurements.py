"""Records flattened into measurements, so that a cell of a table can look for its numbers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from musigma.evaluation.record import Record, load_record
from musigma.types import DataError

RELEASED = "released"
"""Stands for the objective where weights were released by others and do not say theirs."""

REPOSITORY = Path(__file__).parents[1] / "results"
"""Where the records lie when the package is used from its repository."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The numbers of one network on one set.

    Attributes:
        network: Registered name.
        scale: Zoom factor; 1 for denoising.
        objective: What it was trained with, without spaces; `RELEASED`, or empty without weights.
        seed: Of the training.
        recipe: Of the training; empty for weights of others.
        data: Name of the set.
        protocol: How it was measured.
        result: The mean over the images, by metric.
        images: The value of each image, by metric and name.
        baseline: The other way by which the network came to a sigma, such as ``constant``.
        source: Path of the record below the folder of records.
    """

    network: str
    scale: int
    objective: str
    seed: int | None
    recipe: Mapping[str, Any]
    data: str
    protocol: Mapping[str, Any]
    result: Mapping[str, float]
    images: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    baseline: str = ""
    source: str


@dataclass(frozen=True)
class Book:
    """The records of a folder and what they measured.

    Attributes:
        folder: Where they lie.
        records: By their path below it.
        measurements: Of networks as they were trained.
        baselines: Of networks with a sigma that was not trained, some with another mean, too.
    """

    folder: Path
    records: Mapping[str, Record]
    measurements: tuple[Measurement, ...]
    baselines: tuple[Measurement, ...] = ()


def open_book(folder: Path | None = None) -> Book:
    """Read all records of a folder, by default of the repository's ``studies/results``."""
    tried = [folder] if folder else [REPOSITORY, Path("studies/results")]
    found = next((place for place in tried if place.is_dir()), None)
    if found is None:
        places = " or ".join(str(place) for place in tried)
        raise DataError(
            f"there are no records in {places}; give --records DIR, such as studies/results "
            "of a checkout of the repository"
        )
    paths = sorted(found.rglob("*.json"))
    if not paths:
        raise DataError(f"{found} holds no record (*.json); musigma evaluate --record makes one")
    records = {path.relative_to(found).as_posix(): load_record(path) for path in paths}
    measured = [one for source, record in records.items() for one in measurements(record, source)]
    plain, baselines = (
        tuple(one for one in measured if bool(one.baseline) is r) for r in (False, True)
    )
    return Book(found, records, plain, baselines)


def measurements(record: Record, source: str) -> Iterator[Measurement]:
    """Yield what a record measured: one set of an evaluation, every set a training run tells of."""
    if record.kind == "evaluation":
        by_image = record.images
        metrics = {metric for values in by_image.values() for metric in values}
        images = {m: {name: v[m] for name, v in by_image.items() if m in v} for m in metrics}
        yield _measurement(record, source, record.data["name"], record.result, images)
    elif record.kind == "training":
        for name, values in _sets(record.result):
            data = record.protocol.get("validation", name) if name == "validation" else name
            images = {metric: by for metric, value in values.items() if (by := _by_image(value))}
            means = {metric: sum(by.values()) / len(by) for metric, by in images.items()}
            numbers = {m: v for m, v in values.items() if isinstance(v, int | float)}
            yield _measurement(record, source, data, numbers | means, images)


def _measurement(
    record: Record,
    source: str,
    data: str,
    result: Mapping[str, Any],
    images: Mapping[str, Mapping[str, float]],
) -> Measurement:
    model = record.model
    recipe = model.get("recipe") or (model.get("training") or {}).get("recipe") or {}
    objective = recipe.get("objective") or (RELEASED if model["digest"] else "")
    return Measurement(
        network=model["name"],
        scale=model["scale"],
        objective=without_spaces(objective),
        seed=recipe.get("seed", record.seed),
        recipe=recipe,
        data=data,
        protocol=record.protocol,
        result={name: value for name, value in result.items() if value is not None},
        images=images,
        baseline=model.get("baseline", ""),
        source=source,
    )


def without_spaces(text: str) -> str:
    """Return an objective's text in the form in which two of them are compared."""
    return "".join(text.split())


def _sets(values: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every named set of numbers that has a PSNR, however deep it lies."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            if "psnr_y" in value or "psnr" in value:
                yield name, value
            else:
                yield from _sets(value)


def _by_image(value: Any) -> dict[str, float]:
    """Return values by image, of a mapping or of a list; nothing of a single number."""
    if isinstance(value, list):
        value = {str(number): one for number, one in enumerate(value)}
    if not isinstance(value, Mapping):
        return {}
    return {name: one for name, one in value.items() if one is not None}
