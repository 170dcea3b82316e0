"""How often the guard speaks: on inputs like those of the calibration, and on others.

``MUSIGMA_DATA=... python -m studies.measurements.guard_rates RECORD`` measures, at one core in some
minutes:

- ``validation``: benchmark weights on DIV2K_crops, by cross-validation: the limits are fitted on
  nine tenths of the crops and tried on the others.
- ``benchmark``: the shipped limits of the same weights on B100, on which nothing was fitted.
- ``photo``: the shipped limits of the weights for photographs on B100, for inputs within their
  mixture and for inputs that they were not made for.
- ``inside_or_warned``: degradations that no list names, for the weights for photographs at x2: how
  many inputs have at least 80 % of the values inside their 90 % interval, or are spoken of.
- ``same_size``: the same for weights that do not enlarge. The denoiser is told a level of 25.

Run ``python -m studies.shipped_weights.shipped_references`` before it where the numbers of the
guard have changed.
"""

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from musigma.datasets.catalog import Dataset, data_hash, find_dataset
from musigma.degradations import parse
from musigma.degradations.pairs import make_pair
from musigma.evaluation.protocol import super_resolution
from musigma.evaluation.record import Record, provenance
from musigma.evaluation.reference import soften
from musigma.evaluation.spoiled_inputs import SPOILERS
from musigma.functional.color import match_channels, quantise
from musigma.functional.geometry import crop_to_multiple
from musigma.functional.noise import image_generator
from musigma.functional.picture_statistics import PictureStatistics, measure
from musigma.images.image_io import read_image
from musigma.model import Model, load
from musigma.uncertainty.guard import Reference, fit_reference, unlike
from studies.measurements.photo_rows import ENLARGED

CLEAN, SOFTENED = "bicubic", "softened"
BENCHMARK_INPUTS = tuple(text for text in ENLARGED if text != "bicubic | jpeg(50)")
"""The rows of the photograph weights; JPEG 50 is left out, since JPEG 75 is seen already."""

OUTSIDE_PHOTO = ("bicubic | noise(60) | round", "blur(6) | bicubic | round")
UNNAMED = (
    "blur(3, across=0.5, angle=30) | area | round",
    "motion(7, angle=60) | bicubic | round",
    "bicubic | poisson(3) | round",
    "motion(10, angle=0) | area | round",
    "bicubic | noise(20, grain=0.7) | round",
    "bicubic | noise(12, grain=1) | round",
    "bicubic | jpeg(15)",
    "bicubic | noise(8, grey=1) | jpeg(60)",
    "blur(1.2) | nearest | noise(4) | jpeg(80) | noise(3) | jpeg(70)",
)
UNNAMED_SAME_SIZE = (
    "blur(1.5, across=0.3, angle=30) | round",
    "motion(5, angle=60) | round",
    "noise(30, grain=0.7) | round",
    "jpeg(5)",
)
DENOISER_LEVEL = 25
DENOISER_INPUTS = (
    "noise(25) | round",
    "noise(15) | round",
    "noise(50) | round",
    "noise(25, grain=0.7) | round",
    "noise(25) | jpeg(90)",
)
SHIPPED_MODELS = (
    ("edsr-baseline", 2),
    ("edsr-baseline", 3),
    ("edsr-baseline", 4),
    ("photo", 1),
    ("photo", 2),
    ("photo", 4),
    ("drunet-small", 1),
)
NUM_FOLDS, SIDE, LEAST_INSIDE = 10, 192, 0.8


def already_enlarged(mode: str) -> Callable[[Tensor], Tensor]:
    """Return a function that makes an input of x2 from a target that lost three quarters before."""

    def make(target: Tensor) -> Tensor:
        small = interpolate(target, scale_factor=0.25, mode="bicubic", antialias=True)
        return quantise(interpolate(small, scale_factor=2, mode=mode))

    return make


def degraded_by(text: str, scale: int, name: str) -> Callable[[Tensor], Tensor]:
    """Return a function that makes the input of an image."""
    if text == CLEAN:
        return lambda target: super_resolution(scale).pair(target, name).degraded
    degradation = parse(text, scale=scale)
    return lambda target: make_pair(degradation, target, name=name).degraded


def measured(dataset: Dataset, text: str, scale: int) -> list[PictureStatistics]:
    """Measure the inputs of all images of a set."""
    return [
        measure(degraded_by(text, scale, name)(target)) for name, target in targets(dataset, scale)
    ]


def targets(dataset: Dataset, scale: int) -> Iterable[tuple[str, Tensor]]:
    """Yield the images of a set in color, with sides that can be shrunk twice by a scale."""
    for item in dataset.items:
        image = match_channels(read_image(item.target)[0], 3)
        yield item.name, crop_to_multiple(image, 2 * scale)


def speaking_share(reference: Reference, inputs: Iterable[PictureStatistics]) -> float:
    """Return the share of inputs that the guard speaks of."""
    return float(np.mean([bool(unlike(reference, statistics)) for statistics in inputs]))


def validation_rates(dataset: Dataset, scale: int) -> dict[str, float]:
    """Return the shares with limits from nine tenths of the images, tried on the others."""
    inputs = {text: measured(dataset, text, scale) for text in BENCHMARK_INPUTS}
    changed = changed_inputs(dataset, scale)
    shares: dict[str, list[float]] = {text: [] for text in inputs}
    order = np.random.default_rng(0).permutation(len(dataset.items))
    for tried in np.array_split(order, NUM_FOLDS):
        fitted = np.setdiff1d(order, tried)
        parts = {name: [part[i] for i in fitted] for name, part in changed.items()}
        softened = parts.pop(SOFTENED)
        reference = fit_reference(
            [inputs[CLEAN][i] for i in fitted], softened=softened, spoiled=parts
        )
        assert reference is not None
        for text, statistics in inputs.items():
            shares[text].append(speaking_share(reference, [statistics[i] for i in tried]))
    return {text: float(np.mean(values)) for text, values in shares.items()}


def changed_inputs(dataset: Dataset, scale: int) -> dict[str, list[PictureStatistics]]:
    """Measure the clean inputs of a set after softening and spoiling, by the name of the change."""
    changed: dict[str, list[PictureStatistics]] = {name: [] for name in (SOFTENED, *SPOILERS)}
    for index, (name, target) in enumerate(targets(dataset, scale)):
        degraded, generator = degraded_by(CLEAN, scale, name)(target), image_generator(index, 0)
        changed[SOFTENED].append(measure(soften(degraded)))
        for change, spoil in SPOILERS.items():
            changed[change].append(measure(spoil(degraded, generator)))
    return changed


def reference_of(model: Model) -> Reference:
    """Return the limits that a shipped file holds."""
    stored = model.require_calibration().reference
    assert stored is not None, (
        f"{model.name} has no reference; run studies.shipped_weights.shipped_references"
    )
    return Reference.from_dict(stored)


def rates(model: Model, dataset: Dataset, texts: Iterable[str]) -> dict[str, float]:
    """Return the share of inputs that a shipped model's guard speaks of, by degradation."""
    reference = reference_of(model)
    return {text: speaking_share(reference, measured(dataset, text, model.scale)) for text in texts}


def enlarged_rates(model: Model, dataset: Dataset) -> dict[str, float]:
    """Return the share of inputs of x2 that had been enlarged before."""
    reference, shares = reference_of(model), {}
    for mode in ("nearest", "bicubic"):
        make = already_enlarged(mode)
        inputs = [measure(make(target)) for _, target in targets(dataset, model.scale)]
        shares[f"enlarged by 2 ({mode})"] = speaking_share(reference, inputs)
    return shares


def inside_or_warned(
    model: Model, dataset: Dataset, texts: Iterable[str], *, noise_std: float | None = None
) -> dict[str, dict[str, float]]:
    """Return coverage, warnings and the share that has either, for a few crops of a set."""
    rows = {}
    for text in texts:
        inside, warned = [], []
        for name, image in targets(dataset, model.scale):
            target = image[..., :SIDE, :SIDE]
            degraded = degraded_by(text, model.scale, name)(target)
            low, high = model.interval(model.predict(degraded, noise_std=noise_std))
            inside.append(float(((low <= target) & (target <= high)).double().mean()))
            warned.append(bool(model.check(degraded, noise_std=noise_std)))
        either = np.logical_or(np.array(inside) >= LEAST_INSIDE, warned)
        rows[text] = {
            "inside": float(np.mean(inside)),
            "speaks": float(np.mean(warned)),
            "inside_or_warned": float(either.mean()),
        }
        print(text, rows[text], flush=True)
    return rows


def main(path: Path) -> None:
    """Measure everything and write the record."""
    crops, photos = find_dataset("DIV2K_crops"), find_dataset("B100")
    result: dict[str, dict[str, object]] = {"validation": {}, "benchmark": {}, "photo": {}}
    for scale in (2, 3, 4):
        result["validation"][f"x{scale}"] = validation_rates(crops, scale)
        model = load("edsr-baseline", scale=scale)
        result["benchmark"][f"x{scale}"] = rates(model, subset(photos, 4), BENCHMARK_INPUTS)
        print(scale, result["validation"][f"x{scale}"], result["benchmark"][f"x{scale}"])
    for scale in (2, 4):
        model = load("photo", scale=scale)
        shares = rates(model, subset(photos, 4), (*BENCHMARK_INPUTS, *OUTSIDE_PHOTO))
        result["photo"][f"x{scale}"] = shares | enlarged_rates(model, subset(photos, 4))
        print(scale, result["photo"][f"x{scale}"], flush=True)
    few = subset(photos, 10)
    photo, denoiser = (load(name, scale=1) for name in ("photo", "drunet-small"))
    result["inside_or_warned"] = dict(inside_or_warned(load("photo", scale=2), few, UNNAMED))
    result["same_size"] = {
        "photo": inside_or_warned(photo, few, UNNAMED_SAME_SIZE),
        "drunet-small": inside_or_warned(denoiser, few, DENOISER_INPUTS, noise_std=DENOISER_LEVEL),
    }
    digests = {f"{n} x{s}": load(n, scale=s).digest for n, s in SHIPPED_MODELS}
    Record(
        kind="benchmark",
        model={
            "name": "edsr-baseline, photo and drunet-small",
            "digests": digests,
            "digest": "",  # that of one model; here there are several
            "params": 0,
            "scale": 0,
        },
        protocol={"name": "guard-rates", "folds": NUM_FOLDS, "least_inside": LEAST_INSIDE},
        data={
            "name": "DIV2K_crops; every fourth and every tenth of B100",
            "hash": "+".join(data_hash(dataset) for dataset in (crops, photos)),
        },
        result=result,
        provenance=provenance(torch.device("cpu")),
    ).save(path)


def subset(dataset: Dataset, step: int) -> Dataset:
    """Return every `step`-th image of a set."""
    return replace(dataset, items=dataset.items[::step])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
