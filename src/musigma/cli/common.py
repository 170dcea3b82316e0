"""What the commands share: where they print, how they fail, how they show progress."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

screen = Console(stderr=True, highlight=False)
"""For people; results that programs read go to stdout."""


def print_json(value: Any) -> None:
    """Print one JSON object on stdout."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def print_error(text: str) -> None:
    """Print one line of what went wrong."""
    screen.print(f"[bold red]error:[/] {_escape(text)}", soft_wrap=True)


@contextmanager
def progress_bar(*, quiet: bool = False) -> Iterator[Progress]:
    """Show progress and time left on stderr while the block runs."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=screen, disable=quiet, transient=True) as progress:
        yield progress


def parse_size(text: str) -> int:
    """Read a number of bytes such as ``2GiB``, ``500MB`` or ``1073741824``.

    Example:
        >>> parse_size("1.5GiB")
        1610612736
    """
    import re

    from musigma.types import ConfigError

    units = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
    match = re.fullmatch(r"([\d.]+)\s*([kmg]i?)?b?", text.strip().lower())
    try:
        assert match is not None
        size = int(float(match[1]) * units[match[2] or ""])
    except (AssertionError, ValueError):
        size = 0
    if size <= 0:
        raise ConfigError(f"expected a size such as 2GiB or 500MB, got {text!r}")
    return size


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)
