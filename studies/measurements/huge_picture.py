"""A picture of 100 megapixels enlarged with 2 GiB: peak memory of the process, corners and seams.

``python -m studies.measurements.huge_picture RECORD`` draws a PNG of 10,000 x 10,000 pixels,
enlarges it twofold with FSRCNN, and a part of it with EDSR-baseline and its error map, by the
command that users run. Of each result, pieces at the corners and across it are compared with
`predict` on crops that are as wide as the network can see.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from musigma.evaluation.record import Record, provenance
from musigma.functional.color import to_uint8
from musigma.images.image_io import open_image, write_image
from musigma.model import load, save
from musigma.networks import create, num_params
from musigma.networks.weights_file import SHIPPED
from musigma.prediction.predict import predict

MEMORY = "2GiB"
PIECE = 160  # small crops would go through another routine, which rounds otherwise
PROGRAM = """
import re, sys
from pathlib import Path
from musigma.cli.main import main
sys.argv[0] = "musigma"
try:
    main()
finally:
    # Not ru_maxrss, which a process takes over from the one that started it.
    peak = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]
    print(peak, file=sys.stderr)
"""


def draw(path: Path, height: int, width: int) -> None:
    """Rings that grow narrower outwards, each color a little apart: no two tiles are alike."""
    down = np.linspace(-1, 1, height, dtype=np.float32)[:, None]
    right = np.linspace(-1, 1, width, dtype=np.float32)[None]
    picture = np.empty((height, width, 3), np.uint8)
    for band in range(0, height, 500):
        distance = down[band : band + 500] ** 2 + right**2
        for colour in range(3):
            wave = np.sin(900 * distance + colour)
            picture[band : band + 500, :, colour] = (127.5 + 110 * wave).astype(np.uint8)
    whole = torch.from_numpy(picture).permute(2, 0, 1)[None]
    write_image(path, whole)


def enlarge(source: Path, folder: Path, model: Path, *words: str) -> dict[str, float]:
    command = [sys.executable, "-c", PROGRAM, "upscale", str(source), "-o", str(folder)]
    command += ["--scale", "2", "--model", str(model), "--memory", MEMORY, *words]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    peak = int(done.stderr.split()[-1]) / 1024
    return {"peak_mib": round(peak, 1), "seconds": round(time.perf_counter() - start, 1)}


def compare(source: Path, result: Path, model: Path) -> dict[str, int]:
    """Count the 8-bit samples that differ from the network on crops, at 25 places."""
    network = load(model, scale=2).network
    small, large = open_image(source).colors, open_image(result).colors
    height, width = small.shape[2:]
    differ = samples = 0
    for top in np.linspace(0, height - PIECE, 5).astype(int):
        for left in np.linspace(0, width - PIECE, 5).astype(int):
            radius = network.receptive_radius
            rows = slice(max(0, top - radius), min(height, top + PIECE + radius))
            columns = slice(max(0, left - radius), min(width, left + PIECE + radius))
            mean = to_uint8(predict(network, small[:, :, rows, columns]).mean)
            up, across = 2 * (top - rows.start), 2 * (left - columns.start)
            ours = mean[:, :, up : up + 2 * PIECE, across : across + 2 * PIECE]
            theirs = to_uint8(
                large[:, :, 2 * top : 2 * (top + PIECE), 2 * left : 2 * (left + PIECE)]
            )
            differ += int((ours != theirs).sum())
            samples += ours.numel()
    return {"samples": samples, "different": differ}


def main(record: Path) -> None:
    shipped = SHIPPED / "edsr-baseline-x2.safetensors"
    results = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        torch.manual_seed(0)
        network = create("fsrcnn", scale=2)
        save(folder / "fsrcnn.safetensors", network)
        for title, size, model, words in (
            ("fsrcnn, 10000 x 10000", (10_000, 10_000), folder / "fsrcnn.safetensors", []),
            ("edsr-baseline with sigma, 10000 x 400", (400, 10_000), shipped, ["--sigma"]),
        ):
            source = folder / "picture.png"
            draw(source, *size)
            results[title] = enlarge(source, folder / "out", model, *words)
            print(title, results[title], flush=True)
            results[title] |= compare(source, folder / "out" / "picture.png", model)
            print(title, results[title], flush=True)
    Record(
        kind="benchmark",
        model={"name": "fsrcnn", "scale": 2, "params": num_params(network), "digest": ""},
        protocol={"name": "huge-picture", "memory": MEMORY, "threads": torch.get_num_threads()},
        data={"name": "rings drawn by code", "hash": "generated"},
        result=results,
        provenance=provenance(torch.device("cpu")),
    ).save(record)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
