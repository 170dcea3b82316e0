"""A log in the folder of the results, so that an interrupted batch can be resumed."""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from musigma._version import __version__
from musigma.model import Model
from musigma.restoration.options import Options, tiles_are_exact
from musigma.restoration.restore_file import Restored

NAME = ".musigma.jsonl"
UNFINISHED_FILES = ".musigma-*.part"


class ResumeLog:
    """A log with one line for each restored file, appended when all its results are written.

    A file is done if a line says that it was restored with the same settings, and if the source and
    the results still have the size and the time of that line.

    Args:
        model: What restores the files.
        options: How, and into which folder.
    """

    def __init__(self, model: Model, options: Options) -> None:
        self.options = options
        self.path = options.folder / NAME
        self.settings = settings_digest(model, options)
        self._entries = {entry["source"]: entry for entry in _read_entries(self.path)}

    def is_done(self, source: Path) -> bool:
        """Return whether the results of a source are complete and up to date."""
        entry = self._entries.get(_absolute(source))
        if entry is None or entry["settings"] != self.settings:
            return False
        stamps = {name: _stamp(self.options.folder / name) for name in entry["results"]}
        return bool(entry["stamp"] == _stamp(source) and entry["results"] == stamps)

    def add(self, restored: Restored) -> None:
        """Log a file that is done."""
        paths = [restored.output, *restored.files.values()]
        results = {path.relative_to(self.options.folder).as_posix(): _stamp(path) for path in paths}
        entry = {
            "source": _absolute(restored.source),
            "stamp": _stamp(restored.source),
            "settings": self.settings,
            "results": results,
        }
        with self.path.open("a", encoding="utf-8") as file:
            # The line break comes first: it ends the half line that a killed run may have left.
            file.write("\n" + json.dumps(entry))

    def remove_unfinished_files(self) -> None:
        """Remove the temporary files of an interrupted run; no other run may use the folder."""
        for part in self.options.folder.rglob(UNFINISHED_FILES):
            part.unlink(missing_ok=True)


def settings_digest(model: Model, options: Options) -> str:
    """Return a short name for everything but the source that a result depends on."""
    settings = asdict(options)
    del settings["folder"], settings["max_pixels"]
    if tiles_are_exact(model, options):
        del settings["tile"], settings["memory"]
    # The digest of a model is that of its tensors; the calibration is not part of it.
    calibration = model.calibration.to_dict() if model.calibration else None
    content = [__version__, model.name, model.scale, model.digest, calibration, settings]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _read_entries(path: Path) -> list[dict[str, Any]]:
    """Return the complete lines of a log; a damaged line means only that its file is not done."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    entries = []
    for line in text.splitlines():
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue  # empty, or half a line
        if _is_entry(entry):
            entries.append(entry)
    return entries


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or entry.keys() != {"source", "stamp", "settings", "results"}:
        return False
    return isinstance(entry["source"], str) and isinstance(entry["results"], dict)


def _absolute(source: Path) -> str:
    return str(source.absolute())


def _stamp(path: Path) -> list[int] | None:
    """Return size and time of a file, or `None` where there is none."""
    try:
        status = path.stat()
    except (OSError, ValueError):  # a damaged log may hold names that no system allows
        return None
    return [status.st_size, status.st_mtime_ns]
