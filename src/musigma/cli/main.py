"""The ``musigma`` command: one file per subcommand, errors as one line."""

import sys
from typing import Annotated

import typer

from musigma._version import __version__
from musigma.cli import (
    calibrate,
    demo,
    denoise,
    evaluate,
    export,
    models,
    train,
    upscale,
)
from musigma.cli.common import print_error, results
from musigma.types import MusigmaError

app = typer.Typer(
    name="musigma",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def print_version(asked: bool) -> None:
    """Print the version and end, where it was asked for."""
    if asked:
        results.print(f"musigma {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=print_version)
    ] = False,
) -> None:
    """Enlarge and denoise images; every pixel carries its error bar."""


for command in (
    demo,
    upscale,
    denoise,
    evaluate,
    calibrate,
    models,
    train,
    export,
):
    command.add_to(app)


def main() -> None:
    """Run the ``musigma`` command."""
    run(app)


def run(commands: typer.Typer) -> None:
    """Run commands; an error that the user can correct ends in one line and exit code 2."""
    try:
        commands()
    except (MusigmaError, OSError) as error:
        print_error(str(error))
        sys.exit(2)
