"""Measure samples on benchmark sets: do they agree with the input, and differ as the truth may?

``python -m studies.measurements.joint_samples edsr-baseline 4
studies/results/joint-samples-x4.json`` draws from the middle part of the pictures of
`studies.measurements.joint_sets`. The record holds for each set:

- how well shrunk samples agree with the input, and their spread over the standard deviation;
- how much the mean of 64 samples differs in PSNR from the mean, and how much of that the mean gains
  if it is made to agree with the input, as every sample is;
- the radial spectrum of samples and of the mean against that of the truth, in dB;
- the energy score of blocks of 8 pixels with few samples, joint and independent.
"""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from musigma.evaluation.restored_pairs import read_pair
from musigma.functional.fidelity import psnr
from musigma.model import Model, load
from musigma.uncertainty.consistency import made_consistent, shrink
from musigma.uncertainty.metrics.joint import energy_score, in_decibels, radial_spectrum
from studies.measurements.joint_sets import SETS, every, middle, save_record

NUM_SAMPLES = 8
MANY_SAMPLES = 64


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
    agreeing = made_consistent(mean[None], small, model.scale)[0]
    quality = [
        float(psnr(image[None], truth[None], data_range=1.0, shave=model.scale))
        for image in (samples.mean(0), mean, agreeing)
    ]
    spectra = [radial_spectrum(images) for images in (few, mean[None], truth[None])]
    scores = {
        "energy": energy_score(few, truth),
        "energy_independent": energy_score(white, truth),
        "agreement_db": float(psnr(shrunk, given, data_range=1.0, shave=0).min()),
        "spread": float(samples.var(0).mean().sqrt() / std.square().mean().sqrt()),
        "mean_of_samples_db": quality[0] - quality[1],
        "consistent_mean_db": quality[2] - quality[1],
    }
    return Drawn(scores, torch.stack(spectra))


def measure_set(model: Model, text: str, *, crop: int) -> dict[str, Any]:
    """Measure one set."""
    dataset, protocol = every(model, text)
    rows = []
    for number, item in enumerate(dataset.items):
        rows.append(sample_scores(model, *read_pair(item, protocol), crop=crop, seed=number))
        print(item.name, {key: round(v, 3) for key, v in rows[-1].scores.items()}, flush=True)
    spectra = torch.stack([row.spectra for row in rows]).sum(0)
    samples = [row.scores for row in rows]
    return {
        "num_images": len(rows),
        "samples": {key: float(np.mean([row[key] for row in samples])) for key in samples[0]},
        "least_agreement_db": min(row["agreement_db"] for row in samples),
        "spectrum_of_samples_db": in_decibels(spectra[0], spectra[2]),
        "spectrum_of_mean_db": in_decibels(spectra[1], spectra[2]),
    }


def main(name: str, scale: int, record: Path, *, sets: list[str], crop: int) -> None:
    """Measure all sets and write the record."""
    model = load(name, scale=scale)
    measured = {text.partition(":")[0]: measure_set(model, text, crop=crop) for text in sets}
    protocol = {"name": "joint-samples", "crop": crop, "num_samples": MANY_SAMPLES}
    save_record(record, model, measured, sets=sets, protocol=protocol)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="name of shipped weights, or a weights file")
    parser.add_argument("scale", type=int)
    parser.add_argument("record", type=Path)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--crop", type=int, default=128, help="side of the part that is measured")
    main(**vars(parser.parse_args()))
