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
MAX_ITEMS = 10_000
"""Most items of what a checkpoint says besides its tensors; a recipe has some hundred."""

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
    return sorted(path for path in folder.glob("step-*.checkpoint") if path.is_file())


def differing_part(expected: Any, found: Any, name: str = "step") -> str | None:
    """Return the name of the first part of a state that lacks or has another form, or `None`.

    Args:
        expected: Tensors in lists and dictionaries.
        found: What should be like it, and may be anything. Further entries do not count.
        name: What the whole is called.

    Example:
        >>> differing_part({"a": [torch.zeros(2)]}, {"a": [torch.zeros(3)]}, "state")
        'state.a.0'
    """
    if isinstance(expected, Tensor):
        return None if _is_like(expected, found) else name
    if isinstance(expected, dict):
        if not isinstance(found, dict) or not expected.keys() <= found.keys():
            return name
        if not all(isinstance(key, str) for key in found):  # what PyTorch takes for granted
            return name
        pairs = [(key, value, found[key]) for key, value in expected.items()]
    else:
        if not isinstance(found, list) or len(expected) != len(found):
            return name
        pairs = [(index, *pair) for index, pair in enumerate(zip(expected, found, strict=True))]
    parts = (differing_part(ours, theirs, f"{name}.{key}") for key, ours, theirs in pairs)
    return next((part for part in parts if part is not None), None)


def is_plain(value: Any) -> bool:
    """Return whether a value is made of texts and numbers alone, in not too many lists and tables.

    Example:
        >>> is_plain({"betas": (0.9, 0.999)}), is_plain({"betas": torch.zeros(2)})
        (True, False)
    """
    waiting = [value]
    for _ in range(MAX_ITEMS):
        if not waiting:
            return True
        item = waiting.pop()
        if isinstance(item, dict | list | tuple):
            if len(item) + len(waiting) > MAX_ITEMS:
                return False
            waiting += [*item, *item.values()] if isinstance(item, dict) else item
        elif not (item is None or isinstance(item, str | int | float)):
            return False
    return False


def _is_like(expected: Tensor, found: Any) -> bool:
    if not isinstance(found, Tensor) or found.layout != torch.strided or found.is_meta:
        return False
    return found.shape == expected.shape and found.dtype == expected.dtype


def _load(path: Path) -> dict[str, Any] | None:
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            return None
        checksum, start = file.read(32), file.tell()
        # In pieces: a damaged file may be of any size.
        if hashlib.file_digest(file, "sha256").digest() != checksum:
            return None
        file.seek(start)
        data = file.read()
    try:
        content = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
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
