"""Error bars on pairs of real cameras: fitted on one camera, measured on it and on others.

``python -m studies.measurements.real_cameras RECORD WEIGHTS...`` fits 90 % intervals for each
weights file on ten pairs of one camera (City100, 086 to 095), and of the other camera alike. It
measures which share of the true values they hold in the middle of the test pairs of both cameras
(096 to 100) and of the pairs of RealSR's cameras (NTIRE 2019). ``python -m
studies.measurements.real_cameras --inputs FOLDER`` writes records of the inputs as they are, whole
and in the middle.
"""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from musigma.datasets.catalog import Dataset, describe_data, find_dataset
from musigma.evaluation.calibrate import calibrate
from musigma.evaluation.protocol import Protocol, protocol_for
from musigma.evaluation.record import Record, provenance
from musigma.evaluation.restored_pairs import read_pair, restored_pairs
from musigma.functional.scores import interval_coverage
from musigma.model import Model, load
from musigma.uncertainty.calibration import Calibration
from studies.data_sets.city100 import CALIBRATION, CAMERAS, MIDDLE, TESTS

METHOD, COVERAGE = "pooled-quantile", 0.9
"""With ten pictures the methods that promise something would need far wider intervals."""

INPUT = "input"
"""Stands for the name of a network in the records of the inputs as they are."""


def pairs_of(name: str) -> Dataset:
    """Return a set of pairs of equal size."""
    return find_dataset(name, scale=1)


def groups_for_testing() -> dict[str, Dataset]:
    """Return the test pairs of each camera, and those of RealSR's cameras."""
    both, others = (pairs_of(name + MIDDLE) for name in TESTS)
    groups = {
        camera: replace(both, items=tuple(i for i in both.items if i.name.startswith(camera)))
        for camera in CAMERAS
    }
    return groups | {others.name: others}


def fitted(model: Model, protocol: Protocol) -> dict[str, Calibration]:
    """Return the calibration on each camera."""
    return {
        camera: calibrate(
            model,
            pairs_of(CALIBRATION[camera] + MIDDLE),
            protocol,
            method=METHOD,
            coverage=COVERAGE,
        )
        for camera in CAMERAS
    }


def shares_inside(
    model: Model,
    dataset: Dataset,
    protocol: Protocol,
    calibrations: Mapping[str, Calibration],
) -> dict[str, dict[str, float]]:
    """Return coverage and mean full width over the images of a set, by each calibration."""
    rows: dict[str, list[tuple[float, float]]] = {name: [] for name in calibrations}
    for _, (mean, sigma), target in restored_pairs(model.network, dataset, protocol):
        assert sigma is not None
        for name, calibration in calibrations.items():
            width = calibration.half_width(sigma)
            inside = float(interval_coverage(mean, target, width))
            rows[name].append((inside, 2 * float(width.mean())))
    return {
        name: {"coverage": fmean(r[0] for r in row), "width": fmean(r[1] for r in row)}
        for name, row in rows.items()
    }


def measure(model: Model) -> dict[str, Any]:
    """Return what the intervals of a model hold, by the camera of the fit and the test pairs."""
    protocol = protocol_for(model.network, pairs=True)
    calibrations = fitted(model, protocol)
    by_group = {
        group: shares_inside(model, dataset, protocol, calibrations)
        for group, dataset in groups_for_testing().items()
    }
    return {
        "digest": model.digest,
        "fitted_on": {
            camera: {group: by_group[group][camera] for group in by_group} for camera in CAMERAS
        },
    }


def coverage_record(weights: Iterable[Path]) -> Record:
    """Measure weights files and return one record; the name of a file names its result."""
    results: dict[str, Any] = {}
    protocol: Protocol | None = None
    for path in weights:
        model = load(path)
        protocol = protocol_for(model.network, pairs=True)
        results[path.stem] = measure(model)
        print(path.stem, results[path.stem], flush=True)
    assert protocol is not None
    return Record(
        kind="benchmark",
        model={"name": "real-cameras", "scale": 1, "params": 0, "digest": ""},
        protocol=protocol.as_json() | {"method": METHOD, "coverage": COVERAGE},
        data=describe_data(pairs_of(TESTS[0] + MIDDLE)),
        result=results,
        provenance=provenance(torch.device("cpu")),
    )


def input_record(name: str, protocol: Protocol) -> Record:
    """Return a record of the inputs of a set as they are."""
    dataset = pairs_of(name)
    images = {item.name: protocol.fidelity(*read_pair(item, protocol)) for item in dataset.items}
    metrics = next(iter(images.values()))
    return Record(
        kind="evaluation",
        model={"name": INPUT, "scale": 1, "params": 0, "digest": ""},
        protocol=protocol.as_json(),
        data={"num_images": len(dataset.items), **describe_data(dataset)},
        result={metric: fmean(own[metric] for own in images.values()) for metric in metrics},
        images=images,
        provenance=provenance(torch.device("cpu")),
    )


def main(arguments: list[str]) -> None:
    """Write the records of inputs, or the record of intervals."""
    torch.set_num_threads(1)
    if arguments[0] == "--inputs":
        protocol = protocol_for(load("photo", scale=1).network, pairs=True)
        for name in (*TESTS, *(name + MIDDLE for name in TESTS)):
            input_record(name, protocol).save(Path(arguments[1]) / f"input-{name}.json")
        return
    record, *weights = map(Path, arguments)
    coverage_record(weights).save(record)


if __name__ == "__main__":
    main(sys.argv[1:])
