"""Restore one picture file: read it, run the network, write the results."""

import math
import os
import time
from collections.abc import Generator, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from musigma.functional.equal_channels import grey_if_equal
from musigma.functional.noise import NoiseEstimate
from musigma.functional.picture_statistics import PictureStatistics, Windowed, measure
from musigma.functional.resize import resize
from musigma.images.image_io import MAX_PIXELS, ImageMeta, OpenedImage, Raster, open_image
from musigma.images.listing import ImageSource, atomic_group, format_of, image_error
from musigma.images.science.image import FormatName
from musigma.images.science.recognise import science_format
from musigma.images.science.value_range import SMALL_SHARE, stored_normalisation
from musigma.model import Model
from musigma.prediction.engines import Engine
from musigma.prediction.predict import Progress
from musigma.prediction.stitching import collect_strips
from musigma.prediction.tiling import least_memory_for_tiles
from musigma.restoration.noise_level import measure_noise
from musigma.restoration.options import (
    Options,
    calibration_for,
    engine_for,
    tiles_are_exact,
    with_engine_name,
)
from musigma.restoration.output_files import OutputFiles, remove_old_files
from musigma.restoration.promise import Promise, promise_for
from musigma.restoration.restore_image import restore_image
from musigma.restoration.restore_science import ScienceRecord, restore_science
from musigma.types import ConfigError, ImageError, Prediction
from musigma.uncertainty.calibration import Calibration

NOISE_SIDE = 4096
"""Most rows and columns, from the middle of a picture, from which its noise is estimated."""


@dataclass(frozen=True, kw_only=True)
class Restored:
    """The results of one file.

    Attributes:
        source: The file that was read.
        source_stamp: Its size in bytes and its time in nanoseconds, before it was read.
        output: The restored picture.
        files: The other files, by what they hold: ``sigma``, ``std``, ``half_width``, ``picture``,
            ``npz``, ``page``.
        noise_std: The noise level that the denoiser was given, in 8-bit levels.
        noise_estimated: Whether the noise level was estimated from the picture.
        estimated_noise_std: The noise that was measured in the picture, in 8-bit levels.
        noise_is_white: Whether that noise is white, as `drunet-small` expects it.
        noise_growth: How its variance grows with the signal of a gray picture, in 8-bit levels;
            empty where it does not, or where nobody has looked.
        promise: What the intervals promise for this picture; `None` where they promise nothing.
        promise_reason: Why they promise nothing; `None` where they promise something, or where the
            model has no calibration.
        warnings: What the user should know about the result.
        width: Width of the result.
        height: Height of the result.
        resized_from: Width and height of what the network gave, where it was resized to the size
            that was asked for. The error maps are resized with it.
        exact: Whether it is the network's result for the whole picture. It is not if the picture
            was cut into tiles for a network that looks at all of it at once.
        seconds: Time from the start of reading to the end of writing.
        science: How a scientific file was restored; `None` for an ordinary picture.
    """

    source: Path
    source_stamp: list[int] | None
    output: Path
    files: dict[str, Path]
    noise_std: float | None
    noise_estimated: bool
    estimated_noise_std: float
    noise_is_white: bool
    noise_growth: str
    promise: str | None
    promise_reason: str | None
    warnings: list[str]
    width: int
    height: int
    resized_from: tuple[int, int] | None
    exact: bool
    seconds: float
    science: ScienceRecord | None = None


@dataclass(kw_only=True)
class Job:
    """A picture that was read and is to be restored.

    Attributes:
        source: The file.
        options: With the engine that runs, the noise level of this picture, and the memory that it
            leaves for tiles.
        model: What restores it.
        calibration: How to read sigma.
        picture: The decoded picture.
        noise: The noise that was measured in it.
        promise: What the intervals promise; `None` without a calibration.
        size: Height and width of the result.
        stamp: Size and time of the file before it was read.
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
    size: tuple[int, int]
    stamp: list[int] | None
    start: float
    num_tiles: int = field(default=0)

    @property
    def enlarged_size(self) -> tuple[int, int]:
        """Height and width of what the network gives."""
        height, width = self.picture.colours.shape[2:]
        return height * self.model.scale, width * self.model.scale

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
    progress: Progress | None = None,
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
    check_options(model, options)
    engine = engine or engine_for(model, options)
    if (format_name := science_format_of(model, source, options)) is not None:
        return restore_science_file(
            model, source, format_name, options, engine=engine, progress=progress
        )
    job = read_picture(model, source, options, engine=engine)
    return write_results(job, compute_strips(job, engine, progress=progress))


def science_format_of(model: Model, source: ImageSource, options: Options) -> FormatName | None:
    """Return the format of a scientific file, or `None` for an ordinary picture.

    A TIFF is a scientific file, too, if the user gives a range of values, or if the weights bring
    one: such weights are for measured values, and programs of microscopes write plain TIFF.
    """
    format_name = science_format(source.path)
    is_tiff = source.path.suffix.lower() in (".tif", ".tiff")
    if format_name is None and is_tiff and stored_normalisation(model.metadata) is not None:
        return "GeoTIFF"
    if format_name is None and options.value_range is not None:
        if not is_tiff:
            text = "is an ordinary picture, whose range of values is known"
            raise image_error(source.path, f"{text}; leave `range` out")
        return "GeoTIFF"
    return format_name


def restore_science_file(
    model: Model,
    source: ImageSource,
    format_name: FormatName,
    options: Options,
    *,
    engine: Engine,
    progress: Progress | None = None,
) -> Restored:
    """Restore a scientific file as `restore_file` does; the result has the same format."""
    stamp = file_stamp(source.path)
    output = _checked_output(source, options)
    if format_of(output) != format_of(source.path):
        text = f"a {format_name} file is written in its own format, not as {output.suffix}"
        raise image_error(source.path, f"{text}; leave `format` out")
    done = restore_science(model, source, format_name, options, engine=engine, progress=progress)
    promise = done.promise or Promise(None, None)
    height, width = done.size
    return Restored(
        source=source.path,
        source_stamp=stamp,
        output=output,
        files={},
        noise_std=done.options.noise_std,
        noise_estimated=options.estimate_noise,
        estimated_noise_std=done.noise.std,
        noise_is_white=done.noise.is_white,
        noise_growth=done.noise.growth,
        promise=promise.text,
        promise_reason=promise.reason,
        warnings=done.warnings,
        width=width,
        height=height,
        resized_from=None,
        exact=done.num_tiles == 1 or tiles_are_exact(model, options),
        seconds=done.seconds,
        science=done.record,
    )


def _checked_output(source: ImageSource, options: Options) -> Path:
    output = options.folder / source.name
    if os.path.realpath(output) == os.path.realpath(source.path):
        raise image_error(output, "would replace its own source; choose another output folder")
    return output


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
    if options.tile is None and options.memory - picture_memory(options) < least:
        needed = math.ceil(least * 8 / 7 / 2**20)
        raise ConfigError(
            f"{options.memory / 2**20:.0f} MiB are too few for one tile of {model.name}; set "
            f"`memory` to at least {needed} MiB"
        )


def picture_memory(options: Options) -> int:
    """Return the bytes that all pictures in memory may take, unless one alone needs more."""
    return options.memory // 8


def output_bytes(model: Model, source: ImageSource, options: Options, num_pixels: int) -> int:
    """Estimate the memory of a result that is in memory as a whole, besides its rows in progress.

    Args:
        model: What restores it.
        source: The file and the name of its result, which tells the format.
        options: How it is restored.
        num_pixels: Of the source.
    """
    per_pixel = {"JPEG": 10, "WEBP": 16, "BMP": 12}.get(format_of(source.name), 0)
    if options.size is not None:  # the float result before and after it is resized, and between
        per_pixel += 3 * 4 * model.network.out_channels * (1 + model.has_sigma)
    return per_pixel * num_pixels * model.scale**2


def _memory_for_tiles(
    model: Model, source: ImageSource, picture: OpenedImage, options: Options
) -> int:
    """Return what a picture and its result leave of the memory, which the tiles may use."""
    height, width = picture.colours.shape[2:]
    taken = sum(part.num_bytes for part in (picture.colours, picture.alpha) if part is not None)
    taken += output_bytes(model, source, options, height * width)
    rest = options.memory - max(taken, picture_memory(options))
    least = least_memory_for_tiles(model.network, width=width)
    if options.tile is None and rest < least:
        needed = math.ceil((taken + least) / 2**20)
        text = f"{width} x {height} pixels, their result and one tile need {needed} MiB of memory"
        raise image_error(source.path, f"{text}; set `memory` to that or more")
    return max(rest, 1)


def file_stamp(path: Path) -> list[int] | None:
    """Return size in bytes and time in nanoseconds of a file, or `None` where there is none."""
    try:
        status = path.stat()
    except (OSError, ValueError):  # a damaged log may hold names that no system allows
        return None
    return [status.st_size, status.st_mtime_ns]


def read_picture(
    model: Model, source: ImageSource, options: Options, *, engine: Engine | None = None
) -> Job:
    """Read a picture, or say why it cannot be restored with these options."""
    start, stamp = time.perf_counter(), file_stamp(source.path)
    _checked_output(source, options)
    calibration = calibration_for(model, options)
    picture = open_image(
        source.path,
        max_pixels=options.max_pixels or MAX_PIXELS,
        frame=options.frame,
        memory=options.memory,
    )
    options = replace(options, memory=_memory_for_tiles(model, source, picture, options))
    seen = grey_if_equal(picture.colours)
    statistics = measure(seen)
    noise = _measure_noise(model, source, seen, statistics, options)
    if options.estimate_noise:
        options = replace(options, noise_std=noise.std)
    if engine is not None:
        options = with_engine_name(options, engine)
    height, width = picture.colours.shape[2:]
    enlarged = (height * model.scale, width * model.scale)
    size = fitted_size(enlarged, options.size)
    return Job(
        source=source,
        options=options,
        model=model,
        calibration=calibration,
        picture=picture,
        noise=noise,
        promise=_promise(
            calibration,
            replace(picture.meta, channels=seen.shape[1]),
            options,
            statistics,
            is_resized=size != enlarged,
        ),
        size=size,
        stamp=stamp,
        start=start,
    )


def fitted_size(
    size: tuple[int, int], box: tuple[int | None, int | None] | None
) -> tuple[int, int]:
    """Return height and width of a picture that is resized to fit a box, in its proportions.

    Args:
        size: Height and width of the picture.
        box: Largest width and height, `None` for free.

    Example:
        >>> fitted_size((600, 800), (3840, None)), fitted_size((600, 800), None)
        ((2880, 3840), (600, 800))
    """
    height, width = size
    factors = [
        limit / length
        for limit, length in zip(box or (), (width, height), strict=False)
        if limit is not None
    ]
    if not factors:
        return size
    return max(1, round(height * min(factors))), max(1, round(width * min(factors)))


def _promise(
    calibration: Calibration | None,
    meta: ImageMeta,
    options: Options,
    statistics: PictureStatistics,
    *,
    is_resized: bool,
) -> Promise | None:
    if calibration is None:
        return None
    promise = promise_for(calibration, meta, options, statistics)
    if not is_resized:
        return promise
    reason = "it was resized, and the promise is for the result of the network"
    return Promise(None, f"{promise.reason}; {reason}" if promise.reason else reason)


def _resized(prediction: Prediction, size: tuple[int, int]) -> Prediction:
    """Resize mean and sigma; a kernel without negative weights keeps sigma from falling below 0.

    The mean of errors is at least the error of the mean, so that sigma is not too small where the
    picture shrinks.
    """
    mean, sigma = prediction
    if sigma is not None:
        sigma = resize(sigma, size=size, kernel="linear")
    return Prediction(resize(mean, size=size), sigma)


def compute_strips(
    job: Job, engine: Engine, *, progress: Progress | None = None
) -> Generator[Prediction, None, None]:
    """Yield the restored picture from top to bottom, several rows at a time."""
    colours = job.picture.colours
    try:
        strips = restore_image(job.model, colours, job.options, engine=engine, progress=progress)
        if job.size == job.enlarged_size:
            yield from strips
        else:
            yield _resized(collect_strips(strips, strips.shape), job.size)
        job.num_tiles = strips.num_tiles
    except ImageError as error:
        raise image_error(job.source.path, str(error)) from error


def write_results(job: Job, strips: Iterable[Prediction]) -> Restored:
    """Write the strips of a restored picture into the files that the options ask for."""
    strips = iter(strips)
    strip = next(strips, None)  # computed before a file is opened, since the first one may fail
    assert strip is not None
    with atomic_group(job.output), ExitStack() as stack:
        files = OutputFiles(
            stack,
            job.picture,
            job.output,
            strip,
            options=job.options,
            calibration=job.calibration,
            promise=job.promise,
            info=_page_info(job),
            size=job.size,
        )
        while strip is not None:
            files.add(strip)
            strip = next(strips, None)
        files.finish()
    remove_old_files(job.output, files.paths.values())
    promise = job.promise or Promise(None, None)
    return Restored(
        source=job.source.path,
        source_stamp=job.stamp,
        output=job.output,
        files=files.paths,
        noise_std=job.options.noise_std,
        noise_estimated=job.options.estimate_noise,
        estimated_noise_std=job.noise.std,
        noise_is_white=job.noise.is_white,
        noise_growth=job.noise.growth,
        promise=promise.text,
        promise_reason=promise.reason,
        warnings=_warnings(job),
        width=files.shape[3],
        height=files.shape[2],
        resized_from=None if job.size == job.enlarged_size else job.enlarged_size[::-1],
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
    meta, options, warnings = job.picture.meta, job.options, []
    if meta.num_frames > 1 and options.frame is None:
        warnings.append(
            f"It holds {meta.num_frames} frames, and the first one was used; --frame chooses."
        )
    if meta.format == "TIFF" and meta.bits == 16 and meta.channels == 1:
        warnings += _range_warnings(job.picture.colours)
    if options.estimate_noise and not job.noise.is_white:
        warnings.append(
            f"The noise, of about {job.noise.std:.3g} levels, is not white: JPEG or smoothing has "
            f"joined it into grains. {job.model.name} is made for white noise and may leave some "
            "of it; the weights photo need no noise level (leave --noise-std and --model out)."
        )
    if options.estimate_noise and job.noise.left_out:
        warnings.append(
            f"The picture has noise of {job.noise.left_out}, which the estimate of "
            f"{job.noise.level} leaves out: no weights of musigma are made for such noise."
        )
    if options.estimate_noise and job.noise.is_white and job.noise.has_blocks:
        warnings.append(
            f"The picture has JPEG blocks. JPEG removes weak noise together with fine details, so "
            f"that the noise may be stronger than the estimate of {job.noise.level}; the weights "
            "photo need no noise level (leave --noise-std and --model out)."
        )
    return warnings


def _range_warnings(samples: Raster) -> list[str]:
    """Say that measured values fill a small part of 16 bits, so that a network sees them dark."""
    highest, full_scale = samples.highest, samples.full_scale
    if highest >= SMALL_SHARE * full_scale:
        return []
    return [
        f"Its values reach {highest:g} of {full_scale}, so that the network sees a dark picture; "
        f"if they are measured values, --range 0,{highest:g} suits better."
    ]


def _measure_noise(
    model: Model,
    source: ImageSource,
    image: Windowed,
    statistics: PictureStatistics,
    options: Options,
) -> NoiseEstimate:
    try:
        return measure_noise(
            image,
            statistics,
            estimate_level=options.estimate_noise,
            look_for_growth=model.scale == 1,
            max_side=NOISE_SIDE,
        )
    except ImageError as error:
        raise image_error(source.path, str(error)) from error
