"""``musigma train``: run a recipe."""

from pathlib import Path
from typing import Annotated, Any

import typer

from musigma.cli.common import print_json, print_line
from musigma.cli.shared_options import DeviceOption


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Example: `musigma train smoke`, which needs no data and takes a minute on a CPU."
    )(train)


def train(
    recipe: Annotated[
        str, typer.Argument(help="A recipe file, or the name of a shipped recipe, such as smoke.")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Values that replace those of the recipe."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder for the run. The default is runs/RECIPE."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue the run in the folder from its newest checkpoint."),
    ] = False,
    device: DeviceOption = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train a network by a recipe. Checkpoints, log, curves and weights go to one folder."""
    from musigma.training.recipe import load_recipe
    from musigma.training.run_log import read_log
    from musigma.training.trainer import StoppedError
    from musigma.training.trainer import train as run

    chosen = load_recipe(recipe, overrides or [])
    folder = output or Path("runs") / Path(recipe).stem
    try:
        weights = run(chosen, folder, resume=resume, device=device)
    except StoppedError as stopped:
        # The exit code is that of the signal, so that a scheduler knows the run is not finished.
        print_line(str(stopped))
        raise typer.Exit(stopped.exit_code) from stopped
    if json:
        numbers: dict[str, Any] = {}
        for line in read_log(folder):
            numbers |= {key: value for key, value in line.items() if key != "note"}
        print_json({"weights": str(weights), **numbers})
    else:
        print_line(f"trained; weights in {weights}, curves in {folder / 'curves.png'}")
