"""How good the error bars are that ``musigma wrap`` gives to networks of other people.

``MUSIGMA_DATA=... python -m studies.measurements.wrap_rows FILE.py:FUNCTION RECORD [MINUTES
[SETS]]`` wraps a function that enlarges pictures, as ``musigma wrap`` does: it learns sigma on
BSD400 and is calibrated on the DIV2K crops. The record has PLL and coverage on B100, beside those
of the best constant sigma: the one of largest PLL on the same DIV2K crops. The function may be
anything that runs here; nothing of it is part of this project. Every picture is asked for once.

With other SETS, such as ``cid22:8``, the pictures that are measured are the first eight of CID22:
for choosing settings, for which B100 must not be used.
"""

import hashlib
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from musigma.datasets.catalog import Dataset, data_hash, find_dataset
from musigma.evaluation.baseline_models import calibrated, make_baseline
from musigma.evaluation.evaluate import evaluate
from musigma.evaluation.protocol import Protocol, super_resolution
from musigma.evaluation.record import Record, provenance
from musigma.evaluation.restored_pairs import read_pair
from musigma.images.conversion import as_batch
from musigma.model import Model
from musigma.networks import num_params
from musigma.prediction.foreign.python_function import find_function
from musigma.types import ConfigError
from musigma.wrapping import WrapSettings, wrap

LEARNED_ON, CALIBRATED_ON, MEASURED_ON = "BSD400", "DIV2K_crops", "B100"
KEPT = ("psnr_y", "pll_calibrated", "coverage", "coverage_50", "coverage_95", "width", "ause")


def remembered(function: Callable[[Tensor], Any], name: str) -> Callable[[Tensor], Tensor]:
    """Return a function that asks another one about each picture only once."""
    answers: dict[str, Tensor] = {}

    def ask(image: Tensor) -> Tensor:
        key = hashlib.sha256(repr(image.shape).encode() + image.numpy().tobytes()).hexdigest()
        if key not in answers:
            answers[key] = as_batch(function(image))
        return answers[key]

    ask.__name__ = name
    return ask


def find_pictures(text: str) -> Dataset:
    """Return a data set, or its first pictures where the text is ``NAME:COUNT``."""
    name, _, count = text.partition(":")
    dataset = find_dataset(name)
    return replace(dataset, items=dataset.items[: int(count)]) if count else dataset


def count_changed(
    model: Model, function: Callable[[Tensor], Tensor], pictures: Dataset, protocol: Protocol
) -> int:
    """Return how many values of the mean are not, to the bit, those of the function."""
    changed = 0
    for item in pictures.items:
        degraded = read_pair(item, protocol).degraded
        changed += int((model.predict(degraded).mean != function(degraded)).sum())
    return changed


def measure(
    model: Model, function: Callable[[Tensor], Tensor], pictures: Dataset
) -> dict[str, float]:
    """Return the numbers of a wrapped network and of a constant sigma."""
    protocol = super_resolution(model.scale)
    held_out = find_dataset(CALIBRATED_ON)
    own = evaluate(model.network, pictures, protocol, calibration=model.calibration)
    constant = make_baseline("constant", [model], protocols=[protocol], held_out=held_out)
    constant = calibrated(constant, held_out, [protocol], coverage=0.9)
    flat = evaluate(constant.network, pictures, protocol, calibration=constant.calibration)
    result = {key: own.summary[key] for key in KEPT}
    others = {f"{key}_of_constant": flat.summary[key] for key in KEPT if key != "psnr_y"}
    gain = own.summary["pll_calibrated"] - flat.summary["pll_calibrated"]
    changed = count_changed(model, function, pictures, protocol)
    return result | others | {"pll_gain": gain, "changed_values": changed}


def main(text: str, path: Path, minutes: float, measured_on: str) -> None:
    """Wrap a function, measure it and write the record."""
    named = find_function(text)
    if named is None:
        raise ConfigError(f"expected FILE.py:FUNCTION, got {text!r}")
    function = remembered(named, text.rpartition(":")[2])
    settings = WrapSettings(minutes=minutes)
    model = wrap(function, LEARNED_ON, held_out=CALIBRATED_ON, settings=settings, report=_print_now)
    pictures = find_pictures(measured_on)
    result = measure(model, function, pictures)
    print({key: round(value, 4) for key, value in result.items()}, flush=True)
    Record(
        kind="benchmark",
        model={
            "name": model.name,
            "scale": model.scale,
            "params": num_params(model.network),
            "digest": model.digest,
            "training": model.metadata["training"],
            "calibration": model.require_calibration().to_dict(),
        },
        protocol=super_resolution(model.scale).as_json(),
        data={
            "name": pictures.name,
            "num_images": len(pictures.items),
            "hash": data_hash(pictures),
        },
        result=result,
        provenance=provenance(torch.device("cpu")),
        seed=settings.seed,
    ).save(path)


def _print_now(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    minutes = float(sys.argv[3]) if len(sys.argv) > 3 else WrapSettings().minutes
    sets = sys.argv[4] if len(sys.argv) > 4 else MEASURED_ON
    main(sys.argv[1], Path(sys.argv[2]), minutes, sets)
