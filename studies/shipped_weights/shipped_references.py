"""Write into the shipped weights files what the inputs of their calibrations were like.

``MUSIGMA_DATA=... python -m studies.shipped_weights.shipped_references [NAME ...]`` measures the
inputs that each calibration names, which takes about a minute for each file, and stores the limits
with the calibration. The tensors stay as they are, bit by bit; only the metadata changes. ``musigma
calibrate`` stores them by itself, so that this is needed only for files calibrated before.
"""

import json
import sys
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save as to_safetensors

from musigma.atomic import write_atomically
from musigma.datasets.catalog import find_dataset
from musigma.evaluation.reference import add_reference
from musigma.model import load_file
from musigma.networks.weights_file import SHIPPED


def store_reference(path: Path) -> None:
    """Measure the inputs of a file's calibration and store their limits in the file."""
    model = load_file(path)
    calibration = model.require_calibration()
    assert calibration.data is not None, path
    measured = add_reference(model, find_dataset(calibration.data["name"])).calibration
    assert measured is not None
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    stored = json.loads(metadata["musigma"])
    stored["calibration"] = measured.to_dict()
    write_atomically(path, to_safetensors(tensors, metadata | {"musigma": json.dumps(stored)}))
    print(path.name, measured.reference, flush=True)


def main(names: list[str]) -> None:
    """Store the references of the named files, or of all shipped ones."""
    for path in sorted(SHIPPED.glob("*.safetensors")):
        if not names or path.stem in names:
            store_reference(path)


if __name__ == "__main__":
    main(sys.argv[1:])
