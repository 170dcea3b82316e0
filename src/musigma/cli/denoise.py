"""``musigma denoise``: take the noise out of picture files."""

from typing import Annotated

import typer

from musigma.cli import restore
from musigma.cli.restore import make_options, restore_all


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    epilog = "Example: `musigma denoise night.jpg scans/ -o clean --noise-std 25 --sigma`"
    app.command(epilog=epilog)(denoise)


def denoise(
    inputs: restore.Inputs,
    output: restore.Output,
    noise_std: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL|auto",
            help="Noise level in 8-bit units; auto: estimated for each picture. "
            "For models that are told the level.",
        ),
    ] = None,
    model: restore.ModelName = "drunet-small",
    sigma: restore.Sigma = False,
    npz: restore.Npz = False,
    page: restore.Page = False,
    coverage: restore.Coverage = None,
    engine: restore.EngineName = "torch",
    ensemble: restore.Ensemble = False,
    tile: restore.TileSide = "auto",
    memory: restore.Memory = "2GiB",
    recursive: restore.Recursive = False,
    resume: restore.Resume = False,
    ray: restore.OnRay = False,
    device: restore.Device = "auto",
    json: restore.Json = False,
) -> None:
    """Take noise out of pictures; each is written back in its own format, depth and profile."""
    from musigma.model import load
    from musigma.types import ConfigError

    options = make_options(
        output,
        tile=tile,
        memory=memory,
        noise_std=parse_noise_std(noise_std),
        estimate_noise=noise_std == "auto",
        sigma=sigma,
        npz=npz,
        page=page,
        coverage=coverage,
        engine=engine,
        ensemble=ensemble,
    )
    loaded = load(model, scale=1)
    if loaded.takes_noise_level and noise_std is None:
        raise ConfigError(
            f"{loaded.name} must be told the noise level; give --noise-std, a number or auto"
        )
    if noise_std is not None and not loaded.takes_noise_level:
        raise ConfigError(f"{loaded.name} is not told the noise level; leave --noise-std out")
    if (sigma or npz) and not loaded.has_sigma:
        raise ConfigError(f"{model} has no sigma branch; leave --sigma out or choose another model")
    restore_all(
        loaded,
        inputs,
        options,
        device=device,
        recursive=recursive,
        resume=resume,
        ray=ray,
        json=json,
    )


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
