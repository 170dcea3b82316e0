"""A log in the folder of the results, so that an interrupted batch can be resumed."""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from musigma._version import __version__
from musigma.atomic import write_atomically
from musigma.file_lock import open_here
from musigma.model import Model
from musigma.restoration.options import Options, tiles_are_exact
from musigma.restoration.restored import Restored, file_stamp

NAME = ".musigma.jsonl"
DAMAGED_NAME = ".musigma.damaged.jsonl"
"""Where a log goes that has damaged lines."""
_START = '{"source"'


class ResumeLog:
    """A log with one line for each restored file, appended when all its results are written.

    A file is done if a line says that it was restored with the same settings, and if the source and
    the results still have the size and the time of that line. The time of the source is the one
    before it was read.

    Args:
        model: What restores the files.
        options: How, and into which folder.

    Attributes:
        num_damaged: Lines that no run has written. Half a line, which a killed run may leave, is
            not counted.
    """

    def __init__(self, model: Model, options: Options) -> None:
        self.options = options
        self.path = options.folder / NAME
        self.settings = settings_digest(model, options)
        entries, self.num_damaged = _read_entries(self.path)
        self._entries = {entry["source"]: entry for entry in entries}

    def knows(self, source: Path) -> bool:
        """Return whether an earlier run restored a source, whatever has changed since."""
        return _absolute(source) in self._entries

    def is_done(self, source: Path, name: Path | None = None) -> bool:
        """Return whether the results of a source are complete and up to date.

        Args:
            source: The file.
            name: Name of its result in the folder, where another one does not count.
        """
        entry = self._entries.get(_absolute(source))
        if entry is None or entry["settings"] != self.settings:
            return False
        if name is not None and name.as_posix() not in entry["results"]:
            return False
        stamps = {name: file_stamp(self.options.folder / name) for name in entry["results"]}
        # A result that was gone before it was logged has no stamp, then and now.
        exist = None not in stamps.values()
        return bool(exist and entry["stamp"] == file_stamp(source) and entry["results"] == stamps)

    def add(self, restored: Restored) -> None:
        """Log a file that is done."""
        paths = [restored.output, *restored.files.values()]
        folder = self.options.folder
        results = {path.relative_to(folder).as_posix(): file_stamp(path) for path in paths}
        entry = {
            "source": _absolute(restored.source),
            "stamp": restored.source_stamp,
            "settings": self.settings,
            "results": results,
        }
        self.append(entry)

    def append(self, entry: dict[str, Any]) -> None:
        """Write a line of the log."""
        # The line break comes first: it ends the half line that a killed run may have left. One
        # call writes the line, so that lines of two runs are not mixed.
        with open(self.path, "ab", buffering=0, opener=open_here) as file:
            file.write(b"\n" + json.dumps(entry).encode())

    def set_damaged_aside(self) -> Path | None:
        """Keep a damaged log under another name, and start a new one with its good lines.

        Returns:
            The damaged log, or `None` where nothing is damaged.
        """
        if not self.num_damaged:
            return None
        aside = self.path.with_name(DAMAGED_NAME)
        self.path.replace(aside)
        lines = [json.dumps(entry) for entry in self._entries.values()]
        write_atomically(self.path, "\n".join(lines).encode())
        return aside


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


def _read_entries(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the entries of a log and the number of damaged lines, whose files are not done."""
    if not path.exists() and not path.is_symlink():
        return [], 0
    if path.is_symlink() or not path.is_file():
        return [], 1  # a link may lead to any file, and a pipe never ends
    text = path.read_text(encoding="utf-8", errors="replace")
    entries, num_damaged = [], 0
    for line in filter(str.strip, text.splitlines()):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            num_damaged += not line.startswith(_START)
            continue
        if _is_entry(entry):
            entries.append(entry)
        else:
            num_damaged += 1
    return entries, num_damaged


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or entry.keys() != {"source", "stamp", "settings", "results"}:
        return False
    return isinstance(entry["source"], str) and isinstance(entry["results"], dict)


def _absolute(source: Path) -> str:
    return str(source.absolute())
