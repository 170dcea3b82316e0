"""``musigma upscale``: enlarge picture files."""

from typing import Annotated

import typer

from musigma.cli.restore import ModelName, SharedOptions, restore_all, with_shared_options

DEFAULT_SCALE = 2


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    epilog = "Example: `musigma upscale photo.jpg scans/ -o large --scale 2 --sigma`"
    app.command(epilog=epilog)(upscale)


def default_model(scale: int | None) -> str:
    """Return the weights for photographs, or those for clean pictures where there are none.

    Example:
        >>> default_model(2), default_model(3)
        ('photo', 'edsr-baseline')
    """
    from musigma.networks.weights_file import shipped_path

    return "photo" if shipped_path("photo", scale or DEFAULT_SCALE) else "edsr-baseline"


@with_shared_options
def upscale(
    shared: SharedOptions,
    scale: Annotated[
        int | None,
        typer.Option(help="Zoom factor; 2 where neither this nor a model is given."),
    ] = None,
    model: ModelName = None,
) -> None:
    """Enlarge pictures. Each result has the format, bit depth and profile of its picture.

    Without --model, the weights for photographs are used, which allow for blur, noise and JPEG. For
    pictures that are clean and were shrunk by bicubic, --model edsr-baseline is sharper.
    """
    from musigma.model import load
    from musigma.types import ConfigError

    options = shared.to_options()
    if model is None:
        model, scale = default_model(scale), scale or DEFAULT_SCALE
    loaded = load(model, scale=scale)
    if loaded.network.info.task == "denoising":
        raise ConfigError(f"{model} is a denoiser; 'musigma denoise' uses it")
    restore_all(loaded, options, shared)
