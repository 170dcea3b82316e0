"""Records made up for tests: numbers that can be followed into a table."""

from pathlib import Path
from typing import Any

from musigma.evaluation.record import Record

PROVENANCE = {
    "commit": "0" * 40,
    "musigma": "0",
    "torch": "0",
    "python": "3",
    "device": "none",
    "date": "2026-01-01",
}
RECIPE: dict[str, Any] = {
    "network": "edsr-baseline",
    "scale": 2,
    "batch": 16,
    "swap_channels": False,
    "steps": 100,
    "seconds": None,
    "sigma": False,
}


def evaluation(**changes: Any) -> Record:
    """Weights of ours on Set14, or what `changes` say: recipe, data, result, images, protocol."""
    recipe = changes.pop("recipe", None)
    training = {"recipe": RECIPE | recipe} if recipe is not None else {}
    model = {"name": "edsr-baseline", "scale": 2, "params": 1, "digest": "d", "training": training}
    values = {
        "kind": "evaluation",
        "model": model | changes.pop("model", {}),
        "protocol": {"name": "sr-y", "noise_std": 0.0, "channels": 3},
        "data": {"name": changes.pop("data", "Set14"), "hash": "h"},
        "result": {"psnr_y": 33.0, "ssim_y": 0.9},
        "provenance": PROVENANCE,
    }
    return Record(**values | changes)


def run(objective: str, seed: int, sets: dict[str, Any], **recipe: Any) -> Record:
    """A training run that tells the PSNR of the images of sets."""
    chosen = RECIPE | {"objective": objective, "seed": seed} | recipe
    return Record(
        kind="training",
        model={
            "name": chosen["network"],
            "scale": chosen["scale"],
            "params": 1,
            "digest": "",
            "recipe": chosen,
        },
        protocol={"name": "sr-y", "validation": "held out"},
        data={"name": "train", "hash": "h"},
        result={
            "steps": 100,
            "loss_curve": [[10, 1.0, 0.1], [50, 5.0, 0.02], [100, 9.9, 0.01]],
            "validation": {"psnr_y": 30.0 + seed},
            "sets": {name: {"psnr_y": values} for name, values in sets.items()},
        },
        provenance=PROVENANCE,
        seed=seed,
    )


def save_all(folder: Path, **records: Record) -> Path:
    """Write records under their names; return the folder."""
    for name, record in records.items():
        record.save(folder / f"{name}.json")
    return folder
