"""Whether the intervals hold, or the guard speaks, on pictures damaged in many other ways.

``MUSIGMA_DATA=... python -m studies.measurements.damage_rates RECORD [PART ...]`` makes inputs from
every tenth picture of B100 in all ways of `studies.measurements.picture_damage`, or of other
`PARTS`, none of which the calibrations were made for. It measures several weights, each in a
process of its own and all together in about ten minutes of one core:

- ``inside``: share of the values inside their 90 % interval, in the middle of the picture;
- ``speaks``: share of the pictures that the guard speaks of;
- ``inside_or_warned``: share of the pictures with at least 80 % inside, or with a warning;
- ``speaks_before`` and ``inside_or_warned_before``: the same for the guard without the numbers that
  were added for such damage.

Nothing was fitted on B100, and the guard was finished before it was measured here. Kinds that it
missed then led to further numbers; `PARTS` has some of these as ``learned``, and as ``fresh`` those
of `studies.measurements.fresh_damage`, which were written down before these numbers were made.
"""

import sys
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from musigma.datasets.catalog import Dataset, data_hash, find_dataset
from musigma.evaluation.record import Record, provenance
from musigma.functional.color import match_channels
from musigma.functional.picture_statistics import PictureStatistics, measure
from musigma.images.image_io import read_image
from musigma.model import Model, load
from musigma.uncertainty.guard import Reference, unlike
from studies.measurements.fresh_damage import FRESH
from studies.measurements.guard_rates import LEAST_INSIDE, reference_of, subset
from studies.measurements.picture_damage import DAMAGES, SEALED, Damage, Pair
from studies.measurements.unlike_inputs import to_picture, to_tensor

MODELS = (("photo", 1), ("photo", 2), ("photo", 4), ("edsr-baseline", 2))
SIDE, MIDDLE, STEP = 256, 128, 10
"""Sides of the pictures and of what is restored of them; every so many pictures are taken."""

ONLY_SHRINKING = ("nearest", "area in linear light")
"""Damages that do nothing to a picture which keeps its size."""

LEARNED = ("colour fringes", "second picture")
PARTS: Mapping[str, Mapping[str, Damage]] = {
    "looked at": DAMAGES,
    "sealed": SEALED,
    "learned": {"clean": DAMAGES["clean"]} | {kind: SEALED[kind] for kind in LEARNED},
    "fresh": FRESH,
}
USUAL_PARTS = ("looked at", "sealed")

NUMBERS_BEFORE = (
    "noise_std",
    "coarse_noise_std",
    "colour_grain_std",
    "sharpness",
    "rolloff",
    "softest_direction",
    "detail",
    "block_edges",
)


def pictures(dataset: Dataset) -> dict[str, Image.Image]:
    """Return a square from the middle of every picture of a set, by its name."""
    squares = {}
    for item in dataset.items:
        image = match_channels(read_image(item.target)[0], 3)
        top, left = ((side - SIDE) // 2 for side in image.shape[2:])
        squares[item.name] = to_picture(image[..., top : top + SIDE, left : left + SIDE])
    return squares


def before(reference: Reference) -> Reference:
    """Return what the guard knew before it was shown damage."""
    limits = {name: reference.limits[name] for name in NUMBERS_BEFORE if name in reference.limits}
    return replace(reference, limits=limits, sums={})


def inside(model: Model, pair: Pair) -> float:
    """Return the share of values inside their 90 % interval in the middle of a picture."""
    truth, degraded = to_tensor(pair.truth), to_tensor(pair.degraded)
    start = (truth.shape[2] - MIDDLE) // 2 // 8 * 8
    target = _part(truth, start, MIDDLE)
    seen = _part(degraded, start // model.scale, MIDDLE // model.scale)
    low, high = model.interval(model.predict(seen))
    return float(((low <= target) & (target <= high)).double().mean())


def _part(image: Tensor, start: int, side: int) -> Tensor:
    return image[..., start : start + side, start : start + side]


class Measured(NamedTuple):
    """What became of one damaged picture.

    Attributes:
        inside: Share of the values inside their interval.
        statistics: What the guard sees of the picture.
    """

    inside: float
    statistics: PictureStatistics


def measured(
    model: Model, name: str, damage: Damage, squares: Mapping[str, Image.Image]
) -> list[Measured]:
    """Damage and restore every picture in one way."""
    found = []
    for picture, truth in squares.items():
        seed = zlib.crc32(f"{picture}/{name}".encode())
        pair = damage(truth, model.scale, np.random.default_rng(seed))
        found.append(Measured(inside(model, pair), measure(to_tensor(pair.degraded))))
    return found


def measured_by(
    name: str, scale: int, parts: Sequence[str]
) -> dict[str, dict[str, list[Measured]]]:
    """Damage and restore every picture in every way of some `PARTS`, for one model."""
    torch.set_num_threads(1)
    model, squares = load(name, scale=scale), pictures(subset(find_dataset("B100"), STEP))
    return {
        part: {
            kind: measured(model, kind, damage, squares)
            for kind, damage in PARTS[part].items()
            if scale > 1 or kind not in ONLY_SHRINKING
        }
        for part in parts
    }


def rates(reference: Reference, pictures: Sequence[Measured]) -> dict[str, float]:
    """Return the numbers of one damage for one model."""
    holds = np.array([picture.inside for picture in pictures]) >= LEAST_INSIDE
    speaks, spoke = (
        np.array([bool(unlike(limits, picture.statistics)) for picture in pictures])
        for limits in (reference, before(reference))
    )
    return {
        "inside": float(np.mean([picture.inside for picture in pictures])),
        "speaks": float(speaks.mean()),
        "inside_or_warned": float((holds | speaks).mean()),
        "speaks_before": float(spoke.mean()),
        "inside_or_warned_before": float((holds | spoke).mean()),
    }


def main(path: Path, parts: Sequence[str] = USUAL_PARTS) -> None:
    """Measure everything, each model in a process of its own, and write the record."""
    with ProcessPoolExecutor(len(MODELS)) as pool:
        jobs = [pool.submit(measured_by, name, scale, parts) for name, scale in MODELS]
        save_record(path, [job.result() for job in jobs])


def save_record(path: Path, found: Sequence[Mapping[str, Mapping[str, list[Measured]]]]) -> None:
    """Write the record of what `measured_by` found with each of the models."""
    photos = find_dataset("B100")
    models = [load(name, scale=scale) for name, scale in MODELS]
    labels = [f"{name} x{scale}" for name, scale in MODELS]
    references = [reference_of(model) for model in models]
    result = {
        part: {
            kind: {
                label: rates(reference, own[part][kind])
                for label, reference, own in zip(labels, references, found, strict=True)
                if kind in own[part]
            }
            for kind in PARTS[part]
        }
        for part in found[0]
    }
    Record(
        kind="benchmark",
        model={
            "name": "edsr-baseline and photo",
            "digests": {k: model.digest for k, model in zip(labels, models, strict=True)},
            "digest": "",  # that of one model; here there are several
            "params": 0,
            "scale": 0,
        },
        protocol={"name": "damage-rates", "least_inside": LEAST_INSIDE, "side": SIDE},
        data={"name": "every tenth of B100", "hash": data_hash(photos)},
        result=result,
        provenance=provenance(torch.device("cpu")),
    ).save(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or USUAL_PARTS)
