"""``musigma upscale``: enlarge picture files."""

from typing import Annotated

import typer

from musigma.cli.restore import ModelName, SharedOptions, restore_all, with_shared_options


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    epilog = "Example: `musigma upscale photo.jpg scans/ -o large --scale 2 --sigma`"
    app.command(epilog=epilog)(upscale)


@with_shared_options
def upscale(
    shared: SharedOptions,
    scale: Annotated[
        int | None,
        typer.Option(help="Zoom factor; needed where the model exists for several."),
    ] = None,
    model: ModelName = "edsr-baseline",
) -> None:
    """Enlarge pictures. Each result has the format, bit depth and profile of its picture."""
    from musigma.model import load
    from musigma.types import ConfigError

    options = shared.to_options()
    loaded = load(model, scale=scale)
    if loaded.network.info.task == "denoising":
        raise ConfigError(f"{model} is a denoiser; 'musigma denoise' uses it")
    restore_all(loaded, options, shared)
