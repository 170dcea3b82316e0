"""Records: the only source of published numbers, with everything needed to trace them."""

import json
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
from musigma.files import write_atomically
from musigma.types import DataError

SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class Record:
    """One measurement.

    Attributes:
        kind: ``"evaluation"``, ``"training"``, ``"benchmark"``.
        model: Name, scale, parameters and the SHA-256 of the weights.
        protocol: How it was measured.
        data: Name, number of images and SHA-256 of the data.
        result: The numbers.
        images: The numbers of each image, by name.
        provenance: Commit, versions, device and time.
        seed: Of the run that made the weights, where there was one.
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
        text = json.dumps(asdict(self), indent=1, sort_keys=True)
        write_atomically(path, (text + "\n").encode())


REQUIRED: dict[str, tuple[str, ...]] = {
    "model": ("name", "scale", "params", "digest"),
    "protocol": ("name",),
    "data": ("name", "hash"),
    "provenance": ("commit", "musigma", "torch", "python", "device", "date"),
}


def load_record(path: Path) -> Record:
    """Read a record and refuse one that lacks what makes it traceable."""
    try:
        content = json.loads(path.read_text())
        record = Record(**content)
    except (ValueError, TypeError) as error:
        raise DataError(f"{path} is no record: {error}") from error
    for part, keys in REQUIRED.items():
        present: Mapping[str, Any] = getattr(record, part)
        missing = [key for key in keys if key not in present]
        if missing:
            raise DataError(f"{path} lacks {part}.{missing[0]}, without which it proves nothing")
    if record.schema != SCHEMA:
        raise DataError(f"{path} has schema {record.schema}; this version reads {SCHEMA}")
    if not record.result:
        raise DataError(f"{path} holds no result")
    return record


def provenance(device: torch.device) -> dict[str, str]:
    """Say where and with what a number is being made."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    return {
        "commit": commit(),
        "musigma": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": name,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def commit() -> str:
    """Return the commit of the source tree, with ``+`` where files differ from it.

    A machine that is sent the files without their history is told by ``$MUSIGMA_COMMIT``.
    """
    if told := os.environ.get("MUSIGMA_COMMIT"):
        return told
    folder = Path(__file__).parent

    def git(*words: str) -> str:
        command = ["git", "-C", str(folder), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        return done.stdout.strip() if done.returncode == 0 else ""

    head = git("rev-parse", "HEAD")
    if not head:
        return f"release {__version__}"
    return head + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]} ({len(names)} cores)" if names else platform.machine()
