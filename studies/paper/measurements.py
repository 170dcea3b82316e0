"""Records flattened into measurements, so that a cell of a table can look for its numbers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from musigma.evaluation.record import Record, load_record
from musigma.types import DataError

RELEASED = "released"
"""Stands for the objective of weights that others released without stating it."""

RESULTS = Path(__file__).parents[1] / "results"
"""The records of this repository."""


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

    def mean_of(self, metric: str, images: str = "") -> float:
        """Return the mean of a metric, over the images whose names begin with `images`."""
        if not images:
            return self.result[metric]
        return fmean(v for name, v in self.images[metric].items() if name.startswith(images))


@dataclass(frozen=True)
class RecordSet:
    """All records of a folder, and their measurements.

    Attributes:
        folder: The folder.
        records: By their path below it.
        measurements: Measurements of networks as they were trained.
        baselines: Measurements of networks with another sigma than their own, such as a constant.
    """

    folder: Path
    records: Mapping[str, Record]
    measurements: tuple[Measurement, ...]
    baselines: tuple[Measurement, ...] = ()


def load_records(folder: Path | None = None) -> RecordSet:
    """Read all records of a folder, by default of ``studies/results``."""
    existing = folder or RESULTS
    if not existing.is_dir():
        raise DataError(f"there is no folder of records {existing}; choose one with --records")
    paths = sorted(existing.rglob("*.json"))
    if not paths:
        raise DataError(
            f"{existing} holds no record (*.json); `musigma evaluate --record FILE` makes one"
        )
    records = {path.relative_to(existing).as_posix(): load_record(path) for path in paths}
    measured = [m for source, record in records.items() for m in measurements(record, source)]
    plain, baselines = (
        tuple(m for m in measured if bool(m.baseline) is wanted) for wanted in (False, True)
    )
    return RecordSet(existing, records, plain, baselines)


def measurements(record: Record, source: str) -> Iterator[Measurement]:
    """Yield the measurements of a record: one of an evaluation, maybe more of a training run."""
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
        value = {str(number): item for number, item in enumerate(value)}
    if not isinstance(value, Mapping):
        return {}
    return {name: number for name, number in value.items() if number is not None}
