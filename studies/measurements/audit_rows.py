"""How well ``musigma audit`` tells wrong pixels of an enlargement without knowing the truth.

``MUSIGMA_DATA=... python -m studies.measurements.audit_rows RECORD FILE.py:FUNCTION... --step 5``
audits four enlargements of every fifth picture of B100 at x4: the truth itself, bicubic, the mean
of the auditing model, and a released IMDN (``imdn_x4.pth`` in MUSIGMA_CHECKPOINTS); and those that
the functions make, which may run anything: nothing of them is part of this project. For each the
record holds the shares of values outside (at the usual coverage, and strictly at 0.99), of pixels
with added detail and of input pixels contradicted; the share of pictures that are flagged; the
share of pixels that are wrong by more than 16 levels, as the audit expects it and truly; and the
AUROC by which the audit's probability tells such pixels.
"""

import argparse
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from musigma.datasets.catalog import Dataset, data_hash
from musigma.evaluation.protocol import super_resolution
from musigma.evaluation.record import Record, provenance
from musigma.evaluation.restored_pairs import read_pair
from musigma.evaluation.selection import select_inputs
from musigma.functional.color import quantise
from musigma.functional.resize import bicubic_up
from musigma.images.conversion import as_batch
from musigma.model import Model, load
from musigma.networks import num_params
from musigma.prediction.foreign.python_function import find_function
from musigma.restoration.audit import WRONG, Audit, audit, usual_coverage
from musigma.types import ConfigError
from musigma.uncertainty.metrics.histogram import LogHistogram

SCALE = 4
STRICT = 0.99
SHARES = ("wrong_share", "outside_share", "added_share", "contradicted_share", "invented_share")

Enlarge = Callable[[Tensor], Tensor]


class Tally:
    """What the audits of one program's enlargements gave."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []
        self.wrong, self.right = (
            LogHistogram(low=2.0**-16, high=1.0, num_bins=2**12) for _ in range(2)
        )

    def add(self, compare: Callable[..., Audit], enlargement: Tensor, truth: Tensor) -> None:
        """Audit a picture."""
        result, strict = compare(enlargement), compare(enlargement, coverage=STRICT)
        is_wrong = (enlargement - truth).abs()[0].amax(0) > WRONG
        self.rows.append(
            {
                **{key: getattr(result, key) for key in SHARES},
                "flagged": float(result.is_flagged),
                "strict_outside_share": strict.outside_share,
                "truly_wrong_share": float(is_wrong.float().mean()),
            }
        )
        self.wrong.add(result.wrong_probability[is_wrong])
        self.right.add(result.wrong_probability[~is_wrong])

    def compute(self) -> dict[str, float]:
        """Return the means over the pictures, and the AUROC over all pixels."""
        means = {key: float(np.mean([row[key] for row in self.rows])) for key in self.rows[0]}
        if not self.wrong.counts.any():
            return means
        return means | {"auroc": auroc(self.right.counts, self.wrong.counts)}


def auroc(right: Any, wrong: Any) -> float:
    """Return the probability that a wrong pixel has the larger score, from counts by score.

    Example:
        >>> auroc(np.array([2, 2, 0]), np.array([0, 2, 2]))
        0.875
    """
    below = right.cumsum() - right / 2  # equal scores count half
    return float((wrong * below).sum() / (wrong.sum() * right.sum()))


def enlargers(model: Model, functions: list[str]) -> dict[str, Enlarge]:
    """Return what enlarges a picture, by name."""
    released = load(Path(os.environ["MUSIGMA_CHECKPOINTS"]) / "imdn_x4.pth")
    programs: dict[str, Enlarge] = {
        "bicubic": lambda degraded: bicubic_up(degraded, SCALE),
        "edsr-baseline": lambda degraded: model.predict(degraded).mean,
        "imdn": lambda degraded: released.predict(degraded).mean,
    }
    for text in functions:
        function = find_function(text)
        if function is None:
            raise ConfigError(f"expected FILE.py:FUNCTION, got {text!r}")
        programs[text.rpartition(":")[2]] = function
    return programs


def measure(
    model: Model, programs: Mapping[str, Enlarge], data: str, step: int
) -> tuple[Dataset, dict[str, Any]]:
    """Audit the enlargements of every so-manieth picture."""
    dataset, protocols = select_inputs(model.network, data)
    dataset = replace(dataset, items=dataset.items[::step])
    tallies = {name: Tally() for name in ("truth", *programs)}
    for number, item in enumerate(dataset.items):
        degraded, truth = read_pair(item, protocols[0])
        pictures = {"truth": truth}
        for name, program in programs.items():
            pictures[name] = quantise(as_batch(program(degraded)).clamp(0, 1))
        compare = partial(audit, model, degraded, prediction=model.predict(degraded))
        for name, picture in pictures.items():
            tallies[name].add(compare, picture, truth)
        print(number + 1, item.name, flush=True)
    return dataset, {name: tally.compute() for name, tally in tallies.items()}


def main(record: Path, functions: list[str], *, model_name: str, data: str, step: int) -> None:
    """Measure and write the record."""
    model = load(model_name, scale=SCALE)
    dataset, result = measure(model, enlargers(model, functions), data, step)
    for name, scores in result.items():
        print(name, {key: round(value, 4) for key, value in scores.items()}, flush=True)
    calibration = model.require_calibration()
    Record(
        kind="benchmark",
        model={
            "name": model.name,
            "scale": model.scale,
            "params": num_params(model.network),
            "digest": model.digest,
            "calibration": calibration.to_dict(),
        },
        protocol={
            **super_resolution(SCALE).as_json(),
            "name": "audit",
            "coverage": usual_coverage(calibration),
            "strict_coverage": STRICT,
            "wrong": WRONG,
            "one picture in": step,
        },
        data={
            "name": dataset.name,
            "num_images": len(dataset.items),
            "hash": data_hash(dataset),
        },
        result=result,
        provenance=provenance(torch.device("cpu")),
    ).save(record)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("record", type=Path)
    parser.add_argument("functions", nargs="*")
    parser.add_argument("--step", type=int, default=3, help="audit every N-th picture")
    parser.add_argument("--data", default="B100")
    parser.add_argument("--model", dest="model_name", default="edsr-baseline")
    main(**vars(parser.parse_args()))
