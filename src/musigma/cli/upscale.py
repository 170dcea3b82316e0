"""``musigma upscale``: enlarge picture files."""

from typing import Annotated

import typer

from musigma.cli import restore
from musigma.cli.restore import make_options, restore_all


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    epilog = "Example: `musigma upscale photo.jpg scans/ -o large --scale 2 --sigma`"
    app.command(epilog=epilog)(upscale)


def upscale(
    inputs: restore.Inputs,
    output: restore.Output,
    scale: Annotated[int | None, typer.Option(help="Zoom factor.")] = None,
    model: restore.ModelName = "edsr-baseline",
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
    """Enlarge pictures; each is written back in its own format, bit depth and profile."""
    from musigma.model import load
    from musigma.types import ConfigError

    options = make_options(
        output,
        tile=tile,
        memory=memory,
        sigma=sigma,
        npz=npz,
        page=page,
        coverage=coverage,
        engine=engine,
        ensemble=ensemble,
    )
    loaded = load(model, scale=scale)
    if loaded.scale == 1:
        raise ConfigError(f"{model} does not enlarge; 'musigma denoise' uses it")
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
