"""How the weights for photographs hold on kinds of input, with and without a map of sigma.

``MUSIGMA_DATA=... python -m studies.measurements.calibration_rows SCALE [WEIGHTS]`` fits a
calibration on one half of the validation crops and measures it on the other, then swaps the halves.
For each kind of input it prints the coverage at 0.9, its standard deviation over images and the
mean full width in 8-bit levels, by one factor and by a map of sigma with a factor. It takes a GPU,
or hours.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from musigma.datasets.catalog import Dataset, find_dataset
from musigma.evaluation.calibrate import calibrate
from musigma.evaluation.protocol import protocol_for
from musigma.evaluation.restored_pairs import restored_pairs
from musigma.functional.scores import interval_coverage
from musigma.model import Model, load
from musigma.uncertainty.calibration import Calibration
from studies.measurements.photo_rows import ENLARGED

FITTED = (
    "photo",
    "bicubic",
    "area | round",
    "bilinear | round",
    "lanczos | round",
    "noise(1..12) | round",
    "jpeg(40..95, subsampling=420/444)",
)
BLUR = {2: "blur(0.4..1.8) | bicubic | round", 4: "blur(0.8..3.6) | bicubic | round"}
UNSEEN = (
    "motion(3, angle=30) | bicubic | round",
    "blur(1.6, across=0.4, angle=45) | bicubic | round",
    "poisson(0.5) | round",
    "nearest | round",
    "bicubic_aliased | round",
    "bicubic | jpeg(85) | jpeg(60)",
    "bicubic | jpeg(25)",
    "bicubic | noise(20) | round",
)


def halves(dataset: Dataset) -> tuple[Dataset, Dataset]:
    """Return every second image of a set, and the others."""
    first, second = (replace(dataset, items=dataset.items[start::2]) for start in range(2))
    return first, second


def fitted_calibrations(model: Model, dataset: Dataset) -> list[Calibration]:
    """Return a calibration by one factor, and one by a map of sigma, on the same images."""
    texts = [*FITTED, BLUR[model.scale]]
    protocols = [protocol_for(model.network, degradation=text) for text in texts]
    return [calibrate(model, dataset, protocols, sigma_map=flag) for flag in (False, True)]


def measure(
    model: Model, dataset: Dataset, text: str, calibrations: list[Calibration]
) -> Iterator[list[tuple[float, float]]]:
    """Yield coverage and width of every image by each calibration."""
    protocol = protocol_for(model.network, degradation=text)
    for _, (mean, sigma), target in restored_pairs(model.network, dataset, protocol):
        assert sigma is not None
        half_widths = [calibration.half_width(sigma) for calibration in calibrations]
        yield [
            (float(interval_coverage(mean, target, width)), 2 * 255 * float(width.mean()))
            for width in half_widths
        ]


def main(scale: int, weights: str = "photo", data: str = "DIV2K_crops") -> None:
    """Fit on each half, measure on the other, and print a line for each kind of input."""
    model = load(weights, scale=scale).to("auto")
    parts = halves(find_dataset(data))
    fits = [fitted_calibrations(model, part) for part in parts]
    for text in (*ENLARGED, *UNSEEN):
        rows = [
            row
            for part, calibrations in zip(reversed(parts), fits, strict=True)
            for row in measure(model, part, text, calibrations)
        ]
        numbers = np.array(rows)  # images, calibrations, coverage and width
        cells = [
            f"{values[:, 0].mean():.3f} ({values[:, 0].std():.3f}) {values[:, 1].mean():5.1f}"
            for values in numbers.transpose(1, 0, 2)
        ]
        print(f"{text:50s} {' -> '.join(cells)}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
