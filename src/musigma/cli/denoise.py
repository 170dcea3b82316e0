"""``musigma denoise``: take the noise out of picture files."""

from pathlib import Path
from typing import Annotated

import typer

from musigma.cli.common import parse_size
from musigma.cli.upscale import parse_tile, restore_all


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    epilog = "Example: `musigma denoise night.jpg scans/ -o clean --noise-std 25 --sigma`"
    app.command(epilog=epilog)(denoise)


def denoise(
    inputs: Annotated[list[str], typer.Argument(metavar="INPUT...", help="Files or folders.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the results.")],
    noise_std: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL|auto",
            help="Noise level in 8-bit units; auto: estimated for each picture. "
            "For models that are told the level.",
        ),
    ] = None,
    model: Annotated[str, typer.Option(help="A name, or a weights file.")] = "drunet-small",
    sigma: Annotated[bool, typer.Option(help="Write the error map of each picture too.")] = False,
    npz: Annotated[bool, typer.Option(help="Write mean and error map as NPZ too.")] = False,
    page: Annotated[bool, typer.Option(help="Write a page to look at for each picture.")] = False,
    coverage: Annotated[
        float | None, typer.Option(help="Of the intervals; the model must be calibrated for it.")
    ] = None,
    tile: Annotated[
        str, typer.Option(help="Largest side of a tile in pixels; auto: as --memory allows.")
    ] = "auto",
    memory: Annotated[str, typer.Option(help="What a tile may need.")] = "2GiB",
    recursive: Annotated[bool, typer.Option(help="Look into the folders below, too.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    json: Annotated[bool, typer.Option(help="Print the results as JSON.")] = False,
) -> None:
    """Take noise out of pictures; each is written back in its own format, depth and profile."""
    from musigma.inference.device import pick_device
    from musigma.inference.files import Options
    from musigma.models import entry, load
    from musigma.types import ConfigError

    if output.exists() and not output.is_dir():
        raise ConfigError(f"{output} is a file; --output names the folder for the results")
    options = Options(
        folder=output,
        noise_std=parse_noise_std(noise_std),
        estimate_noise=noise_std == "auto",
        sigma=sigma,
        npz=npz,
        page=page,
        coverage=coverage,
        tile=parse_tile(tile),
        memory=parse_size(memory),
    )
    loaded = load(model, scale=1)
    if entry(loaded.name).noise_map and noise_std is None:
        raise ConfigError(
            f"{loaded.name} must be told the noise level; give --noise-std, a number or auto"
        )
    if noise_std is not None and not entry(loaded.name).noise_map:
        raise ConfigError(f"{loaded.name} is not told the noise level; leave --noise-std out")
    if (sigma or npz) and not loaded.has_sigma:
        raise ConfigError(f"{model} has no sigma branch; leave --sigma out or choose another model")
    loaded.network.to(pick_device(device))
    restore_all(loaded, inputs, options, recursive=recursive, json=json)


def parse_noise_std(text: str | None) -> float | None:
    """Read a noise level in 8-bit units; `None` where none is given, or ``auto``."""
    from musigma.types import ConfigError

    if text in (None, "auto"):
        return None
    try:
        level = float(text)
    except ValueError:
        level = -1.0
    # Written so that it refuses what is not a number, too.
    if not 0 <= level <= 255:
        raise ConfigError(
            f"expected --noise-std auto or a level from 0 to 255 in 8-bit units, got {text!r}"
        )
    return level
