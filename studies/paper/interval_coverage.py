"""How often the study's intervals hold the truth, in simulated studies.

``python -m studies.paper.interval_coverage RECORD`` takes every comparison of the study: its
numbers of seeds and images, and the variances that its records show for seeds, images and the rest.
It draws studies from them, whose true gain is known, and counts the 95 % intervals that hold it.
Three ways to draw are mixed in equal parts:

- ``normal``: seeds, images and the rest are normal;
- ``images``: the effects of images are drawn from those of the records, which have long tails;
- ``uneven``: as before, and the rest of an image varies as much as it does in the records.

Beside the two-level interval of ``studies/paper/two_level.py``, t over the means of the seeds and
the percentile bootstrap over seeds and images, which the study had before, are counted.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from musigma.evaluation.record import Record, provenance
from studies.paper.measurements import RecordSet, load_records
from studies.paper.study import ALL, objective_studies
from studies.paper.two_level import quantile_of_the_mean, t_quantile, variances_of_the_mean

COVERAGE = 0.95
RANGE = (0.93, 0.97)
"""Shares that are near enough to the stated one."""

WAYS = ("normal", "images", "uneven")
NUM_STUDIES = 15_000
NUM_BOOTSTRAPPED = 300
NUM_RESAMPLES = 1000


def comparisons(record_set: RecordSet) -> dict[str, np.ndarray]:
    """Return the differences ``(seeds, images)`` of each comparison on all images."""
    return {
        f"{study.title}: {objective}": difference.values
        for study in objective_studies(record_set)
        for objective, outcomes in study.outcomes.items()
        if (difference := outcomes[ALL].difference) is not None
    }


def draw_studies(
    difference: np.ndarray, num_studies: int, way: str, random: np.random.Generator
) -> np.ndarray:
    """Draw studies with the variances of a comparison and a true gain of zero."""
    seeds, images = difference.shape
    _, of_seeds, of_images = variances_of_the_mean(difference)
    by_image = difference.mean(0) - difference.mean()
    rest = difference - difference.mean(1, keepdims=True) - by_image
    rest_std = np.sqrt((rest**2).sum() / ((seeds - 1) * (images - 1)))
    seed_std = np.sqrt(max(float(of_seeds) * seeds - rest_std**2 / images, 0.0))
    image_std = np.sqrt(float(of_images) * images)
    drawn = random.integers(images, size=(num_studies, images))
    run = random.normal(size=(num_studies, seeds, 1)) * seed_std
    if way == "normal":
        image = random.normal(size=(num_studies, images)) * image_std
    else:
        image = (by_image * image_std / by_image.std())[drawn]
    noise = random.normal(size=(num_studies, seeds, images)) * rest_std
    if way == "uneven":
        spread = np.sqrt((rest**2).mean(0))
        noise *= (spread / np.sqrt((spread**2).mean()))[drawn][:, None]
    return run + image[:, None] + noise


def two_level_holds(studies: np.ndarray) -> np.ndarray:
    """Return which studies' intervals hold zero, by the rule of `two_level`."""
    mean, of_seeds, of_images = variances_of_the_mean(studies)
    quantile = quantile_of_the_mean(COVERAGE, studies.shape[-2:], of_seeds, of_images)
    return np.abs(mean) <= quantile * np.sqrt(of_seeds + of_images)


def seeds_alone_hold(studies: np.ndarray) -> np.ndarray:
    """Return which intervals by t over the means of the seeds hold zero."""
    mean, of_seeds, _ = variances_of_the_mean(studies)
    return np.abs(mean) <= t_quantile(COVERAGE, studies.shape[-2] - 1) * np.sqrt(of_seeds)


def bootstrap_holds(studies: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return which percentile intervals over resampled seeds and images hold zero."""
    held = []
    for study in studies:
        seeds, images = (
            random.multinomial(size, np.full(size, 1 / size), size=NUM_RESAMPLES) / size
            for size in study.shape
        )
        means = ((seeds @ study) * images).sum(1)
        low, high = np.quantile(means, ((1 - COVERAGE) / 2, (1 + COVERAGE) / 2))
        held.append(low <= 0 <= high)
    return np.array(held)


def held_shares(
    difference: np.ndarray,
    *,
    num_studies: int,
    random: np.random.Generator,
    num_bootstrapped: int = 0,
) -> dict[str, float]:
    """Return the share of simulated studies whose interval holds the truth, by kind of interval."""
    held: dict[str, list[np.ndarray]] = {}
    for way in WAYS:
        for start in range(0, num_studies // len(WAYS), 500):
            size = min(500, num_studies // len(WAYS) - start)
            studies = draw_studies(difference, size, way, random)
            held.setdefault("two_level", []).append(two_level_holds(studies))
            held.setdefault("seeds_alone", []).append(seeds_alone_hold(studies))
        if num_bootstrapped:
            studies = draw_studies(difference, num_bootstrapped // len(WAYS), way, random)
            held.setdefault("bootstrap", []).append(bootstrap_holds(studies, random))
    return {name: float(np.concatenate(parts).mean()) for name, parts in held.items()}


def summary(shares: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Return the least, the mean and the largest share of each kind of interval."""
    by_kind: dict[str, list[float]] = {}
    for of_comparison in shares.values():
        for name, share in of_comparison.items():
            by_kind.setdefault(name, []).append(share)
    return {
        name: {"least": min(values), "mean": float(np.mean(values)), "most": max(values)}
        for name, values in by_kind.items()
    }


def main(record: Path) -> None:
    """Simulate every comparison of the study, and write a record."""
    random = np.random.default_rng(0)
    shares = {}
    for name, difference in comparisons(load_records()).items():
        shares[name] = held_shares(
            difference,
            num_studies=NUM_STUDIES,
            random=random,
            num_bootstrapped=NUM_BOOTSTRAPPED,
        )
        print(name, shares[name], flush=True)
    Record(
        kind="benchmark",
        model={"name": "intervals of the study", "scale": 0, "params": 0, "digest": ""},
        protocol={
            "name": "interval-coverage",
            "coverage": COVERAGE,
            "ways": list(WAYS),
            "studies_of_each": NUM_STUDIES,
            "bootstrapped_of_each": NUM_BOOTSTRAPPED,
            "resamples": NUM_RESAMPLES,
        },
        data={"name": "drawn with the variances of the study's records", "hash": "generated"},
        result=summary(shares) | {"num_comparisons": len(shares), "comparisons": shares},
        provenance=provenance(torch.device("cpu")),
        seed=0,
    ).save(record)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
