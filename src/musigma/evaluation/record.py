"""Records: the only source of published numbers, with everything needed to trace them."""

import json
import math
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from musigma._version import __version__
from musigma.atomic import write_atomically
from musigma.types import DataError
from musigma.uncertainty.methods import FORMER_METHODS

SCHEMA = 2
"""Version 2 writes degradations in their text form, and a calibration with its conditions."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """One measurement.

    Attributes:
        kind: What was done: ``"evaluation"``, ``"training"``, ``"adaptation"`` or ``"benchmark"``.
        model: Name, scale, parameters and the SHA-256 of the weights.
        protocol: How it was measured.
        data: Name, number of images and SHA-256 of the data.
        result: The numbers.
        images: The numbers of each image, by name.
        provenance: Commit, versions, device and time.
        seed: Seed of the training run that made the weights, where there was one.
        schema: Version of this form.
    """

    kind: str
    model: dict[str, Any]
    protocol: dict[str, Any]
    data: dict[str, Any]
    result: dict[str, Any]
    provenance: dict[str, str]
    seed: int | None = None
    images: dict[str, dict[str, float]] = field(default_factory=dict)
    schema: int = SCHEMA

    def save(self, path: Path) -> None:
        """Write the record as JSON, atomically."""
        text = json.dumps(_spelled(asdict(self)), indent=1, sort_keys=True, allow_nan=False)
        try:
            write_atomically(path, (text + "\n").encode())
        except OSError as error:
            raise DataError(f"{path} could not be written ({error.strerror})") from error


def jsonable(value: Any) -> Any:
    """Return a value with ``None`` for each number that JSON lacks, such as an infinite PSNR.

    Example:
        >>> jsonable({"psnr": [float("inf"), 38.0]})
        {'psnr': [None, 38.0]}
    """
    if isinstance(value, Mapping):
        return {key: jsonable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _spelled(value: Any) -> Any:
    """Return a value with the name of each number that JSON lacks: ``"inf"`` for infinity."""
    if isinstance(value, Mapping):
        return {key: _spelled(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_spelled(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _with_numbers(value: Any) -> Any:
    """Return a value with the numbers that `_spelled` has named."""
    if isinstance(value, Mapping):
        return {key: _with_numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_numbers(inner) for inner in value]
    return float(value) if value in ("inf", "-inf", "nan") else value


REQUIRED: dict[str, tuple[str, ...]] = {
    "model": ("name", "scale", "params", "digest"),
    "protocol": ("name",),
    "data": ("name", "hash"),
    "provenance": ("commit", "musigma", "torch", "python", "device", "date"),
}


def load_record(path: Path) -> Record:
    """Read a record; refuse a file that lacks what makes a number traceable."""
    try:
        record = Record(**upgraded(json.loads(path.read_text())))
    except OSError as error:
        raise DataError(f"{path} could not be read ({error.strerror})") from error
    except (ValueError, TypeError) as error:
        raise DataError(f"{path} is not a record: {error}") from error
    for part, keys in REQUIRED.items():
        missing = [key for key in keys if not _holds(getattr(record, part), key)]
        if missing:
            raise DataError(
                f"{path} lacks {part}.{missing[0]}, without which its numbers cannot be traced"
            )
    if record.schema != SCHEMA:
        raise DataError(f"{path} has schema {record.schema}; this version reads {SCHEMA}")
    if not record.result:
        raise DataError(f"{path} holds no result")
    return record


FORMER_DEGRADATIONS = {
    "MATLAB imresize bicubic, 8 bits after each pass; HR cropped to a multiple": "bicubic",
    "additive white Gaussian noise, not clipped, drawn once per image by name": "noise({level})",
}
"""How records of schema 1 described what is now the text form of a degradation."""


def upgraded(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a record of schema 1 in the form of the present one."""
    content = dict(content)
    for part in ("result", "images"):
        content[part] = _with_numbers(_psnr_of_null(content.get(part, {})))
    if content.get("schema", 1) != 1:
        return content
    protocol, model = content.get("protocol"), content.get("model")
    if isinstance(protocol, Mapping):
        content["protocol"] = _upgraded_protocol(dict(protocol))
    if isinstance(model, Mapping):
        content["model"] = _upgraded_model(dict(model))
    return content | {"schema": SCHEMA}


def _psnr_of_null(value: Any) -> Any:
    """Return the result of a record in which an infinite PSNR was stored as ``null``."""
    if not isinstance(value, Mapping):
        return value
    return {
        key: math.inf if inner is None and key.startswith("psnr") else _psnr_of_null(inner)
        for key, inner in value.items()
    }


def _upgraded_protocol(protocol: dict[str, Any]) -> dict[str, Any]:
    text = FORMER_DEGRADATIONS.get(protocol.get("degradation", ""))
    if text is None:
        return protocol
    protocol["degradation"] = text.format(level=f"{protocol['noise_std']:g}")
    protocol["seed"] = protocol.pop("noise_seed", 0)
    if text == "bicubic":
        protocol["noise_std"] = None
    return protocol


def _upgraded_model(model: dict[str, Any]) -> dict[str, Any]:
    data = model.pop("calibration_data", None)
    if isinstance(calibration := model.get("calibration"), Mapping):
        former = {key: value for key, value in calibration.items() if key != "kind"}
        method = FORMER_METHODS.get(calibration.get("kind", ""), calibration.get("kind"))
        model["calibration"] = {"method": method} | former | ({"data": data} if data else {})
    return model


def _holds(part: Any, key: str) -> bool:
    value = part.get(key) if isinstance(part, Mapping) else None
    return value is not None and (value != "" or key == "digest")  # bicubic has no weights


def provenance(device: torch.device) -> dict[str, str]:
    """Return where and with what a number is being made.

    ``commit_source`` is ``"environment"`` where ``$MUSIGMA_COMMIT`` named the commit, which nobody
    has checked, ``"git"`` where it was read from the repository, and ``"release"`` for an installed
    copy.
    """
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    name_of_commit, source = commit()
    return {
        "commit": name_of_commit,
        "commit_source": source,
        "musigma": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": name,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def commit() -> tuple[str, str]:
    """Return the commit of the source tree, with ``+`` where files differ from it, and its source.

    A machine that is sent the files without their history is told by ``$MUSIGMA_COMMIT``.
    """
    if told := os.environ.get("MUSIGMA_COMMIT"):
        return told, "environment"
    folder = Path(__file__).parent

    def git(*words: str) -> str:
        command = ["git", "-C", str(folder), *words]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        except OSError:
            return ""  # there is no git
        return done.stdout.strip() if done.returncode == 0 else ""

    # An installed copy may lie, untracked, inside the repository of another project.
    head = git("ls-files", Path(__file__).name) and git("rev-parse", "HEAD")
    if not head:
        return f"release {__version__}", "release"
    changed = "+" if git("status", "--porcelain", "--untracked-files=no") else ""
    return head + changed, "git"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]} ({len(names)} cores)" if names else platform.machine()
