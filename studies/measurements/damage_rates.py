"""Whether the intervals hold, or the guard speaks, on pictures damaged in many other ways.

``MUSIGMA_DATA=... python -m studies.damage_rates RECORD`` makes inputs from every tenth picture of
B100 in all ways of `studies.picture_damage`, none of which the calibrations were made for, and
measures for several weights, in about ten minutes of one core:

- ``inside``: share of the values inside their 90 % interval, in the middle of the picture;
- ``speaks``: share of the pictures that the guard speaks of;
- ``inside_or_warned``: share of the pictures with at least 80 % inside, or with a warning;
- ``speaks_before`` and ``inside_or_warned_before``: the same for the guard without the numbers that
  were added for such damage.

Nothing was fitted on B100, and the guard was finished before it was measured here.
"""

import sys
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from musigma.datasets.catalog import Dataset, data_hash, find_dataset
from musigma.evaluation.record import Record, provenance
from musigma.functional.color import match_channels
from musigma.functional.picture_statistics import measure
from musigma.images.image_io import read_image
from musigma.model import Model, load
from musigma.uncertainty.guard import Reference, unlike
from studies.measurements.guard_rates import LEAST_INSIDE, reference_of, subset
from studies.measurements.picture_damage import DAMAGES, SEALED, Damage, Pair
from studies.measurements.unlike_inputs import to_picture, to_tensor

MODELS = (("photo", 1), ("photo", 2), ("photo", 4), ("edsr-baseline", 2))
SIDE, MIDDLE, STEP = 256, 128, 10
"""Sides of the pictures and of what is restored of them; every so many pictures are taken."""

ONLY_SHRINKING = ("nearest", "area in linear light")
"""Damages that do nothing to a picture which keeps its size."""

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


def rates(model: Model, name: str, damage: Damage, squares: Mapping[str, Image.Image]) -> Any:
    """Return the numbers of one damage for one model."""
    reference = reference_of(model)
    held, speaks, spoke = [], [], []
    for picture, truth in squares.items():
        seed = zlib.crc32(f"{picture}/{name}".encode())
        pair = damage(truth, model.scale, np.random.default_rng(seed))
        statistics = measure(to_tensor(pair.degraded))
        held.append(inside(model, pair))
        speaks.append(bool(unlike(reference, statistics)))
        spoke.append(bool(unlike(before(reference), statistics)))
    holds = np.array(held) >= LEAST_INSIDE
    return {
        "inside": float(np.mean(held)),
        "speaks": float(np.mean(speaks)),
        "inside_or_warned": float(np.mean(holds | speaks)),
        "speaks_before": float(np.mean(spoke)),
        "inside_or_warned_before": float(np.mean(holds | spoke)),
    }


def main(path: Path) -> None:
    """Measure everything and write the record."""
    photos = find_dataset("B100")
    squares = pictures(subset(photos, STEP))
    models = [load(name, scale=scale) for name, scale in MODELS]
    labels = [f"{name} x{scale}" for name, scale in MODELS]
    result: dict[str, Any] = {}
    for part, damages in (("looked at", DAMAGES), ("sealed", SEALED)):
        result[part] = {}
        for name, damage in damages.items():
            result[part][name] = {
                label: rates(model, name, damage, squares)
                for label, model in zip(labels, models, strict=True)
                if model.scale > 1 or name not in ONLY_SHRINKING
            }
            print(name, result[part][name], flush=True)
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
    main(Path(sys.argv[1]))
