"""What ``upscale`` and ``denoise`` say about the files that they restored."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from musigma.cli.common import print_line, print_warning

if TYPE_CHECKING:
    from musigma.model import Model
    from musigma.restoration.batch import Failed
    from musigma.restoration.options import Options
    from musigma.restoration.restored import Restored

_MAX_NAMES = 3  # in a line about several files


@dataclass
class Outcomes:
    """What became of the files of a run.

    Attributes:
        done: Files that were restored.
        skipped: Files that were restored before.
        failed: Files that could not be restored.
        left_out: Files of the folders that are no pictures.
    """

    done: "list[Restored]"
    skipped: list[Path]
    failed: "list[Failed]"
    left_out: list[Path]

    def to_json(self) -> Any:
        """Return the outcomes and their paths as plain values."""
        return _plain(vars(self))


def print_notes(restored: "Restored", *, show_noise: bool) -> None:
    """Print the estimated noise level of a picture, and what the user should know about it."""
    from musigma.functional.noise import NoiseEstimate

    if show_noise:
        level = NoiseEstimate(restored.estimated_noise_std, restored.noise_is_white)
        growth = f"; it grows with the signal: {restored.noise_growth}"
        shown = growth if restored.noise_growth else ""
        print_line(f"{restored.source}: estimated noise level {level}{shown}")
    for warning in restored.warnings:
        print_warning(f"{restored.source}: {warning}")


def print_promises(options: "Options", done: "list[Restored]") -> None:
    """Print what the intervals promise, once for all files with the same promise."""
    if not options.shows_errors:
        return
    by_promise: dict[tuple[str | None, str | None], list[Path]] = defaultdict(list)
    for restored in done:
        by_promise[restored.promise, restored.promise_reason].append(restored.source)
    for (promise, reason), paths in by_promise.items():
        if reason is not None:
            which = _files(paths, len(done))
            print_warning(f"the promise of the intervals does not hold for {which}: {reason}")
        elif promise is not None:
            which = "" if len(paths) == len(done) else f"{_files(paths, len(done))}: "
            print_line(f"Intervals: {which}{promise}.")


def _files(paths: Sequence[Path], num_all: int) -> str:
    if num_all == 1:
        return "this file"
    return f"{len(paths)} of {num_all} files ({_first_names(paths)})"


def _first_names(paths: Sequence[Path]) -> str:
    names = [path.name for path in paths[:_MAX_NAMES]] + ["..."] * (len(paths) > _MAX_NAMES)
    return ", ".join(names)


def print_summary(model: "Model", output: Path, outcomes: Outcomes) -> None:
    """Print how many files were written, skipped, left out and failed; a single one by its name.

    Args:
        model: What restored them.
        output: The folder or the file that was asked for.
        outcomes: What became of the files.
    """
    done, num_skipped, num_left_out = outcomes.done, len(outcomes.skipped), len(outcomes.left_out)
    skipped = f", {num_skipped} {_was(num_skipped)} there already" if num_skipped else ""
    if num_left_out:
        files, pictures = ("file", "a picture") if num_left_out == 1 else ("files", "pictures")
        names = _first_names(outcomes.left_out)
        print_line(f"{num_left_out} {files} left out, not {pictures} that can be read: {names}")
    is_one = len(done) == 1 and not outcomes.failed
    place = done[0].output if is_one else output
    print_line(f"{len(done)} written to {place}{skipped}, {len(outcomes.failed)} failed")
    if is_one and "page" in done[0].files:
        print_line(f"Its page: {done[0].files['page']}")
    num_approximate = sum(not restored.exact for restored in done)
    if num_approximate:
        print_line(
            f"{num_approximate} approximate: {model.name} looks at the whole picture, but each "
            "tile shows only a part of it; more --memory allows larger tiles"
        )


def _was(number: int) -> str:
    return "was" if number == 1 else "were"


def _plain(value: Any) -> Any:
    """Return outcomes and their paths as plain values."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return _plain(vars(value)) if hasattr(value, "__dict__") else value
