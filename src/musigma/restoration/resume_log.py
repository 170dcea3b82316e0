"""What a folder of results holds, so that a batch that was interrupted can go on."""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from musigma._version import __version__
from musigma.model import Model
from musigma.restoration.restore_file import Options, Restored, result_paths, tiles_are_exact

NAME = ".musigma.jsonl"
PARTS = ".musigma-*.part"


class Journal:
    """One line for each file that was restored into a folder, added when all of it is written.

    A file is done if its line says so: made by the same settings, from a source and with results
    that have still the size and the time that they had then.

    Args:
        model: What restores the files.
        options: How, and into which folder.
    """

    def __init__(self, model: Model, options: Options) -> None:
        self.options = options
        self.path = options.folder / NAME
        self.settings = settings_digest(model, options)
        self._lines = {line["source"]: line for line in _read(self.path)}

    def is_done(self, source: Path) -> bool:
        """Whether there is nothing left to do for a source."""
        line = self._lines.get(_name(source))
        if line is None or line["settings"] != self.settings:
            return False
        stamps = {name: _stamp(self.options.folder / name) for name in line["results"]}
        return line["stamp"] == _stamp(source) and line["results"] == stamps

    def add(self, restored: Restored) -> None:
        """Note that a file is done."""
        results = {}
        for path in result_paths(restored.output, self.options):
            if stamp := _stamp(path):
                results[path.relative_to(self.options.folder).as_posix()] = stamp
        line = {
            "source": _name(restored.source),
            "stamp": _stamp(restored.source),
            "settings": self.settings,
            "results": results,
        }
        with self.path.open("a", encoding="utf-8") as file:
            # Before the line, not behind it: half a line of a run that was killed ends here.
            file.write("\n" + json.dumps(line))

    def remove_parts(self) -> None:
        """Remove the unfinished files of an interrupted run; no other may be at work here."""
        for part in self.options.folder.rglob(PARTS):
            part.unlink(missing_ok=True)


def settings_digest(model: Model, options: Options) -> str:
    """Return a name for everything but the source that a result depends on."""
    settings = asdict(options)
    del settings["folder"]
    if tiles_are_exact(model, options):
        del settings["tile"], settings["memory"]
    facts = [__version__, model.name, model.scale, model.digest, settings]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    lines = []
    for line in text.splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue  # empty, or half a line
    return lines


def _name(source: Path) -> str:
    return str(source.absolute())


def _stamp(path: Path) -> list[int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return [found.st_size, found.st_mtime_ns]
