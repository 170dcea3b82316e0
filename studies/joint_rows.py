"""Measure joint error bars on benchmark sets, beside two baselines.

``python -m studies.joint_rows MODEL SCALE RECORD.json --sets B100:5 Set14 Urban100:10`` restores
every fifth picture of B100, and so on, with weights that have joint errors. Everything was fitted
on ``DIV2K_crops``; the factors of the baselines are fitted there as well, here. For each set the
record holds:

- coverage and width of 90 % intervals of box means (4 to 32 pixels), 16-pixel profiles, the mean of
  one channel and differences, for ``joint`` (one factor), and for ``independent`` and ``added``, as
  they are (the factor of a normal distribution) and with a factor for each kind;
- the energy score of blocks of 8 pixels with few samples, joint and independent;
- the radial spectrum of samples and of the mean against that of the truth, in dB;
- processor time of a pass with the joint head over that of a pass with sigma alone;
- how well shrunk samples agree with the input, their spread over the standard deviation, and how
  much the mean of 64 samples differs from the mean in PSNR.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from musigma.datasets.catalog import Dataset, data_hash
from musigma.evaluation.joint import held_out_pictures
from musigma.evaluation.protocol import Protocol, super_resolution
from musigma.evaluation.record import Record, jsonable, provenance
from musigma.evaluation.restored_pairs import read_pair
from musigma.evaluation.selection import select_inputs
from musigma.functional.fidelity import psnr
from musigma.functional.scores import normal_factor
from musigma.model import Model, load
from musigma.networks import num_params
from musigma.networks.weights_file import digest_of
from musigma.uncertainty.consistency import shrink
from musigma.uncertainty.metrics.joint import (
    RULES,
    QuantityIntervals,
    energy_score,
    in_decibels,
    radial_spectrum,
)
from musigma.uncertainty.quantities import probe_all

SETS = ("B100:5", "Set14:2", "Urban100:10")
HELD_OUT = "DIV2K_crops"
COVERAGE = 0.9
NUM_SAMPLES = 8
MANY_SAMPLES = 64
TIMED_PASSES = 7


def every(model: Model, text: str) -> tuple[Dataset, Protocol]:
    """Return every so-manieth picture of a set such as ``B100:5``, and how its inputs are made."""
    name, _, step = text.partition(":")
    dataset, protocols = select_inputs(model.network, name)
    return replace(dataset, items=dataset.items[:: int(step or 1)]), protocols[0]


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of the mean of independent values.

    Example:
        >>> round(standard_error([1.0, 2.0, 3.0]), 3)
        0.577
    """
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def factors_by_kind(model: Model, step: int) -> dict[str, dict[str, float]]:
    """Fit a factor for each kind of quantity on held-out crops, by each rule."""
    metrics = {rule: QuantityIntervals(rule) for rule in RULES}
    dataset, protocol = every(model, f"{HELD_OUT}:{step}")
    correlation = model.require_joint().correlation
    for number, picture in enumerate(held_out_pictures(model, dataset, [protocol], correlation)):
        measured = list(probe_all(picture.residual, picture.errors, seed=number))
        for metric in metrics.values():
            metric.add(measured)
    return {rule: metric.quantile(COVERAGE) for rule, metric in metrics.items()}


def intervals_of(model: Model, fitted: dict[str, dict[str, float]]) -> dict[str, QuantityIntervals]:
    """Return a metric for each way to make intervals."""
    normal = normal_factor(COVERAGE)
    metrics = {"joint": QuantityIntervals(factors=model.require_joint().factor(COVERAGE))}
    for rule in ("independent", "added"):
        metrics[f"{rule}, normal factor"] = QuantityIntervals(rule, factors=normal)
        metrics[f"{rule}, factor for each kind"] = QuantityIntervals(rule, factors=fitted[rule])
    return metrics


def middle(shape: tuple[int, ...], scale: int, crop: int) -> tuple[slice, ...]:
    """Return the middle part of a picture ``(C, H, W)``, cut at input pixels."""
    parts = []
    for side in shape[1:]:
        length = min(crop, side) // scale * scale
        first = (side - length) // 2 // scale * scale
        parts.append(slice(first, first + length))
    return (slice(None), *parts)


class Drawn(NamedTuple):
    """What a picture's samples are like: scores, and three spectra of samples, mean and truth."""

    scores: dict[str, float]
    spectra: Tensor


def sample_scores(model: Model, degraded: Tensor, target: Tensor, *, crop: int, seed: int) -> Drawn:
    """Measure samples of the middle part of a picture, which counts as a picture of its own."""
    part = middle(tuple(target.shape[1:]), model.scale, crop)
    rows, columns = (slice(s.start // model.scale, s.stop // model.scale) for s in part[1:])
    small, truth = degraded[..., rows, columns], target[0][part]
    samples = model.sample(small, MANY_SAMPLES, seed=seed)
    few = samples[::2][:NUM_SAMPLES]  # one of each pair
    prediction = model.predict(small)
    mean, std = prediction.mean[0].clamp(0, 1), model.std(prediction)[0]
    generator = torch.Generator().manual_seed(seed)
    white = mean + std * torch.randn(NUM_SAMPLES, *std.shape, generator=generator)
    shrunk, given = shrink(few, model.scale), small.expand(len(few), -1, -1, -1)
    quality = [
        float(psnr(image[None], truth[None], data_range=1.0, shave=model.scale))
        for image in (samples.mean(0), mean)
    ]
    spectra = [radial_spectrum(images) for images in (few, mean[None], truth[None])]
    scores = {
        "energy": energy_score(few, truth),
        "energy_independent": energy_score(white, truth),
        "agreement_db": float(psnr(shrunk, given, data_range=1.0, shave=0).min()),
        "spread": float(samples.var(0).mean().sqrt() / std.square().mean().sqrt()),
        "mean_of_samples_db": quality[0] - quality[1],
    }
    return Drawn(scores, torch.stack(spectra))


def rows_of(
    model: Model,
    dataset: Dataset,
    protocol: Protocol,
    metrics: dict[str, QuantityIntervals],
    *,
    crop: int,
) -> Iterator[Drawn]:
    """Measure one picture after the other."""
    correlation = model.require_joint().correlation
    pictures = held_out_pictures(model, dataset, [protocol], correlation)
    for number, (item, picture) in enumerate(zip(dataset.items, pictures, strict=True)):
        measured = list(probe_all(picture.residual, picture.errors, seed=number))
        for metric in metrics.values():
            metric.add(measured)
        degraded, target = read_pair(item, protocol)
        yield sample_scores(model, degraded, target, crop=crop, seed=number)


def measure_set(
    model: Model, text: str, fitted: dict[str, dict[str, float]], *, crop: int
) -> dict[str, Any]:
    """Measure one set."""
    metrics = intervals_of(model, fitted)
    rows = list(rows_of(model, *every(model, text), metrics, crop=crop))
    spectra = torch.stack([row.spectra for row in rows]).sum(0)
    samples = [row.scores for row in rows]
    return {
        "num_images": len(rows),
        "intervals": {
            key: {quantity: scores._asdict() for quantity, scores in metric.compute().items()}
            for key, metric in metrics.items()
        },
        "samples": {key: float(np.mean([row[key] for row in samples])) for key in samples[0]},
        "least_agreement_db": min(row["agreement_db"] for row in samples),
        "spectrum_of_samples_db": in_decibels(spectra[0], spectra[2]),
        "spectrum_of_mean_db": in_decibels(spectra[1], spectra[2]),
    }


def head_cost(model: Model, text: str) -> float:
    """Return processor time of a pass with the joint head over that with sigma alone."""
    dataset, protocol = every(model, text)
    degraded = read_pair(dataset.items[0], protocol).degraded
    correlation = model.require_joint().correlation
    passes: tuple[Callable[[], object], ...] = (
        lambda: model.predict_errors(degraded, correlation),
        lambda: model.predict(degraded),
    )
    seconds: tuple[list[float], ...] = ([], [])
    for _ in range(TIMED_PASSES):  # in turn, since other programs may run beside them
        for run, times in zip(passes, seconds, strict=True):
            start = time.process_time()
            run()
            times.append(time.process_time() - start)
    return float(np.median(seconds[0]) / np.median(seconds[1]))


def print_set(name: str, result: dict[str, Any]) -> None:
    """Print the main numbers of a set."""
    print(name, flush=True)
    fitted = result["intervals"]["independent, factor for each kind"]
    for quantity, scores in result["intervals"]["joint"].items():
        narrower = scores["width"] / fitted[quantity]["width"]
        print(
            f"  {quantity}: {100 * scores['coverage']:.1f} % (independent with a factor "
            f"{100 * fitted[quantity]['coverage']:.1f} %), width {narrower:.3f} of that"
        )
    print(" ", json.dumps(jsonable(result["samples"])), flush=True)
    print("  spectrum", [round(v, 2) for v in result["spectrum_of_samples_db"]], flush=True)


def main(
    name: str,
    scale: int,
    record: Path,
    *,
    sets: list[str],
    held_out_step: int,
    crop: int,
) -> None:
    """Measure all sets and write the record."""
    model = load(name, scale=scale)
    fitted = factors_by_kind(model, held_out_step)
    measured = {}
    for text in sets:
        name_of_set = text.partition(":")[0]
        measured[name_of_set] = measure_set(model, text, fitted, crop=crop)
        print_set(name_of_set, measured[name_of_set])
    joint = model.require_joint()
    Record(
        kind="benchmark",
        model={
            "name": model.name,
            "scale": model.scale,
            "params": num_params(model.network),
            "digest": model.digest,
            "joint_head": digest_of(model.joint_head) if model.joint_head else None,
        },
        protocol={
            **super_resolution(scale).as_json(),
            "name": "joint-errors",
            "fitted_on": HELD_OUT,
            "coverage": COVERAGE,
            "sets": sets,
            "crop": crop,
            "num_samples": NUM_SAMPLES,
        },
        data={
            "name": ", ".join(measured),
            "num_images": sum(row["num_images"] for row in measured.values()),
            "hash": "+".join(data_hash(every(model, text)[0]) for text in sets),
        },
        result=jsonable(
            {
                "factors": {str(share): factor for share, factor in joint.factors},
                "factors_by_kind": fitted,
                "fit_images": joint.num_images,
                "head_cost": head_cost(model, sets[0]),
                **measured,
            }
        ),
        provenance=provenance(torch.device("cpu")),
    ).save(record)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="name of shipped weights, or a weights file")
    parser.add_argument("scale", type=int)
    parser.add_argument("record", type=Path)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--held-out-step", type=int, default=2)
    parser.add_argument(
        "--crop", type=int, default=192, help="side of the part whose samples are measured"
    )
    arguments = parser.parse_args()
    main(**vars(arguments))
