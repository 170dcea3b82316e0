"""``musigma models``: which networks there are, what they cost, and which weights ship."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from musigma.cli.common import print_json, progress_bar, results
from musigma.cli.shared_options import examples

if TYPE_CHECKING:
    from musigma.networks import Entry, Network

Rows = list[tuple["Entry", int]]

LIST_NOTE = "'musigma models NAME' shows costs; '--shipped' compares the weights that ship."
MACS_NOTE = "GMACs are for a 1280x720 result; those of the sigma branch come on top."
LOAD_NOTE = "Load them with musigma.load(NAME, scale=...) or --model NAME --scale ..."

MEASURED_SETS = ("B100", "Urban100")
MEASURED_NOTE = (
    "PSNR on Y (dB) for clean bicubic inputs; PLL on B100; CPU: two cores, per megapixel of the "
    "result; GPU: an H200, for 640x360. A cell is empty where nothing was measured."
)


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    epilog = examples("musigma models", "musigma models --shipped", "musigma models edsr-baseline")
    app.command(epilog=epilog)(models)


def models(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Show the costs of this network at each scale."),
    ] = None,
    scale: Annotated[int | None, typer.Option(help="Show this zoom factor alone.")] = None,
    shipped: Annotated[
        bool, typer.Option("--shipped", help="Compare the weights that ship with musigma.")
    ] = False,
    load: Annotated[
        Path | None, typer.Option(help="Show what this weights file holds, as JSON.")
    ] = None,
    json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print all numbers as JSON. For all networks it takes a while."
        ),
    ] = False,
) -> None:
    """List the networks, with their parameters and the weights that ship with musigma."""
    if load is not None:
        _show_file(load, scale)
        return
    if shipped:
        weights = _shipped(name, scale)
        print_json(weights) if json else _show_shipped(weights)
        return
    rows = _choose(name, scale)
    if json:
        cards = _cards(rows)
        print_json(cards[0] if name and len(cards) == 1 else cards)
    elif name:
        _show(_cost_table(_cards(rows)), MACS_NOTE + "\n" + _about(rows[0][0]))
    else:
        _show(_overview(rows), LIST_NOTE)


def _show(table: Table, note: str) -> None:
    results.print(table)
    results.print(note, highlight=False)


def _show_file(path: Path, scale: int | None) -> None:
    from musigma.model import load_file

    model = load_file(path, scale=scale)
    content = {"name": model.name, "scale": model.scale, "sigma": model.has_sigma}
    print_json({**content, "metadata": model.metadata, "digest": model.digest})


def _choose(name: str | None, scale: int | None) -> Rows:
    from musigma.networks import entries, entry
    from musigma.types import ConfigError

    chosen = [entry(name)] if name else list(entries())
    rows = [(e, factor) for e in chosen for factor in e.scales if scale in (None, factor)]
    if not rows:
        known = ", ".join(str(factor) for factor in sorted({s for e in chosen for s in e.scales}))
        raise ConfigError(f"there is no {name or 'network'} for scale {scale}; known: {known}")
    return rows


def _cards(rows: Rows) -> list[dict[str, Any]]:
    from musigma.networks import card

    cards = []
    with progress_bar(quiet=len(rows) < 10) as bar:
        for entry, scale in bar.track(rows, description="counting"):
            content = asdict(card(entry.name, scale=scale))
            for key in ("macs_g", "sigma_macs_g"):
                content[key] = round(content[key], 1)
            cards.append(content)
    return cards


def _overview(rows: Rows) -> Table:
    """One line for each network; nothing is counted that takes long."""
    from musigma.networks.model_card import num_params
    from musigma.networks.weights_file import shipped_path

    table = _table()
    _add_columns(table, left=("network", "year", "task"), right=("scales", "parameters"))
    _add_columns(table, left=("tiles", "shipped"))
    scales: dict[str, list[int]] = {}
    for entry, scale in rows:
        scales.setdefault(entry.name, []).append(scale)
    for entry in {entry.name: entry for entry, _ in rows}.values():
        factors = scales[entry.name]
        network = _build(entry.name, factors)
        if network is None:
            table.add_row(entry.name, "", "cannot be built")
            continue
        ready = [factor for factor in factors if shipped_path(entry.name, factor)]
        table.add_row(
            entry.name,
            str(entry.year or ""),
            network.info.task,
            _range(factors),
            f"{num_params(network):,}",
            "approximate" if network.receptive_radius is None else "exact",
            " ".join(f"x{factor}" for factor in ready),
        )
    return table


def _build(name: str, scales: list[int]) -> "Network | None":
    """Build a network at the largest scale that it takes; a plug-in may not know its scales."""
    from musigma.networks.model_card import on_meta

    for scale in reversed(scales):
        try:
            return on_meta(name, scale=scale)
        except Exception:  # noqa: BLE001, S112 - one network must not hide the others
            continue
    return None


def _cost_table(cards: list[dict[str, Any]]) -> Table:
    table = _table()
    _add_columns(table, left=("network",), right=("scale", "parameters", "GMACs", "+ sigma"))
    _add_columns(table, right=("radius",))
    _add_columns(table, left=("tiles", "weights"))
    for content in cards:
        radius = content["receptive_radius"]
        table.add_row(
            content["name"],
            f"x{content['scale']}",
            f"{content['params']:,}",
            f"{content['macs_g']:.1f}",
            f"{content['sigma_macs_g']:.1f}",
            "all" if radius is None else str(radius),
            content["tiling"],
            "shipped" if content["shipped"] else "",
        )
    return table


def _shipped(name: str | None, scale: int | None) -> list[dict[str, Any]]:
    """Return what there is to say of the shipped weights, or of those of a name or a scale."""
    from musigma.networks.model_card import purpose_of
    from musigma.networks.weight_choices import choice_of, measured_numbers
    from musigma.networks.weights_file import shipped_metadata, shipped_weights
    from musigma.types import ConfigError

    measured, rows = measured_numbers(), []
    for weights, factors in shipped_weights().items():
        for factor in factors:
            if name not in (None, weights) or scale not in (None, factor):
                continue
            metadata = shipped_metadata(weights, factor)
            rows.append(
                {
                    "name": weights,
                    "scale": factor,
                    "network": metadata["architecture"],
                    "sigma": bool(metadata.get("sigma")),
                    "choice": choice_of(weights),
                    "purpose": purpose_of(metadata),
                    "license": metadata["licence"],
                    "measured": measured.get(f"{weights}-x{factor}", {}),
                }
            )
    if not rows:
        raise ConfigError("no weights ship for this choice; 'musigma models --shipped' lists all")
    return rows


def _show_shipped(rows: list[dict[str, Any]]) -> None:
    table = _table()
    _add_columns(table, left=("weights", "network", "scale"))
    table.add_column("what they do")
    licenses: dict[str, dict[str, None]] = {}
    for row in rows:
        sigma = ", with error bars" if row["sigma"] else ""
        table.add_row(row["name"], row["network"], f"x{row['scale']}", row["purpose"] + sigma)
        licenses.setdefault(row["license"], {})[row["name"]] = None
    about = [f"License of {', '.join(names)}: {text}." for text, names in licenses.items()]
    _show(table, "\n".join((LOAD_NOTE, *about)) + "\n")
    _show(_measured_table(rows), MEASURED_NOTE + "\n" + "\n".join(_choices()))


def _measured_table(rows: list[dict[str, Any]]) -> Table:
    """What was measured of weights: an empty cell where there is no record."""
    table = _table()
    _add_columns(table, left=("weights", "scale"))
    _add_columns(table, right=("parameters", "MB", *MEASURED_SETS, "PLL", "CPU", "GPU"))
    for row in rows:
        values = row["measured"]
        psnr, times = values.get("psnr_y", {}), values.get("times", {})
        cells = [f"{psnr[name]:.2f}" if name in psnr else "" for name in MEASURED_SETS]
        likelihood = values.get("pll", {}).get(MEASURED_SETS[0])
        cells.append("" if likelihood is None else f"{likelihood:.2f}")
        table.add_row(
            row["name"],
            f"x{row['scale']}",
            f"{values['params']:,}" if values else "",
            f"{values['bytes'] / 1e6:.1f}" if values else "",
            *cells,
            *(_time(times, is_gpu=is_gpu) for is_gpu in (False, True)),
        )
    return table


def _time(times: dict[str, dict[str, Any]], *, is_gpu: bool) -> str:
    """The time on the machine of a kind: seconds per megapixel on a CPU, milliseconds on a GPU."""
    for device, values in times.items():
        if device.startswith("NVIDIA") == is_gpu:
            return f"{values['ms']:.1f} ms" if is_gpu else f"{values['s_per_megapixel']:.1f} s"
    return ""


def _choices() -> list[str]:
    from musigma.networks.weight_choices import CHOICES
    from musigma.networks.weights_file import shipped_weights

    known = shipped_weights()
    lines = []
    for name, choice in CHOICES.items():
        if choice.weights in known:
            meaning = "" if name == choice.weights else f" means {choice.weights}"
            lines.append(f"--model {name}{meaning}: for {choice.purpose}.")
        else:
            lines.append(f"--model {name}: these weights do not ship yet.")
    return lines


def _about(entry: "Entry") -> str:
    source = entry.paper or "not published"
    return f"{entry.summary} {source}.".strip()


def _range(factors: list[int]) -> str:
    first, last = factors[0], factors[-1]
    return f"x{first}" if first == last else f"x{first}-x{last}"


def _table() -> Table:
    """A table of 80 columns, so that no name is cut short in a plain terminal or a log."""
    return Table(box=None, padding=(0, 1), collapse_padding=True, pad_edge=False)


def _add_columns(table: Table, *, left: tuple[str, ...] = (), right: tuple[str, ...] = ()) -> None:
    for heading in left:
        table.add_column(heading, no_wrap=True)
    for heading in right:
        table.add_column(heading, justify="right", no_wrap=True)
