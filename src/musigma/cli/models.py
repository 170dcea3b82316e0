"""``musigma models``: what there is, and the facts of each network."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from musigma.cli.common import print_json, screen


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    epilog = "Examples: `musigma models`, `musigma models edsr-baseline --scale 2 --json`"
    app.command(epilog=epilog)(models)


def models(
    name: Annotated[str | None, typer.Argument(help="One network; all of them if none.")] = None,
    scale: Annotated[int | None, typer.Option(help="Only this zoom factor.")] = None,
    load: Annotated[Path | None, typer.Option(help="Say what a weights file holds.")] = None,
    json: Annotated[bool, typer.Option(help="Print JSON.")] = False,
) -> None:
    """List the networks: parameters, MACs for a 1280x720 result, tiling, shipped weights."""
    from musigma.models import card, entries, entry
    from musigma.models.weights import load_file

    if load is not None:
        model = load_file(load, scale=scale)
        found = {"name": model.name, "scale": model.scale, "sigma": model.has_sigma}
        print_json({**found, "metadata": model.metadata, "digest": model.digest})
        return
    chosen = [entry(name)] if name else list(entries())
    cards = [
        _facts(card(found.name, scale=each))
        for found in chosen
        for each in found.scales
        if scale in (None, each)
    ]
    if json:
        print_json(cards[0] if name and len(cards) == 1 else cards)
    else:
        screen.print(_table(cards))


def _facts(card: Any) -> dict[str, Any]:
    from musigma.models.weights import SHIPPED

    facts = asdict(card)
    for key in ("macs_g", "sigma_macs_g"):
        facts[key] = round(facts[key], 1)
    facts["shipped"] = (SHIPPED / f"{card.name}-x{card.scale}.safetensors").is_file()
    return facts


def _table(cards: list[dict[str, Any]]) -> Table:
    table = Table(caption="MACs for a 1280x720 result; the sigma branch is counted apart")
    for heading in ("network", "year", "task"):
        table.add_column(heading)
    for heading in ("scale", "parameters", "GMACs", "+ sigma", "radius"):
        table.add_column(heading, justify="right")
    table.add_column("tiling")
    table.add_column("weights")
    for facts in cards:
        table.add_row(
            facts["name"],
            str(facts["year"]),
            facts["task"],
            f"x{facts['scale']}",
            f"{facts['params']:,}",
            f"{facts['macs_g']:.1f}",
            f"{facts['sigma_macs_g']:.1f}",
            "all" if facts["radius"] is None else str(facts["radius"]),
            facts["tiling"],
            "shipped" if facts["shipped"] else "",
        )
    return table
