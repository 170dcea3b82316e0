"""Restore one picture file: read it, run the network, write the results."""

import os
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import Tensor

from musigma.functional.noise import NoiseEstimate, estimate_noise_std, noise_of
from musigma.functional.picture_statistics import PictureStatistics, measure
from musigma.images.image_io import OpenedImage, Raster, open_image
from musigma.images.listing import ImageSource, image_error
from musigma.model import Model
from musigma.prediction.engines import Engine
from musigma.prediction.predict import Image, Strips, predict_strips
from musigma.restoration.options import Options, engine_for, tiles_are_exact
from musigma.restoration.output_files import OutputFiles
from musigma.restoration.promise import Promise, promise_for
from musigma.types import ConfigError, ImageError, Prediction
from musigma.uncertainty.calibration import Calibration

TileProgress = Callable[[int, int], None]
NOISE_SIDE = 4096
"""The noise level of a larger picture is estimated from so many rows and columns of its middle."""


@dataclass(frozen=True, kw_only=True)
class Restored:
    """The results of one file.

    Attributes:
        source: The file that was read.
        output: The restored picture.
        files: The other files, by what they hold: ``sigma``, ``std``, ``half_width``, ``picture``,
            ``npz``, ``page``.
        noise_std: The noise level that the denoiser was given, in 8-bit levels.
        noise_estimated: Whether the noise level was estimated from the picture.
        estimated_noise_std: The noise that was measured in the picture, in 8-bit levels.
        noise_is_white: Whether that noise is white, as `drunet-small` expects it.
        promise: What the intervals promise for this picture; `None` where they promise nothing.
        promise_reason: Why they promise nothing; `None` where they promise something, or where the
            model has no calibration.
        warnings: What the user should know about the result.
        width: Width of the result.
        height: Height of the result.
        exact: Whether it is the network's result for the whole picture. It is not where the picture
            was cut into tiles for a network that looks at all of it.
        seconds: Time from the start of reading to the end of writing.
    """

    source: Path
    output: Path
    files: dict[str, Path]
    noise_std: float | None
    noise_estimated: bool
    estimated_noise_std: float
    noise_is_white: bool
    promise: str | None
    promise_reason: str | None
    warnings: list[str]
    width: int
    height: int
    exact: bool
    seconds: float


@dataclass(kw_only=True)
class Job:
    """A picture that was read and is to be restored.

    Attributes:
        source: The file.
        options: With the engine that runs and the noise level of this picture.
        model: What restores it.
        calibration: How to read sigma.
        picture: The decoded picture.
        noise: The noise that was measured in it.
        promise: What the intervals promise; `None` without a calibration.
        start: Time when reading began.
        num_tiles: Number of tiles that the network was given, known at the end.
    """

    source: ImageSource
    options: Options
    model: Model
    calibration: Calibration | None
    picture: OpenedImage
    noise: NoiseEstimate
    promise: Promise | None
    start: float
    num_tiles: int = field(default=0)

    @property
    def output(self) -> Path:
        """The restored picture."""
        return self.options.folder / self.source.name


def restore_file(
    model: Model,
    source: ImageSource,
    options: Options,
    *,
    engine: Engine | None = None,
    progress: TileProgress | None = None,
) -> Restored:
    """Restore one picture file and write the results that the options ask for.

    The result has the format, bit depth, alpha and profile of its source. Nothing is written when
    something about the source is wrong. In memory are the decoded samples of the picture, and of
    the result the rows that are being computed; a result in JPEG, WebP or BMP is in memory as a
    whole, in 8 bits.

    Args:
        model: The model.
        source: The file.
        options: How to restore it.
        engine: The engine of `engine_for` for these options; give it where there are many files.
        progress: Called after each tile with the number done and the number in all.
    """
    engine = engine or engine_for(model, options)
    job = read_picture(model, source, options, engine=engine)
    return write_results(job, compute_strips(job, engine, progress=progress))


def read_picture(
    model: Model, source: ImageSource, options: Options, *, engine: Engine | None = None
) -> Job:
    """Read a picture, or say why it cannot be restored with these options."""
    start = time.perf_counter()
    if options.writes_error_maps and not model.has_sigma:
        hint = "leave `sigma` and `npz` out, or choose another `model`"
        raise ConfigError(f"{model.name} has no sigma branch; {hint}")
    output = options.folder / source.name
    if os.path.realpath(output) == os.path.realpath(source.path):
        raise image_error(output, "would replace its own source; choose another output folder")
    calibration = model.calibration
    if options.coverage is not None:
        calibration = model.require_calibration(options.coverage)
    picture = open_image(source.path, max_pixels=options.max_pixels, frame=options.frame)
    statistics = measure(picture.colours)
    noise = noise_of(statistics)
    if options.estimate_noise:
        noise = _estimate_noise(source, picture.colours, statistics)
        options = replace(options, noise_std=noise.std)
    if engine is not None:
        # What "auto" has chosen; the self-ensemble adds a second word to the name.
        options = replace(options, engine=engine.name.split()[0])
    return Job(
        source=source,
        options=options,
        model=model,
        calibration=calibration,
        picture=picture,
        noise=noise,
        promise=promise_for(calibration, picture, options, statistics) if calibration else None,
        start=start,
    )


def compute_strips(
    job: Job, engine: Engine, *, progress: TileProgress | None = None
) -> Generator[Prediction, None, None]:
    """Yield the restored picture from top to bottom, several rows at a time."""
    colours = job.picture.colours
    try:
        strips = restore_image(job.model, colours, job.options, engine=engine, progress=progress)
        yield from strips
        job.num_tiles = strips.num_tiles
    except ImageError as error:
        raise image_error(job.source.path, str(error)) from error


def restore_image(
    model: Model,
    image: Image,
    options: Options,
    *,
    engine: Engine | None = None,
    progress: TileProgress | None = None,
) -> Strips:
    """Return a restored image in strips; the network gets the noise level if it takes one."""
    if model.takes_noise_level and options.noise_std is None:
        raise ConfigError(f"{model.name} needs the noise level; give `noise_std`")
    return predict_strips(
        model.network,
        image,
        noise_std=options.noise_std if model.takes_noise_level else None,
        engine=engine,
        tile=options.tile,
        memory=options.memory,
        progress=progress,
    )


def write_results(job: Job, strips: Iterable[Prediction]) -> Restored:
    """Write the strips of a restored picture into the files that the options ask for."""
    strips = iter(strips)
    strip = next(strips, None)  # computed before a file is opened, since the first one may fail
    assert strip is not None
    with ExitStack() as stack:
        files = OutputFiles(
            stack,
            job.picture,
            job.output,
            strip,
            options=job.options,
            calibration=job.calibration,
            promise=job.promise,
            info=_page_info(job),
        )
        while strip is not None:
            files.add(strip)
            strip = next(strips, None)
        files.finish()
    promise = job.promise or Promise(None, None)
    return Restored(
        source=job.source.path,
        output=job.output,
        files=files.paths,
        noise_std=job.options.noise_std,
        noise_estimated=job.options.estimate_noise,
        estimated_noise_std=job.noise.std,
        noise_is_white=job.noise.is_white,
        promise=promise.text,
        promise_reason=promise.reason,
        warnings=_warnings(job),
        width=files.shape[3],
        height=files.shape[2],
        exact=job.num_tiles == 1 or tiles_are_exact(job.model, job.options),
        seconds=time.perf_counter() - job.start,
    )


def _page_info(job: Job) -> dict[str, str]:
    info = {"Model": job.model.name}
    level = job.options.noise_std
    if level is not None and not job.options.estimate_noise:
        info["Noise level"] = f"{level:.3g} of 255"
    info["Noise"] = f"{job.noise}, estimated from the picture"
    if warnings := _warnings(job):
        info["Warning"] = " ".join(warnings)
    return info


def _warnings(job: Job) -> list[str]:
    if not job.options.estimate_noise or job.noise.is_white:
        return []
    return [
        f"The noise, of about {job.noise.std:.3g} levels, is not white: JPEG or smoothing has "
        f"joined it into grains. {job.model.name} is made for white noise and may leave some of "
        "it; the weights photo need no noise level (leave --noise-std and --model out)."
    ]


def _estimate_noise(
    source: ImageSource, colours: Raster, statistics: PictureStatistics
) -> NoiseEstimate:
    try:
        return noise_of(statistics, white_std=estimate_noise_std(_middle(colours)))
    except ImageError as error:
        raise image_error(source.path, str(error)) from error


def _middle(image: Raster) -> Tensor:
    """Return at most `NOISE_SIDE` rows and columns from the middle of an image."""
    parts = []
    for length in image.shape[2:]:
        start = max(0, length - NOISE_SIDE) // 2
        parts.append(slice(start, start + NOISE_SIDE))
    return image[(slice(None), slice(None), *parts)]
