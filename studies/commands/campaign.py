"""``musigma campaign``: which runs are done, and the next ones."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from musigma.cli.common import print_json, results, screen

File = Annotated[Path, typer.Option("--file", help="The campaign file.")]
CAMPAIGN, RESULTS = Path("studies/campaign.toml"), Path("studies/results")


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Turn GPU minutes into records and weights, in order.")
    group.command("status")(status)
    group.command("next", epilog="Example: `musigma campaign next --minutes 25 -o out`")(go_on)
    app.add_typer(group, name="campaign")


def status(
    file: File = CAMPAIGN,
    results_folder: Annotated[Path, typer.Option("--results", help="Of the records.")] = RESULTS,
    json: Annotated[bool, typer.Option(help="Print the result as JSON.")] = False,
) -> None:
    """Say which runs have their records, and what they found."""
    from rich.table import Table

    from studies.campaign import load_campaign

    rows = [
        {
            "name": plan.name,
            "done": plan.done(results_folder),
            "runs": len(plan.names()),
            "minutes": plan.minutes,
            "text": plan.finding or plan.why,
        }
        for plan in load_campaign(file)
    ]
    if json:
        print_json(rows)
        return
    table = Table("run", "done", "minutes", "what it found, or is for")
    for row in rows:
        done = f"{row['done']}/{row['runs']}"
        table.add_row(str(row["name"]), done, f"{row['minutes']:g}", str(row["text"]))
    results.print(table)


def go_on(
    minutes: Annotated[float, typer.Option(help="How long the machine is ours.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="For records, weights, runs.")],
    file: File = CAMPAIGN,
    results_folder: Annotated[Path, typer.Option("--results", help="Of the records.")] = RESULTS,
    pack: Annotated[
        Path | None, typer.Option(help="Put what is to be brought back here, in 15 MiB pieces.")
    ] = None,
    at_once: Annotated[int, typer.Option(min=1, help="Runs to train side by side.")] = 1,
    only: Annotated[list[str] | None, typer.Option(help="Of these entries alone.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would run.")] = False,
) -> None:
    """Make the next runs that fit a time: train, measure, write records and weights."""
    from studies.campaign import load_campaign, next_jobs, run_jobs, run_side_by_side

    jobs = next_jobs(load_campaign(file, only=only), results_folder, minutes=minutes)
    for job in jobs:
        screen.print(f"next: {job.name} ({job.minutes:.1f} minutes)")
    if not jobs:
        screen.print(f"nothing is left to run that fits {minutes:g} minutes")
    elif at_once > 1 and not dry_run:
        run_side_by_side(jobs, output, at_once=at_once, device=device, pack=pack)
    elif not dry_run:
        # What went wrong with a run may hold brackets, which are no markup.
        say = partial(screen.print, markup=False)
        run_jobs(jobs, output, device=device, pack=pack, report=say)
