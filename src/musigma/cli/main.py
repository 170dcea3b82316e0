"""The ``musigma`` command: one module per subcommand, and what is printed for an error."""

import errno
import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from musigma._version import __version__
from musigma.cli import (
    adapt,
    audit,
    calibrate,
    demo,
    denoise,
    evaluate,
    export,
    measure,
    models,
    sample,
    serve,
    train,
    upscale,
    wrap,
)
from musigma.cli import (
    app as app_command,
)
from musigma.cli.common import exit_on_sigterm, messages_as_lines, print_error, results
from musigma.types import MusigmaError

app = typer.Typer(
    name="musigma",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

PACKAGE = Path(__file__).parents[1]
REFUSALS = {
    errno.EACCES,
    errno.EDQUOT,
    errno.EEXIST,
    errno.EFBIG,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOSPC,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
}
"""Codes of the system for files that the user can correct: missing, forbidden, no room, ..."""


class Settings:
    """Settings of the whole process."""

    debug = False


def print_version(wanted: bool) -> None:
    """Print the version and exit if it is wanted."""
    if wanted:
        results.print(f"musigma {__version__}")
        raise typer.Exit


def set_debug(wanted: bool) -> None:
    """Set whether every error shows its traceback, also that of one file in a batch."""
    Settings.debug = wanted
    if wanted:
        logging.getLogger("musigma").setLevel(logging.DEBUG)


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=print_version)
    ] = False,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug", help="Show the Python traceback of every error.", callback=set_debug
        ),
    ] = False,
) -> None:
    """Enlarge and denoise images; every pixel carries its error bar."""


for command in (
    demo,
    upscale,
    denoise,
    measure,
    sample,
    audit,
    evaluate,
    calibrate,
    adapt,
    models,
    train,
    wrap,
    export,
    app_command,
    serve,
):
    command.add_to(app)


def main() -> None:
    """Run the ``musigma`` command; SIGTERM ends it without leaving half a file behind."""
    with exit_on_sigterm():
        run(app)


def run(commands: typer.Typer) -> None:
    """Run commands; an error that the user can correct gives one line and exit code 2.

    Every other error is a bug and shows its traceback, and so does every error with ``--debug``.
    """
    Settings.debug = False
    try:
        with messages_as_lines():
            commands()
    except (MusigmaError, OSError) as error:
        if Settings.debug or not is_correctable(error):
            raise
        print_error(str(error))
        sys.exit(2)


def is_correctable(error: Exception) -> bool:
    """Return whether the user can correct an error: one of ours, or a file the system refused.

    A file of the package itself that is missing is not one of them.

    Example:
        >>> is_correctable(FileNotFoundError(errno.ENOENT, "No such file", "photo.png"))
        True
        >>> is_correctable(OSError("no code"))
        False
    """
    if not isinstance(error, OSError):
        return True
    names = [name for name in (error.filename, error.filename2) if isinstance(name, str | Path)]
    is_ours = any(PACKAGE in Path(name).absolute().parents for name in names)
    return error.errno in REFUSALS and not is_ours
