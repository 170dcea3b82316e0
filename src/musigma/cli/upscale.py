"""``musigma upscale``: enlarge picture files."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from musigma.cli.restore import find_sources, restore_all
from musigma.cli.restore_options import ModelName, RestoreOptions
from musigma.cli.shared_options import with_options

ZOOM_FACTORS = (2, 3, 4)


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    epilog = "Example: `musigma upscale photo.jpg scans/ -o large --scale 2 --sigma`"
    app.command(epilog=epilog)(upscale)


def default_model(scale: int) -> str:
    """Return the weights for photographs, or those for clean pictures where there are none.

    Example:
        >>> default_model(2), default_model(3)
        ('photo', 'edsr-baseline')
    """
    from musigma.networks.weights_file import shipped_path
    from musigma.types import ConfigError

    if scale not in ZOOM_FACTORS:
        raise ConfigError(
            f"the shipped weights enlarge by 2, 3 or 4, not by {scale}; set `width` or `height` "
            "for another size"
        )
    return "photo" if shipped_path("photo", scale) else "edsr-baseline"


def zoom_factors(model: str | None) -> tuple[int, ...]:
    """Return the factors of the weights that ship under a name, by default of all of them.

    A weights file has a factor of its own, so that there is nothing to choose.

    Example:
        >>> zoom_factors(None), zoom_factors("fast"), zoom_factors("mine.safetensors")
        ((2, 3, 4), (2, 4), ())
    """
    from musigma.networks.weight_choices import weights_named
    from musigma.networks.weights_file import shipped_weights

    if model is None:
        return ZOOM_FACTORS
    return tuple(scale for scale in shipped_weights().get(weights_named(model), ()) if scale > 1)


def scale_for(
    box: tuple[int | None, int | None],
    paths: Sequence[Path],
    factors: Sequence[int] = ZOOM_FACTORS,
) -> int:
    """Return the smallest zoom factor that is enough for all pictures to fill a box."""
    from musigma.images.decoding import declared_size
    from musigma.restoration.picture_job import fitted_size
    from musigma.types import ImageError

    largest = 0.0
    for path in paths:
        with suppress(ImageError):  # reading the picture will say what is wrong with it
            declared = declared_size(path)
            fitted = fitted_size(declared[:2], box)
            largest = max(largest, fitted[0] / declared.height)
    return next((scale for scale in factors if scale >= largest), factors[-1])


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
    factors = zoom_factors(model)
    if scale is None and factors:
        paths = [path for path, _ in find_sources(shared, options)[0]] if size else []
        scale = scale_for(size, paths, factors) if size else min(factors)
    if model is None:
        assert scale is not None
        model = default_model(scale)
    loaded = shared.load_model(model, scale=scale)
    if loaded.network.info.task == "denoising":
        raise ConfigError(f"{model} is a denoiser; 'musigma denoise' uses it")
    restore_all(loaded, options, shared)
