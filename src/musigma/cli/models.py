"""``musigma models``: what there is, and the facts of each network."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from musigma.cli.common import print_json, progress_bar, results


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
    from musigma.model import load_file
    from musigma.networks import card, entries, entry
    from musigma.types import ConfigError

    if load is not None:
        model = load_file(load, scale=scale)
        found = {"name": model.name, "scale": model.scale, "sigma": model.has_sigma}
        print_json({**found, "metadata": model.metadata, "digest": model.digest})
        return
    chosen = [entry(name)] if name else list(entries())
    wanted = [(e.name, each) for e in chosen for each in e.scales if scale in (None, each)]
    if not wanted:
        known = ", ".join(str(each) for each in sorted({s for e in chosen for s in e.scales}))
        raise ConfigError(f"there is no {name or 'network'} for scale {scale}; known: {known}")
    cards = []
    with progress_bar(quiet=json) as bar:
        for each_name, each_scale in bar.track(wanted, description="counting"):
            cards.append(_facts(card(each_name, scale=each_scale)))
    if json:
        print_json(cards[0] if name and len(cards) == 1 else cards)
    else:
        results.print(_table(cards))


def _facts(card: Any) -> dict[str, Any]:
    facts = asdict(card)
    for key in ("macs_g", "sigma_macs_g"):
        facts[key] = round(facts[key], 1)
    facts["shipped"] = bool(card.licence)
    return facts


def _table(cards: list[dict[str, Any]]) -> Table:
    """A table of 80 columns, so that no name is cut short in a plain terminal or a log."""
    table = Table(
        caption="MACs for a 1280x720 result; the sigma branch is counted apart",
        box=None,
        padding=(0, 1),
        collapse_padding=True,
        pad_edge=False,
    )
    for heading in ("network", "year"):
        table.add_column(heading, no_wrap=True)
    for heading in ("scale", "parameters", "GMACs", "+ sigma", "radius"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("tiling", no_wrap=True)
    table.add_column("weights", no_wrap=True)
    for facts in cards:
        table.add_row(
            facts["name"],
            str(facts["year"]),
            f"x{facts['scale']}",
            f"{facts['params']:,}",
            f"{facts['macs_g']:.1f}",
            f"{facts['sigma_macs_g']:.1f}",
            "all" if facts["receptive_radius"] is None else str(facts["receptive_radius"]),
            facts["tiling"],
            "shipped" if facts["shipped"] else "",
        )
    return table
