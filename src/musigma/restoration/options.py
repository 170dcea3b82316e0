"""How picture files are restored: all options, and what they mean for a model."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from musigma.images.image_io import ImageMeta
from musigma.images.listing import format_of
from musigma.model import Model
from musigma.prediction.engines import Engine
from musigma.prediction.predict import DEFAULT_MEMORY
from musigma.prediction.self_ensemble import SelfEnsemble
from musigma.prediction.tiling import least_memory_for_tiles
from musigma.types import ConfigError
from musigma.uncertainty.calibration import Calibration


@dataclass(frozen=True, kw_only=True)
class Options:
    """How files are restored.

    Attributes:
        folder: Folder for the results.
        noise_std: Noise level in 8-bit levels, for a denoiser that takes one.
        estimate_noise: Whether to estimate the noise level of each picture instead.
        sigma: Whether to write the error maps as 16-bit PNG files and as a picture to look at.
        npz: Whether to write mean and error maps as an NPZ file, too; it includes `sigma`.
        page: Whether to write a page that shows input, result and error maps.
        coverage: Coverage of the intervals; one that the model is calibrated for.
        engine: What runs the network, one of `musigma.prediction.engines.ENGINES` or ``auto``; by
            default ``torch``, or ``onnx`` for a model from an ONNX file.
        ensemble: Whether to average over flips and quarter turns, at eight times the cost.
        tile: Largest side of a tile.
        memory: Bytes for one tile and its output rows.
        max_pixels: A picture with more pixels is refused before it is decoded. By default it is
            `MAX_PIXELS`, and there is no limit for scientific files that are read in parts.
        frame: The page or frame to read of files with several, from 0.
        quality: Quality of JPEG and WebP results, 1 to 100. By default it is 95, and a WebP is
            lossless where its source is.
        size: Largest width and height of the results, `None` for free. The enlarged picture is
            resized to fit, and its proportions stay.
        value_range: The values of a scientific file that are black and white. By default the file
            says them, or they are measured.

    Example:
        >>> Options(folder=Path("large"), npz=True).writes_error_maps
        True
    """

    folder: Path
    noise_std: float | None = None
    estimate_noise: bool = False
    sigma: bool = False
    npz: bool = False
    page: bool = False
    coverage: float | None = None
    engine: str | None = None
    ensemble: bool = False
    tile: int | None = None
    memory: int = DEFAULT_MEMORY
    max_pixels: int | None = None
    frame: int | None = None
    quality: int | None = None
    size: tuple[int | None, int | None] | None = None
    value_range: tuple[float, float] | None = None

    @property
    def writes_error_maps(self) -> bool:
        """Whether files with error maps are written."""
        return self.sigma or self.npz

    @property
    def shows_errors(self) -> bool:
        """Whether anything about errors is written: files with error maps, or the page."""
        return self.writes_error_maps or self.page

    @property
    def picture_memory(self) -> int:
        """Bytes that all pictures in memory may take, unless one alone needs more."""
        return self.memory // 8


def quality_for(output: Path, meta: ImageMeta, options: Options) -> int:
    """Return the quality with which a result is encoded.

    Args:
        output: The result, whose name tells the format.
        meta: Of its source.
        options: With the quality that the user asks for.

    Example:
        >>> options, lossless = Options(folder=Path("out")), ImageMeta(lossy=False)
        >>> [quality_for(Path(name), lossless, options) for name in ("a.webp", "a.jpg")]
        [100, 95]
    """
    if options.quality is not None:
        return options.quality
    return 100 if format_of(output) == "WEBP" and not meta.lossy else 95


def engine_for(
    model: Model, options: Options, *, report: Callable[[str], None] = lambda _: None
) -> Engine:
    """Return the engine that the options ask for, with the self-ensemble if they do.

    Args:
        model: On the device where it should run.
        options: Their `engine` and `ensemble` are used.
        report: Receives lines about what ``auto`` measured and chose.
    """
    engine = model.engine(options.engine, report=report)
    return SelfEnsemble(engine) if options.ensemble else engine


def calibration_for(model: Model, options: Options) -> Calibration | None:
    """Return the calibration at the coverage that the options ask for.

    Returns:
        `None` for a model without a calibration, if no coverage is asked for.
    """
    if options.coverage is None:
        return model.calibration
    return model.require_calibration(options.coverage)


def with_engine_name(options: Options, engine: Engine) -> Options:
    """Return the options with the name of the engine that runs, such as what ``auto`` chose."""
    # The self-ensemble adds a second word to the name.
    return replace(options, engine=engine.name.split()[0])


def tiles_are_exact(model: Model, options: Options) -> bool:
    """Return whether tiles give the result of the whole picture, apart from rounding."""
    # The network may divide a flipped tile into other cells than the flipped picture.
    has_other_cells = options.ensemble and model.network.size_multiple > 1
    return model.network.receptive_radius is not None and not has_other_cells


def check_options(model: Model, options: Options) -> None:
    """Raise an error where no picture could be restored with these options."""
    if options.writes_error_maps and not model.has_sigma:
        hint = "leave `sigma` and `npz` out, or choose another `model`"
        raise ConfigError(f"{model.name} has no sigma branch; {hint}")
    if model.takes_noise_level and options.noise_std is None and not options.estimate_noise:
        raise ConfigError(f"{model.name} needs the noise level; give `noise_std`")
    if options.coverage is not None:
        model.require_calibration(options.coverage)
    least = least_memory_for_tiles(model.network, width=1)
    if options.tile is None and options.memory - options.picture_memory < least:
        needed = math.ceil(least * 8 / 7 / 2**20)
        raise ConfigError(
            f"{options.memory / 2**20:.0f} MiB are too few for one tile of {model.name}; set "
            f"`memory` to at least {needed} MiB"
        )
