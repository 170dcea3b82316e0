"""``musigma upscale``: enlarge picture files."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from musigma.cli.restore import find_sources, restore_all
from musigma.cli.restore_options import ModelName, RestoreOptions
from musigma.cli.shared_options import with_options

DEFAULT_SCALE = 2
ZOOM_FACTORS = (2, 3, 4)


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
    from musigma.types import ConfigError

    if scale is not None and scale not in ZOOM_FACTORS:
        raise ConfigError(
            f"the shipped weights enlarge by 2, 3 or 4, not by {scale}; set `width` or `height` "
            "for another size"
        )
    return "photo" if shipped_path("photo", scale or DEFAULT_SCALE) else "edsr-baseline"


def scale_for(box: tuple[int | None, int | None], paths: Sequence[Path]) -> int:
    """Return the smallest zoom factor, 2 to 4, that is enough for all pictures to fill a box."""
    from musigma.images.decoding import declared_size
    from musigma.restoration.picture_job import fitted_size
    from musigma.types import ImageError

    largest = 0.0
    for path in paths:
        with suppress(ImageError):  # reading the picture will say what is wrong with it
            declared = declared_size(path)
            fitted = fitted_size(declared[:2], box)
            largest = max(largest, fitted[0] / declared.height)
    return next((scale for scale in ZOOM_FACTORS if scale >= largest), 4)


@with_options(RestoreOptions)
def upscale(
    shared: RestoreOptions,
    scale: Annotated[
        int | None,
        typer.Option(
            "--scale",
            "-s",
            help="Zoom factor; by default that of the weights file, what --width and --height "
            "need, or 2.",
        ),
    ] = None,
    width: Annotated[
        int | None,
        typer.Option(
            min=1, help="Width of the results in pixels: enlarged pictures are resized to it."
        ),
    ] = None,
    height: Annotated[
        int | None,
        typer.Option(
            min=1, help="Height of the results in pixels. With --width, results fit into both."
        ),
    ] = None,
    model: ModelName = None,
) -> None:
    """Enlarge pictures. Each result has the format, bit depth and profile of its picture.

    Without --model, the weights for photographs are used, which allow for blur, noise and JPEG. For
    pictures that are clean and were shrunk by bicubic, --model edsr-baseline is sharper.
    """
    from musigma.types import ConfigError

    shared.check_network(model)
    size = None if width is None and height is None else (width, height)
    options = shared.to_options(size=size)
    if size is not None and scale is None and model is None:
        scale = scale_for(size, [path for path, _ in find_sources(shared, options)[0]])
    if model is None:
        model, scale = default_model(scale), scale or DEFAULT_SCALE
    loaded = shared.load_model(model, scale=scale)
    if loaded.network.info.task == "denoising":
        raise ConfigError(f"{model} is a denoiser; 'musigma denoise' uses it")
    restore_all(loaded, options, shared)
