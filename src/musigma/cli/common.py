"""What the commands share: consoles, messages, progress bars, and sizes in bytes."""

import json
import logging
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from musigma.images.listing import printable

screen = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
"""Console for people, on stderr. Brackets in file names are not markup."""

results = Console(highlight=False, markup=False, emoji=False)
"""Console for tables and other results, on stdout."""


def require_stdout() -> None:
    """Raise an error where the standard output is closed, as by ``>&-``."""
    from musigma.types import ConfigError

    if sys.stdout is None:
        raise ConfigError("the standard output is closed, and results go there; open it")


def print_json(value: Any) -> None:
    """Print one JSON value on stdout."""
    from musigma.evaluation.record import jsonable

    require_stdout()
    sys.stdout.write(json.dumps(jsonable(value), indent=2, allow_nan=False) + "\n")


OPTIONS = {
    *("coverage", "device", "engine", "frame", "max_pixels", "memory", "model", "network"),
    *("noise_std", "npz", "output", "quality", "scale", "sigma", "tile", "trust_network"),
    *("degrade", "format", "height", "low", "page", "range", "width"),
}
"""Arguments of Python functions that are options of the commands, too."""


def with_option_names(text: str) -> str:
    """Write arguments as options: errors name an argument of a Python function in backticks.

    Example:
        >>> with_option_names("set `noise_std`, or leave `other` out")
        'set --noise-std, or leave `other` out'
    """

    def option(match: re.Match[str]) -> str:
        name = match[1]
        return "--" + name.replace("_", "-") if name in OPTIONS else match[0]

    return re.sub(r"`(\w+)`", option, text)


def print_error(text: str) -> None:
    """Print an error as one line."""
    _print_message("error:", "bold red", text)


def print_warning(text: str) -> None:
    """Print a warning as one line."""
    _print_message("warning:", "bold yellow", text)


def print_line(text: str) -> None:
    """Print one line for people; control characters in file names are escaped."""
    screen.print(printable(text))


def _print_message(label: str, style: str, text: str) -> None:
    line = printable(" ".join(with_option_names(text).splitlines()))
    screen.print(Text.assemble((label, style), f" {line}"))


class _LineHandler(logging.Handler):
    """Prints what is logged as lines for people; with a traceback, all lines of it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        if record.levelno >= logging.WARNING:
            print_warning(record.getMessage())
            return
        for line in self.format(record).splitlines():
            print_line(line)


@contextmanager
def messages_as_lines() -> Iterator[None]:
    """Print warnings of Python and of the log as lines for people while the block runs.

    They may hold names of files, whose control characters a terminal would obey.
    """

    def show(message: Warning | str, *_: object, **__: object) -> None:
        print_warning(str(message))

    logger, handler = logging.getLogger("musigma"), _LineHandler()
    level = logger.level
    logger.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = show
            yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@contextmanager
def progress_bar(*, quiet: bool = False) -> Iterator[Progress]:
    """Show progress and remaining time on stderr while the block runs."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    hidden = quiet or not screen.is_terminal
    with Progress(*columns, console=screen, disable=hidden, transient=True) as progress:
        yield progress


@contextmanager
def show_progress(*, quiet: bool = False) -> Iterator[Callable[[int, int, str], None]]:
    """Show a bar while the block runs; the block calls the function before each image.

    The function takes the number of images done, the number of all, and the name of the next one.
    """
    with progress_bar(quiet=quiet) as bar:
        task = bar.add_task("")
        yield lambda done, total, name: bar.update(
            task, completed=done, total=total, description=printable(name)
        )


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end the block as an exception does, so that it leaves nothing behind.

    The exit code is 143, which says that the signal ended the process.
    """

    def end(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_IGN)  # a second one must not disturb the cleaning up
        sys.exit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may change what a signal does
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def parse_size(text: str) -> int:
    """Read a size in bytes such as ``2GiB``, ``500MB`` or ``1073741824``.

    Example:
        >>> parse_size("1.5GiB")
        1610612736
    """
    from musigma.types import ConfigError, short_repr

    units = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
    match = re.fullmatch(
        r"(\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})\s*([kmg]i?)?b?", text.strip().lower()
    )
    size = float(match[1]) * units[match[2] or ""] if match else 0.0
    if not 1 <= size < 2**63:
        raise ConfigError(f"expected a size such as 2GiB or 500MB, got {short_repr(text)}")
    return int(size)
