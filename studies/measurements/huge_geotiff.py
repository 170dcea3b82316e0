"""GeoTIFFs of growing size enlarged by the command that users run: peak memory and time.

``python -m studies.measurements.huge_geotiff RECORD [--side 44722] [--model bicubic]`` makes files
of a quarter, a half and the whole of the side, each of one 8-bit band, and enlarges them twofold
with a budget of 1 GiB. A side of 44,722 is a file of 2 gigapixels and a result of 8; the disk needs
12 GB.

The record has the peak memory of the process, the processor time for each megapixel, which other
work on the machine hardly changes, and how many of the samples at the corners and across the result
differ from the network on crops, and by how much. The time for a file of 10 gigabytes is
extrapolated from the largest file.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from musigma.evaluation.record import Record, provenance
from musigma.model import Model, load, save
from musigma.networks import create, num_params
from musigma.prediction.predict import predict
from studies.measurements.huge_picture import PROGRAM

MEMORY = "1GiB"
PIECE = 160
SIDE = 44_722
TEN_GIGABYTES = 10e9
BLOCK = 512


def draw(path: Path, side: int) -> None:
    """Write rings that grow narrower outwards, block row by block row."""
    import rasterio
    from rasterio.windows import Window

    right = np.linspace(-1, 1, side, dtype=np.float32)[None]
    profile: dict[str, Any] = {"driver": "GTiff", "count": 1, "dtype": "uint8", "nodata": 0}
    profile |= {"height": side, "width": side, "crs": "EPSG:32632", "bigtiff": "IF_SAFER"}
    profile |= {"tiled": True, "blockxsize": BLOCK, "blockysize": BLOCK}
    profile["transform"] = rasterio.Affine(0.5, 0, 5e5, 0, -0.5, 54e5)
    with rasterio.Env(GDAL_CACHEMAX=64), rasterio.open(path, "w", **profile) as dataset:
        for top in range(0, side, BLOCK):
            down = np.linspace(-1, 1, side, dtype=np.float32)[top : top + BLOCK, None]
            rows = (127.5 + 110 * np.sin(900 * (down**2 + right**2))).astype(np.uint8)
            dataset.write(rows, 1, window=Window(0, top, side, len(rows)))


def enlarge(source: Path, folder: Path, model: str) -> dict[str, float]:
    """Run the command in a process of its own; return its peak memory and time."""
    command = [sys.executable, "-c", PROGRAM, "upscale", str(source), "-o", str(folder)]
    command += ["--scale", "2", "--model", model, "--memory", MEMORY, "--json"]
    start, cpu_start = time.perf_counter(), _cpu_seconds_of_children()
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    seconds, cpu_seconds = time.perf_counter() - start, _cpu_seconds_of_children() - cpu_start
    json.loads(done.stdout)  # the command has succeeded
    peak = int(done.stderr.split()[-1]) / 1024
    return {
        "peak_mib": round(peak, 1),
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu_seconds, 1),
    }


def _cpu_seconds_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def compare(source: Path, result: Path, model: Model) -> dict[str, int]:
    """Count the samples that differ from the network on crops, at 25 places."""
    import rasterio

    with rasterio.open(source) as small, rasterio.open(result) as large:
        starts = np.linspace(0, small.height - PIECE, 5).astype(int)
        pieces = [_piece(small, large, model, top, left) for top in starts for left in starts]
    differences = np.stack([np.abs(ours.astype(int) - theirs) for ours, theirs in pieces])
    return {
        "samples": differences.size,
        "different": int((differences > 0).sum()),
        "largest_difference": int(differences.max()),
    }


def _piece(small: Any, large: Any, model: Model, top: int, left: int) -> tuple[Any, Any]:
    """Return a piece of the result as a crop gives it, and as the file holds it."""
    from rasterio.windows import Window

    radius = model.network.receptive_radius or 0
    rows, columns = (
        slice(max(0, n - radius), min(small.height, n + PIECE + radius)) for n in (top, left)
    )
    crop = torch.from_numpy(small.read(1, window=Window.from_slices(rows, columns)))
    mean = predict(model.network, crop[None, None].float() / 255).mean[0, 0]
    levels = (mean * 255).round().clamp(1, 255).byte().numpy()
    up, across = 2 * (top - rows.start), 2 * (left - columns.start)
    ours = levels[up : up + 2 * PIECE, across : across + 2 * PIECE]
    return ours, large.read(1, window=Window(2 * left, 2 * top, 2 * PIECE, 2 * PIECE))


def measure(folder: Path, side: int, model: str) -> dict[str, float]:
    """Make, enlarge and check one file; remove it."""
    source, result = folder / "scene.tif", folder / "out" / "scene.tif"
    draw(source, side)
    row = enlarge(source, folder / "out", model)
    megapixels = side**2 / 1e6
    row |= {
        "megapixels": megapixels,
        "cpu_seconds_per_megapixel": round(row["cpu_seconds"] / megapixels, 4),
    }
    row |= {"result_megabytes": result.stat().st_size / 1e6}
    row |= compare(source, result, load(model, scale=2))
    source.unlink()
    result.unlink()
    return row


def main() -> None:
    """Measure three sizes and save the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("record", type=Path)
    parser.add_argument("--side", type=int, default=SIDE)
    parser.add_argument("--model", choices=("bicubic", "fsrcnn"), default="bicubic")
    parser.add_argument("--folder", type=Path, help="Where the files are made and removed.")
    words = parser.parse_args()
    results: dict[str, Any] = {}
    torch.manual_seed(0)
    network = create(words.model, scale=2)
    with tempfile.TemporaryDirectory(dir=words.folder) as name:
        model = words.model
        if model != "bicubic":
            model = str(Path(name) / "model.safetensors")
            save(Path(model), network)
        for side in (words.side // 4, words.side // 2, words.side):
            results[f"{side} x {side}"] = measure(Path(name), side, model)
            print(side, results[f"{side} x {side}"], flush=True)
    last = results[f"{words.side} x {words.side}"]
    hours = last["cpu_seconds_per_megapixel"] * TEN_GIGABYTES / 1e6 / 3600
    results["10 gigabytes of 8 bit, extrapolated"] = {"hours of one core": round(hours, 2)}
    Record(
        kind="benchmark",
        model={"name": words.model, "scale": 2, "params": num_params(network), "digest": ""},
        protocol={"name": "huge-geotiff", "memory": MEMORY, "threads": torch.get_num_threads()},
        data={"name": "rings drawn by code", "hash": "generated"},
        result=results,
        provenance=provenance(torch.device("cpu")),
    ).save(words.record)


if __name__ == "__main__":
    main()
