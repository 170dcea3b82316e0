"""``python -m studies paper``: the paper's tables and figures, with our measurements."""

from pathlib import Path
from typing import Annotated

import typer

from musigma.cli.common import print_json, progress_bar, results, screen

Records = Annotated[
    Path | None, typer.Option(help="Folder of records; by default studies/results.")
]
Json = Annotated[bool, typer.Option(help="Print JSON.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        help="The paper's tables and figures, with our measurements.",
        invoke_without_command=True,
        epilog="Examples: `python -m studies paper table ablation`, "
        "`python -m studies paper all -o out/paper`",
    )
    group.callback()(contents)
    group.command("table")(table)
    group.command("figure")(figure)
    group.command("all")(everything)
    app.add_typer(group, name="paper")


def contents(context: typer.Context, json: Json = False) -> None:
    """List the tables and figures."""
    if context.invoked_subcommand is not None:
        return
    from studies.documents import leaderboard
    from studies.paper import real, study, zoo, zoo_summary
    from studies.paper.figures import FIGURES
    from studies.paper.printed import TABLES, printed_table

    tables = {name: printed_table(name).title for name in TABLES}
    tables |= {"study": study.TITLE, "zoo": zoo.TITLE, "zoo-summary": zoo_summary.TITLE}
    tables |= {"real": real.TITLE, "real-coverage": real.COVERAGE_TITLE}
    tables |= {"leaderboard": leaderboard.TITLE}
    figures = {name: entry.title for name, entry in FIGURES.items()}
    if json:
        print_json({"tables": tables, "figures": figures})
        return
    for group, titles in (("table", tables), ("figure", figures)):
        for name, title in titles.items():
            results.print(f"{group:6}  {name:15}  {title}")


def table(
    name: Annotated[
        str, typer.Argument(help="Such as ablation; `python -m studies paper` lists them.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write it here, as .md or .html.")
    ] = None,
    records: Records = None,
    json: Json = False,
) -> None:
    """Print a table: each row of the paper, and below it what our records measured."""
    from studies.paper.measurements import load_records
    from studies.paper.report import make_table, write_table

    made = make_table(name, load_records(records))
    if output is not None:
        write_table(output, made)
    if json:
        print_json(made.as_json())
    elif output is None:
        results.print(made.as_markdown(), soft_wrap=True, end="")
    else:
        screen.print(f"written to {output}")


def figure(
    name: Annotated[
        str, typer.Argument(help="Such as landscape; `python -m studies paper` lists them.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file, .png or .svg.")],
    records: Records = None,
    json: Json = False,
) -> None:
    """Draw a figure."""
    from musigma.restoration.figures import write_picture
    from studies.paper.figures import draw
    from studies.paper.measurements import load_records

    with progress_bar(quiet=json) as bar:
        bar.add_task(f"drawing {name}", total=None)
        drawing = draw(name, load_records(records))
        write_picture(output, drawing.figure)
    if json:
        origin = {"caption": drawing.caption, "records": list(drawing.sources)}
        print_json({"file": str(output), **origin})
    else:
        screen.print(f"{drawing.caption}\nwritten to {output}")


def everything(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the files.")],
    records: Records = None,
    json: Json = False,
) -> None:
    """Write all tables and figures, and one page that holds them."""
    from studies.paper.measurements import load_records
    from studies.paper.report import write_report

    with progress_bar(quiet=json) as bar:
        task = bar.add_task("tables", total=None)
        files = write_report(
            output,
            load_records(records),
            progress=lambda done, total, name: bar.update(
                task, completed=done, total=total, description=name
            ),
        )
    if json:
        print_json({"page": str(files[0]), "files": [str(file) for file in files]})
    else:
        screen.print(f"open {files[0]}")
