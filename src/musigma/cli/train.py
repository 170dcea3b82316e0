"""``musigma train``: run a recipe."""

from pathlib import Path
from typing import Annotated, Any

import typer

from musigma.cli.common import print_json, screen


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: `musigma train fast seconds=120 objective=l1 -o runs/l1`")(train)


def train(
    recipe: Annotated[str, typer.Argument(help="A recipe file, or the name of one that ships.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Changes to the recipe.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder of the run; runs/RECIPE if none.")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on from the newest checkpoint.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    json: Annotated[bool, typer.Option(help="Print the result as JSON.")] = False,
) -> None:
    """Train a network by a recipe; checkpoints, log, curves and weights go to one folder."""
    from musigma.training.recipe import load_recipe
    from musigma.training.run_log import read_log
    from musigma.training.trainer import StoppedError
    from musigma.training.trainer import train as run

    chosen = load_recipe(recipe, overrides or [])
    folder = output or Path("runs") / Path(recipe).stem
    try:
        weights = run(chosen, folder, resume=resume, device=device)
    except StoppedError as stopped:
        # As after the signal itself: a scheduler must take the run for neither done nor wrong.
        screen.print(str(stopped), soft_wrap=True)
        raise typer.Exit(stopped.exit_code) from stopped
    if json:
        numbers: dict[str, Any] = {}
        for line in read_log(folder):
            numbers |= {key: value for key, value in line.items() if key != "note"}
        print_json({"weights": str(weights), **numbers})
    else:
        screen.print(f"trained; weights in {weights}, curves in {folder / 'curves.png'}")
