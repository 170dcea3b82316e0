"""Checkpoints that survive a crash at any moment: complete or absent, checked, always finite."""

import hashlib
import io
import logging
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from musigma.atomic import atomic_writer

KEPT = 2
MAGIC = b"musigma-checkpoint-1\n"
log = logging.getLogger(__name__)


def save_checkpoint(folder: Path, step: int, content: dict[str, Any]) -> Path | None:
    """Write a checkpoint and remove all others except the newest one before it.

    Checkpoints of later steps are removed, too: a run continues from the newest good checkpoint, so
    later ones must be damaged. Files that a crash left half written are also removed.

    Returns:
        The file, or `None` if the content holds a value that is not finite: such a state is never
        written.
    """
    if not _all_finite(content):
        return None
    buffer = io.BytesIO()
    torch.save(content, buffer)
    data = buffer.getvalue()
    path = folder / f"step-{step:09d}.checkpoint"
    with atomic_writer(path) as file:
        file.write(MAGIC)
        file.write(hashlib.sha256(data).digest())
        file.write(data)
    kept = [other for other in checkpoints(folder) if other <= path][-KEPT:]
    for old in {*checkpoints(folder), *folder.glob(".musigma-*.part")} - {*kept}:
        old.unlink(missing_ok=True)
    return path


def load_newest(folder: Path) -> dict[str, Any] | None:
    """Return the newest complete checkpoint; damaged ones are skipped with a warning."""
    for path in reversed(checkpoints(folder)):
        content = _load(path)
        if content is not None:
            return content
        log.warning("%s is damaged; using the one before", path.name)
    return None


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a run, oldest first."""
    return sorted(folder.glob("step-*.checkpoint"))


def _load(path: Path) -> dict[str, Any] | None:
    data = path.read_bytes()
    start = len(MAGIC) + 32
    if (
        data[: len(MAGIC)] != MAGIC
        or data[len(MAGIC) : start] != hashlib.sha256(data[start:]).digest()
    ):
        return None
    try:
        content = torch.load(io.BytesIO(data[start:]), map_location="cpu", weights_only=True)
    except Exception:  # noqa: BLE001  a foreign pickle raises anything
        return None
    return content if isinstance(content, dict) else None


def _all_finite(value: Any) -> bool:
    if isinstance(value, Tensor):
        return not value.is_floating_point() or bool(torch.isfinite(value).all())
    if isinstance(value, dict):
        return all(_all_finite(item) for item in value.values())
    if isinstance(value, list | tuple):
        return all(_all_finite(item) for item in value)
    return True
