"""How far an adaptation has come, in a file, so that it can be resumed."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from musigma.adaptation.source import Settings
from musigma.atomic import write_atomically
from musigma.types import ConfigError, DataError

STATE = "adapt.json"
VERSION = 1
MAX_FINITE = 1e15
"""A finite number of the file is not larger."""

CHANGEABLE = {"minutes"}
"""Settings that may differ when a run is resumed."""


@dataclass
class State:
    """What is done already.

    Attributes:
        folder: Where the run writes.
        settings: What decides the run.
        prepared: Whether the windows are cut.
        before: What the weights of the start reached on the pictures held back.
        validation: PSNR of the start on each picture for validation.
        noise: Noise of the targets, where these are noisy.
        warnings: What the user should know of the pictures.
        seconds_per_picture: Time to restore and measure a picture.
        seconds: Time of the training, fixed when it begins.
        finished: Whether all files are written.
    """

    folder: Path
    settings: Settings
    prepared: bool = False
    before: dict[str, Any] | None = None
    validation: dict[str, float] = field(default_factory=dict)
    noise: dict[str, Any] | None = None
    warnings: list[str] = field(default_factory=list)
    seconds_per_picture: float = 0.0
    seconds: float | None = None
    finished: bool = False

    def save(self) -> None:
        """Write the state, atomically."""
        values = {key: value for key, value in vars(self).items() if key != "folder"}
        values |= {"version": VERSION, "settings": self.settings.as_json()}
        write_atomically(self.folder / STATE, (json.dumps(values, indent=1) + "\n").encode())


def open_state(folder: Path, settings: Settings, *, resume: bool) -> State:
    """Return the state of a new run, or of the one in the folder.

    Raises:
        ConfigError: The folder holds a run that is not to be resumed, or other files; or the run
            there has other settings.
    """
    path = folder / STATE
    if not path.is_file():
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigError(f"{folder} is not empty; choose another folder with --output")
        return State(folder, settings)
    if not resume:
        raise ConfigError(
            f"{folder} holds an adaptation already; continue it with --resume or choose another "
            "folder"
        )
    stored = _read(path)
    state = State(folder, settings, **{key: stored[key] for key in _KEYS})
    _check_same(stored["settings"], settings.as_json())
    more = settings.minutes - stored["settings"]["minutes"]
    if state.seconds is not None:
        state.seconds += 60 * more
    state.finished = state.finished and more <= 0
    return state


_KEYS = (
    *("prepared", "before", "validation", "noise", "warnings"),
    *("seconds_per_picture", "seconds", "finished"),
)


def _read(path: Path) -> dict[str, Any]:
    try:
        stored = json.loads(path.read_text())
        if stored["version"] == VERSION and {*_KEYS, "settings"} <= stored.keys():
            _check_forms(stored)
            return dict(stored)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path} cannot be read; start again in another folder") from error
    raise DataError(f"{path} was written by another version; start again in another folder")


def _check_forms(stored: dict[str, Any]) -> None:
    """Raise an error where something has another form than in a file of ours."""
    before, noise = stored["before"] or {}, stored["noise"] or {"gain": 0, "std": 0}
    numbers = [stored["settings"]["minutes"], stored["seconds_per_picture"], stored["seconds"] or 0]
    numbers += [noise["gain"], noise["std"], *noise.get("signals", []), *noise.get("variances", [])]
    numbers += [*stored["validation"].values()]
    numbers += [value for key, value in before.items() if key != "pictures"]
    are_texts = all(isinstance(text, str) for text in stored["warnings"])
    if not are_texts or any(type(number) not in (int, float) for number in numbers):
        raise TypeError("a number or a text was expected")
    if any(MAX_FINITE < abs(number) < math.inf for number in numbers):
        raise ValueError("a number is far too large")


def _check_same(before: dict[str, Any], now: dict[str, Any]) -> None:
    for key, value in now.items():
        if key not in CHANGEABLE and before.get(key) != value:
            option = "PICTURES" if key == "pictures" else "--" + key.replace("_", "-")
            raise ConfigError(
                f"the run to resume has {option} {before.get(key)}, not {value}; give the same, or "
                "choose another folder"
            )
