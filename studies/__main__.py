"""``python -m studies``: the experiments of the project, run from a checkout."""

import typer

from musigma.cli.main import run
from studies.commands import bench, campaign, paper

app = typer.Typer(
    name="python -m studies",
    help="Run the project's experiments and make its tables and figures. Needs a checkout.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
for command in (campaign, bench, paper):
    command.add_to(app)


def main() -> None:
    """Run ``python -m studies``."""
    run(app)


if __name__ == "__main__":
    main()
