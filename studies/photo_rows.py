"""The weights for photographs on every second image of B100, degraded in thirteen ways.

``MUSIGMA_DATA=... python -m studies.photo_rows SCALE FOLDER`` writes a record for each way. On one
core of a CPU it takes half an hour at x2 and ten minutes at x4.
"""

import sys
from dataclasses import replace
from pathlib import Path

from musigma.datasets.catalog import Dataset, find_dataset
from musigma.evaluation.evaluate import evaluate_model
from musigma.evaluation.protocol import protocol_for
from musigma.model import load

NAME = "B100_every_second"
ROWS = (
    "bicubic",
    "area | round",
    "bilinear | round",
    "lanczos | round",
    "blur(0.8) | bicubic | round",
    "blur(1.6) | bicubic | round",
    "bicubic | noise(2) | round",
    "bicubic | noise(5) | round",
    "bicubic | noise(10) | round",
    "bicubic | jpeg(90)",
    "bicubic | jpeg(75)",
    "bicubic | jpeg(50)",
    "blur(0.8) | area | noise(5) | jpeg(75)",
)


def every_second(dataset: Dataset) -> Dataset:
    """Return the first, third, fifth ... image of a set."""
    return replace(dataset, name=NAME, items=dataset.items[::2])


def main(scale: int, folder: Path) -> None:
    """Measure each way and write its record."""
    model, dataset = load("photo", scale=scale), every_second(find_dataset("B100"))
    for number, text in enumerate(ROWS, start=1):
        protocol = protocol_for(model.network, degradation=text)
        record = evaluate_model(model, dataset, protocol)
        record.save(folder / f"photo-x{scale}-B100-half-{number:02}.json")
        values = record.result
        print(f"{text}: {values['psnr_y']:.2f} dB, {values['coverage']:.1%} inside", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
