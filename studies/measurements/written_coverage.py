"""How many true values lie inside the intervals of written files: PNG, JPEG and WebP.

``python -m studies.measurements.written_coverage RECORD`` shrinks validation pictures and enlarges
them with EDSR-baseline x2 into files of each format, as ``musigma upscale --sigma`` does. For each
format the record holds the share of true values inside the intervals that stand beside the file,
and inside the intervals of the float mean, which do not know of the format. It takes about two
minutes on one core.
"""

import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from musigma.datasets.catalog import describe_data, find_dataset
from musigma.evaluation.evaluate import describe_model
from musigma.evaluation.protocol import super_resolution
from musigma.evaluation.record import Record, provenance
from musigma.images.image_io import read_image, write_image
from musigma.images.listing import ImageSource
from musigma.model import Model, load
from musigma.restoration.error_maps import read_error_map
from musigma.restoration.options import Options
from musigma.restoration.restore_file import restore_file

DATA, SCALE, NUM_PICTURES = "DIV2K_crops", 2, 25
SUFFIXES = {"PNG": ".png", "JPEG 95": ".jpg", "WebP 95": ".webp"}
QUALITY = 95
"""Of JPEG and WebP. It is told, since a WebP that is made from a PNG is lossless by default."""


def share_inside(truth: Tensor, value: Tensor, half_width: Tensor) -> float:
    return float(((truth - value).abs() <= half_width).double().mean())


def coverage(model: Model, degraded: Tensor, truth: Tensor, folder: Path) -> dict[str, float]:
    """Return the shares of one picture, by format, with and without the error of saving."""
    source = folder / "source.png"
    write_image(source, degraded)
    shares = {}
    for name, suffix in SUFFIXES.items():
        quality = None if suffix == ".png" else QUALITY
        options = Options(folder=folder / "out", npz=True, quality=quality)
        done = restore_file(model, ImageSource(source, Path(f"result{suffix}")), options)
        saved = read_image(done.output)[0]
        of_mean = read_error_map(done.files["npz"], "half_width").values
        shares[name] = share_inside(truth, saved, read_error_map(done.files["half_width"]).values)
        shares[f"{name}, intervals of the float mean"] = share_inside(truth, saved, of_mean)
    mean = model.predict(read_image(source)[0]).mean
    shares["float"] = share_inside(truth, mean, of_mean)
    return shares


def main(record: Path) -> None:
    torch.set_num_threads(1)
    model, protocol = load("edsr-baseline", scale=SCALE), super_resolution(SCALE)
    data = find_dataset(DATA)
    step = len(data.items) // NUM_PICTURES
    rows = []
    for item in data.items[::step][:NUM_PICTURES]:
        degraded, target = protocol.pair(read_image(item.target)[0], item.name)
        with tempfile.TemporaryDirectory() as folder:
            rows.append(coverage(model, degraded, target, Path(folder)))
        print(item.name, {name: round(share, 4) for name, share in rows[-1].items()}, flush=True)
    shares = {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}
    print({name: round(share, 4) for name, share in shares.items()})
    Record(
        kind="benchmark",
        model=describe_model(model),
        protocol={"name": "written-coverage", "pictures": len(rows)},
        data=describe_data(data),
        result={"coverage": shares, "pictures": rows},
        provenance=provenance(torch.device("cpu")),
    ).save(record)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
