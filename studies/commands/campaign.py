"""``python -m studies campaign``: which runs are done, and the next ones."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from musigma.cli.common import print_json, results, screen
from musigma.images.listing import printable
from studies.paper.measurements import RESULTS

File = Annotated[Path, typer.Option("--file", help="The campaign file.")]
CAMPAIGN = Path(__file__).parents[1] / "campaign.toml"


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Run the training runs of studies/campaign.toml in order.")
    group.command("status")(status)
    group.command("cost")(cost)
    group.command("next", epilog="Example: `python -m studies campaign next --minutes 25 -o out`")(
        run_next
    )
    app.add_typer(group, name="campaign")


def status(
    file: File = CAMPAIGN,
    results_folder: Annotated[
        Path, typer.Option("--results", help="Folder of the records.")
    ] = RESULTS,
    json: Annotated[bool, typer.Option(help="Print the result as JSON.")] = False,
) -> None:
    """List the runs, how many of them have their records, and their findings."""
    from rich.table import Table

    from studies.training_runs.campaign import load_campaign

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
    table = Table("run", "done", "minutes", "finding, or question")
    for row in rows:
        done = f"{row['done']}/{row['runs']}"
        table.add_row(str(row["name"]), done, f"{row['minutes']:g}", printable(row["text"]))
    results.print(table)


def cost(
    file: File = CAMPAIGN,
    results_folder: Annotated[
        Path, typer.Option("--results", help="Folder of the records.")
    ] = RESULTS,
    only: Annotated[
        list[str] | None, typer.Option(help="Show only this entry; can be given several times.")
    ] = None,
    json: Annotated[bool, typer.Option(help="Print the result as JSON.")] = False,
) -> None:
    """Estimate what the runs of the study over all networks cost that have no record yet."""
    from dataclasses import asdict

    from rich.table import Table

    from studies.training_runs.campaign import MAX_MINUTES, next_jobs
    from studies.training_runs.zoo import costs, zoo_plans

    rows = costs(next_jobs(zoo_plans(file, only=only), results_folder, minutes=MAX_MINUTES))
    total = sum(row.seconds for row in rows)
    if json:
        print_json({"runs": [asdict(row) | {"seconds": row.seconds} for row in rows], "s": total})
        return
    table = Table("run", "seeds", "updates", "GMACs", "step (ms)", "ready (s)", "s")
    for row in rows:
        sizes = f"{row.gigamacs:.2f}", f"{1e3 * row.step:.1f}", f"{row.preparation:.0f}"
        table.add_row(row.name, str(row.runs), str(row.updates), *sizes, f"{row.seconds:.0f}")
    results.print(table)
    results.print(f"{total:.0f} s on one H200, one run after another, without the measurements")


def run_next(
    minutes: Annotated[float, typer.Option(help="Minutes for which runs are started at most.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Output folder for records, weights and runs.")
    ],
    file: File = CAMPAIGN,
    results_folder: Annotated[
        Path, typer.Option("--results", help="Folder of the records.")
    ] = RESULTS,
    pack: Annotated[
        Path | None, typer.Option(help="Folder for tar files of records and weights, 15 MiB each.")
    ] = None,
    at_once: Annotated[
        int, typer.Option(min=1, help="Number of runs to train at the same time.")
    ] = 1,
    only: Annotated[
        list[str] | None, typer.Option(help="Run only this entry; can be given several times.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the runs without starting them.")
    ] = False,
) -> None:
    """Train and measure the next runs that fit the given minutes."""
    from studies.training_runs.campaign import load_campaign, next_jobs, run_jobs, run_side_by_side

    jobs = next_jobs(load_campaign(file, only=only), results_folder, minutes=minutes)
    for job in jobs:
        screen.print(f"next: {job.name} ({job.minutes:.1f} minutes)")
    if not jobs:
        screen.print(f"no run is left that fits {minutes:g} minutes")
    elif at_once > 1 and not dry_run:
        run_side_by_side(jobs, output, at_once=at_once, device=device, pack=pack)
    elif not dry_run:
        # An error message may hold brackets, which rich would read as markup.
        report = partial(screen.print, markup=False)
        run_jobs(jobs, output, device=device, pack=pack, report=report)
