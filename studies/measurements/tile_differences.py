"""How far tiles are off the whole picture for networks that see all of it at once.

``python -m studies.measurements.tile_differences RECORD`` cuts a picture of 151 x 157 pixels into
tiles of 90 for every network without a radius, with random weights, and for released files of such
networks that lie in ``MUSIGMA_CHECKPOINTS``. Differences are shares of the root mean square of the
result; for released files, which were trained to restore, also 8-bit levels.
"""

import os
import sys
import time
from pathlib import Path

import torch

from musigma.evaluation.record import Record, provenance
from musigma.model import load
from musigma.networks import Network, create, entries
from musigma.prediction.engines.fastest import sample_tile
from musigma.prediction.predict import predict
from musigma.types import MusigmaError

SIZE, TILE = (151, 157), 90
SMALLER = {  # whole, they would take an hour
    "gcdn": {"width": 12, "rank": 2, "num_steps": 1},
    "nlrn": {"width": 32, "num_steps": 2},
}


def differences(network: Network) -> dict[str, float]:
    image = sample_tile(network, *SIZE)
    start = time.perf_counter()
    whole = predict(network, image).mean
    tiled = predict(network, image, tile=TILE).mean
    off, scale = (tiled - whole).double(), float(whole.double().square().mean().sqrt())
    return {
        "largest_share": float(off.abs().max()) / scale,
        "rms_share": float(off.square().mean().sqrt()) / scale,
        "largest_levels": 255 * float(off.abs().max()),
        "seconds": round(time.perf_counter() - start, 1),
    }


def main(record: Path) -> None:
    results = {}
    for entry in entries():
        with torch.device("meta"):
            is_local = create(entry.name, scale=entry.scales[0]).receptive_radius is not None
        if is_local or "colour" in entry.name or "grey" in entry.name:
            continue
        torch.manual_seed(0)
        settings = SMALLER.get(entry.name, {})
        network = create(entry.name, scale=entry.scales[0], **settings).eval()
        results[entry.name] = differences(network)
        print(entry.name, results[entry.name], flush=True)
    for file in sorted(Path(os.environ.get("MUSIGMA_CHECKPOINTS", "")).rglob("*.pth")):
        try:
            network = load(file).network
        except MusigmaError:
            continue
        if network.receptive_radius is None:
            results[f"released {file.stem}"] = differences(network)
            print(file.stem, results[f"released {file.stem}"], flush=True)
    Record(
        kind="benchmark",
        model={"name": "networks without a radius", "scale": 0, "params": 0, "digest": ""},
        protocol={"name": "tile-differences", "size": list(SIZE), "tile": TILE, "smaller": SMALLER},
        data={"name": "waves drawn by code", "hash": "generated"},
        result=results,
        provenance=provenance(torch.device("cpu")),
        seed=0,
    ).save(record)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
