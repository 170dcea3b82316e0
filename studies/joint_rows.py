"""Measure joint error bars on benchmark sets, beside two baselines.

``python -m studies.joint_rows SCALE RECORD.json [STEP] [MODEL]`` restores every STEP-th picture (4)
of B100, Set14 and Urban100 with a model (edsr-baseline) that has joint errors. Everything was
fitted on ``DIV2K_crops``; the factors of the baselines are fitted there as well, here. For each set
the record holds:

- coverage and width of 90 % intervals of box means (4 to 32 pixels), 16-pixel profiles, the mean of
  one channel and differences, for ``joint`` (one factor), and for ``independent`` and ``added``, as
  they are (the factor of a normal distribution) and with a factor for each kind;
- the joint likelihood in nats per value, its gain over independent errors, and the least gain;
- the energy score of blocks of 8 pixels with few samples, joint and independent;
- the radial spectrum of samples and of the mean against that of the truth, in dB;
- how well shrunk samples agree with the input, and their spread over the standard deviation.
"""

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from musigma.atomic import write_atomically
from musigma.datasets.catalog import Dataset
from musigma.evaluation.protocol import Protocol
from musigma.evaluation.record import jsonable, provenance
from musigma.evaluation.restored_pairs import restored_pairs
from musigma.evaluation.selection import select_inputs
from musigma.functional.fidelity import psnr
from musigma.functional.scores import normal_factor
from musigma.model import Model, load
from musigma.uncertainty.consistency import made_consistent, shrink, without_visible_part
from musigma.uncertainty.joint import Correlation, StationaryErrors
from musigma.uncertainty.metrics.joint import (
    STD_RULES,
    QuantityIntervals,
    energy_score,
    in_decibels,
    radial_spectrum,
)

SETS = ("B100", "Set14", "Urban100")
HELD_OUT = "DIV2K_crops"
HELD_OUT_STEP = 2
COVERAGE = 0.9
NUM_SAMPLES = 4
CROP = 256
"""Side of the middle part of a picture that samples are drawn for."""


class Picture(NamedTuple):
    """A restored picture, ``(C, H, W)`` each."""

    mean: Tensor
    std: Tensor
    target: Tensor


def pictures(model: Model, dataset: Dataset, protocol: Protocol) -> Iterator[Picture]:
    """Restore the pictures of a set."""
    calibration = model.require_calibration()
    for _, (mean, sigma), target in restored_pairs(model.network, dataset, protocol):
        assert sigma is not None
        yield Picture(mean[0], calibration.std(sigma)[0], target[0])


def every(model: Model, name: str, step: int) -> tuple[Dataset, Protocol]:
    """Return every so-manieth picture of a set, and how its inputs are made."""
    dataset, protocols = select_inputs(model.network, name)
    return replace(dataset, items=dataset.items[::step]), protocols[0]


def factors_by_kind(model: Model) -> dict[str, dict[str, float]]:
    """Fit a factor for each kind of quantity on held-out crops, by each rule."""
    correlation = model.require_joint().correlation
    metrics = {rule: QuantityIntervals(correlation, rule) for rule in STD_RULES}
    for picture in pictures(model, *every(model, HELD_OUT, HELD_OUT_STEP)):
        for metric in metrics.values():
            metric.update(picture.target - picture.mean, picture.std)
    return {rule: metric.quantile(COVERAGE) for rule, metric in metrics.items()}


def intervals_of(model: Model, fitted: dict[str, dict[str, float]]) -> dict[str, QuantityIntervals]:
    """Return a metric for each way to make intervals."""
    joint = model.require_joint()
    normal = normal_factor(COVERAGE)
    metrics = {
        "joint": QuantityIntervals(joint.correlation, factors=joint.factor(COVERAGE)),
    }
    for rule in ("independent", "added"):
        metrics[f"{rule}, normal factor"] = QuantityIntervals(
            joint.correlation, rule, factors=normal
        )
        metrics[f"{rule}, factor for each kind"] = QuantityIntervals(
            joint.correlation, rule, factors=fitted[rule]
        )
    return metrics


def middle(picture: Picture, scale: int) -> Picture:
    """Return the middle part of a picture, cut at input pixels."""
    height, width = (min(CROP, side) // scale * scale for side in picture.mean.shape[1:])
    top, left = (
        (side - part) // 2 // scale * scale
        for side, part in zip(picture.mean.shape[1:], (height, width), strict=True)
    )
    return Picture(*(part[:, top : top + height, left : left + width] for part in picture))


def sample_scores(picture: Picture, correlation: Correlation, seed: int) -> dict[str, Any]:
    """Measure samples of the middle part of a picture."""
    mean, std, target = part = middle(picture, correlation.scale)
    scale, generator = correlation.scale, torch.Generator().manual_seed(seed)
    # The part counts as a picture of its own, whose input is what it shrinks to.
    degraded = shrink(target[None], scale)
    errors = StationaryErrors(std, correlation).sample(NUM_SAMPLES, generator)
    samples = made_consistent(mean + without_visible_part(errors, scale), degraded, scale)
    shrunk, given = shrink(samples, scale), degraded.expand(NUM_SAMPLES, -1, -1, -1)
    white = mean + std * torch.randn(NUM_SAMPLES, *std.shape, generator=generator)
    spectra = [radial_spectrum(images) for images in (samples, part.mean[None], target[None])]
    return {
        "energy": energy_score(samples, target),
        "energy_independent": energy_score(white, target),
        "agreement_db": float(psnr(shrunk, given, data_range=1.0, shave=0).min()),
        "spread": float(samples.var(0).mean().sqrt() / std.square().mean().sqrt()),
        "spectra": torch.stack(spectra),
    }


def diagonal_log_likelihood(residual: Tensor, std: Tensor) -> float:
    """Return the log density of independent normal errors per value."""
    ratio = (residual / std).double()
    density = -ratio.square() / 2 - std.double().log() - math.log(2 * math.pi) / 2
    return float(density.mean())


def measure_set(
    model: Model, name: str, step: int, fitted: dict[str, dict[str, float]]
) -> dict[str, Any]:
    """Measure one set."""
    correlation = model.require_joint().correlation
    metrics = intervals_of(model, fitted)
    likelihoods, samples = [], []
    for number, picture in enumerate(pictures(model, *every(model, name, step))):
        residual = picture.target - picture.mean
        for metric in metrics.values():
            metric.update(residual, picture.std)
        joint = StationaryErrors(picture.std, correlation).log_likelihood(residual)
        likelihoods.append((joint, diagonal_log_likelihood(residual, picture.std)))
        samples.append(sample_scores(picture, correlation, number))
    joints, diagonals = np.array(likelihoods).T
    spectra = torch.stack([row.pop("spectra") for row in samples]).sum(0)
    return {
        "num_images": len(likelihoods),
        "intervals": {
            key: {kind: scores._asdict() for kind, scores in metric.compute().items()}
            for key, metric in metrics.items()
        },
        "log_likelihood": float(joints.mean()),
        "gain": float((joints - diagonals).mean()),
        "least_gain": float((joints - diagonals).min()),
        "num_negative_gains": int((joints < diagonals).sum()),
        "samples": {key: float(np.mean([row[key] for row in samples])) for key in samples[0]},
        "least_agreement_db": min(row["agreement_db"] for row in samples),
        "spectrum_of_samples_db": in_decibels(spectra[0], spectra[2]),
        "spectrum_of_mean_db": in_decibels(spectra[1], spectra[2]),
    }


def main(scale: int, record: Path, step: int = 4, name: str = "edsr-baseline") -> None:
    """Measure all sets and write the record."""
    model = load(name, scale=scale)
    fitted = factors_by_kind(model)
    sets = {}
    for dataset in SETS:
        sets[dataset] = measure_set(model, dataset, step, fitted)
        print(dataset, json.dumps(jsonable(sets[dataset]))[:2000], flush=True)
    content = {
        "study": "joint errors",
        "model": {"name": model.name, "scale": model.scale, "digest": model.digest},
        "fitted_on": HELD_OUT,
        "coverage": COVERAGE,
        "step": step,
        "num_samples": NUM_SAMPLES,
        "factors": dict(model.require_joint().factors),
        "factors_by_kind": fitted,
        "sets": sets,
        "provenance": provenance(torch.device("cpu")),
    }
    text = json.dumps(jsonable(content), indent=2, allow_nan=False) + "\n"
    write_atomically(record, text.encode())


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), int((sys.argv[3:4] or ["4"])[0]), *sys.argv[4:5])
