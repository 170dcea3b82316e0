"""What the records say about the weights that ship: size, fidelity, likelihood and time.

``python -m studies.documents.measured_weights studies/results`` writes the file that `musigma
models` reads; the table of docs/weights.md comes from the same numbers.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from musigma.evaluation.record import Record, load_record
from musigma.model import Model, load_file
from musigma.networks import num_params
from musigma.networks.weight_choices import MEASURED
from musigma.networks.weights_file import SHIPPED

SETS = ("Set5", "Set14", "B100", "Urban100")


def measured_weights(records: Iterable[Record]) -> dict[str, dict[str, Any]]:
    """Return the numbers of each shipped file, by its name.

    Scores are those of the same weights, by their digest, with clean bicubic inputs and the
    calibration of the file. Times are those of the same network, whatever its weights.
    """
    records = list(records)
    return {path.stem: _numbers(path, records) for path in sorted(SHIPPED.glob("*.safetensors"))}


def _numbers(path: Path, records: list[Record]) -> dict[str, Any]:
    model = load_file(path)
    params = num_params(model.network)
    numbers: dict[str, Any] = {"params": params, "bytes": path.stat().st_size}
    for record in _evaluations(records, model):
        for key, score in (("psnr_y", "psnr_y"), ("pll", "pll_calibrated")):
            scores = numbers.setdefault(key, {})
            scores[record.data["name"]] = round(record.result[score], 3)
    name = path.stem.rpartition("-x")[0]
    for record in records:
        timed = record.model.get("name"), record.model.get("scale"), record.model.get("params")
        if record.protocol["name"] == "inference" and timed == (name, model.scale, params):
            numbers.setdefault("times", {})[record.provenance["device"]] = _time(record)
    return numbers


def _evaluations(records: list[Record], model: Model) -> Iterator[Record]:
    for record in records:
        same = record.kind == "evaluation" and record.model["digest"] == model.digest
        is_plain = "baseline" not in record.model and record.protocol["name"] == "sr-y"
        own = record.model.get("calibration", {}).get("method") != "pooled-quantile"
        if same and is_plain and own and record.data["name"] in SETS:
            yield record


def _time(record: Record) -> dict[str, Any]:
    """Return the time of the fastest engine, for its input and per megapixel of the result."""
    protocol, scale = record.protocol, record.model["scale"]
    milliseconds = record.result["timings"][record.result["fastest"]]["median_ms"]
    megapixels = protocol["height"] * protocol["width"] * scale**2 / 1e6
    return {
        "engine": record.result["fastest"],
        "input": f"{protocol['width']}x{protocol['height']}",
        "ms": round(milliseconds, 2),
        "s_per_megapixel": round(milliseconds / 1e3 / megapixels, 4),
    }


def text(numbers: dict[str, dict[str, Any]]) -> str:
    """Return the content of the file."""
    return json.dumps(numbers, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    paths = sorted(Path(sys.argv[1]).rglob("*.json"))
    MEASURED.write_text(text(measured_weights(load_record(path) for path in paths)))
