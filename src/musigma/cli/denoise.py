"""``musigma denoise``: remove noise from picture files."""

from typing import Annotated

import typer

from musigma.cli.restore import restore_all
from musigma.cli.restore_options import ModelName, RestoreOptions
from musigma.cli.shared_options import with_options


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    epilog = "Example: `musigma denoise night.png scans/ -o clean --noise-std 25 --sigma`"
    app.command(epilog=epilog)(denoise)


@with_options(RestoreOptions)
def denoise(
    shared: RestoreOptions,
    noise_std: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL|auto",
            help="Noise level in 8-bit levels, for models that take one; auto estimates it for "
            "each picture.",
        ),
    ] = None,
    model: ModelName = None,
) -> None:
    """Remove noise. Each result has the format, bit depth and profile of its picture.

    With --noise-std, drunet-small is used, which is told the level of white noise. Without it and
    without --model, the weights for photographs are used: they find out by themselves how noisy,
    blurred or compressed a picture is.
    """
    from musigma.types import ConfigError

    shared.check_network(model)
    if model is None:
        model = "photo" if noise_std is None else "drunet-small"
    if not has_scale_1(model):
        raise ConfigError(f"{model} enlarges pictures; 'musigma upscale' uses it")
    options = shared.to_options(
        noise_std=parse_noise_std(noise_std), estimate_noise=noise_std == "auto"
    )
    loaded = shared.load_model(model, scale=1)
    if loaded.takes_noise_level and noise_std is None:
        raise ConfigError(f"{loaded.name} needs the noise level; give --noise-std LEVEL or auto")
    if noise_std is not None and not loaded.takes_noise_level:
        raise ConfigError(f"{loaded.name} takes no noise level; leave --noise-std out")
    restore_all(loaded, options, shared)


def has_scale_1(model: str) -> bool:
    """Return whether a name may be a denoiser; the path of a weights file always may.

    Example:
        >>> has_scale_1("drunet-small"), has_scale_1("bicubic")
        (True, False)
    """
    from musigma.networks import entries

    return all(1 in entry.scales for entry in entries() if entry.name == model)


def parse_noise_std(text: str | None) -> float | None:
    """Read a noise level in 8-bit levels; `None` where none is given, or ``auto``.

    Example:
        >>> parse_noise_std("25"), parse_noise_std("auto")
        (25.0, None)
    """
    from musigma.types import ConfigError

    if text in (None, "auto"):
        return None
    try:
        level = float(text)
    except ValueError:
        level = -1.0
    if not 0 <= level <= 255:  # also true of NaN
        raise ConfigError(
            f"expected --noise-std auto or a level from 0 to 255 in 8-bit units, got {text!r}"
        )
    return level
