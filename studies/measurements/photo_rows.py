"""The weights for photographs, measured on inputs that were degraded in many ways.

``MUSIGMA_DATA=... python -m studies.measurements.photo_rows SCALE FOLDER [WEIGHTS] [DEVICE]``
writes a record for each row. At x2 and x4 the rows are every second image of B100 in thirteen ways.
At x1 they are LIVE1 as JPEG, white noise on Kodak24 in PNG and JPEG, and the real noise of PolyU.
On one core of a CPU this takes half an hour for each scale, on a GPU a minute.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from musigma.datasets.catalog import Dataset
from musigma.evaluation.evaluate import evaluate_model
from musigma.evaluation.selection import select_inputs
from musigma.model import Model, load

NAME = "B100_every_second"
"""What the records call the images of the rows at x2 and x4."""

ENLARGED = (
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
NOISE = {
    "15-png": "noise(15) | round",
    "15-jpeg-90": "noise(15) | jpeg(90)",
    "25-png": "noise(25) | round",
    "25-jpeg-90": "noise(25) | jpeg(90)",
}


@dataclass(frozen=True)
class Row:
    """A data set and how its inputs are made.

    Attributes:
        record: Name of the record, after that of the weights.
        data: Name of the set.
        degrade: Text of the degradation; `None` for inputs that the set brings.
        thinned: Name for every second image of the set; empty to take all of them.
    """

    record: str
    data: str
    degrade: str | None
    thinned: str = ""


def rows_of(scale: int) -> Iterator[Row]:
    """Yield the rows of a scale."""
    if scale > 1:
        for number, text in enumerate(ENLARGED, start=1):
            yield Row(f"B100-half-{number:02}", "B100", text, thinned=NAME)
        return
    for number, quality in enumerate((10, 20, 40), start=1):
        yield Row(f"LIVE1-{number:02}-jpeg-{quality}", "LIVE1", f"jpeg({quality})")
    for name, text in NOISE.items():
        yield Row(f"Kodak24-noise-{name}", "Kodak24", text)
    yield Row("PolyU", "PolyU", None)


def measure(model: Model, row: Row, folder: Path) -> str:
    """Measure a row, write its record, and return a line that sums it up."""
    degradations = () if row.degrade is None else (row.degrade,)
    dataset, (protocol,) = select_inputs(model.network, row.data, degradations=degradations)
    record = evaluate_model(model, _thinned(dataset, row.thinned), protocol)
    record.save(folder / f"photo-x{model.scale}-{row.record}.json")
    values = record.result
    score = values["psnr_y"] if model.scale > 1 else values["psnr"]
    return f"{row.data}, {row.degrade}: {score:.2f} dB, {values['coverage']:.1%} inside"


def _thinned(dataset: Dataset, name: str) -> Dataset:
    return replace(dataset, name=name, items=dataset.items[::2]) if name else dataset


def main(scale: int, folder: Path, weights: str = "photo", device: str = "cpu") -> None:
    """Measure every row of a scale."""
    model = replace(load(weights, scale=scale), name="photo").to(device)
    for row in rows_of(scale):
        print(measure(model, row, folder), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
