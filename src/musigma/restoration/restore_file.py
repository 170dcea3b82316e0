"""Restore one picture file: read it, run the network, write the results."""

import time
from collections.abc import Generator, Iterable
from contextlib import ExitStack

from musigma.functional.resize import resize
from musigma.images.listing import ImageSource, atomic_group, format_of, image_error
from musigma.images.science.image import FormatName
from musigma.images.science.recognise import science_format
from musigma.images.science.value_range import stored_normalisation
from musigma.model import Model
from musigma.prediction.engines import Engine
from musigma.prediction.predict import Progress
from musigma.prediction.stitching import collect_strips
from musigma.restoration.options import Options, check_options, engine_for, tiles_are_exact
from musigma.restoration.output_files import OutputFiles, remove_old_files
from musigma.restoration.picture_job import Job, checked_output, read_picture
from musigma.restoration.picture_warnings import page_info, warnings_of
from musigma.restoration.promise import Promise
from musigma.restoration.restore_image import restore_image
from musigma.restoration.restore_science import restore_science
from musigma.restoration.restored import Restored, file_stamp
from musigma.types import ImageError, Prediction


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
    output = checked_output(source, options)
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


def compute_strips(
    job: Job, engine: Engine, *, progress: Progress | None = None
) -> Generator[Prediction, None, None]:
    """Yield the restored picture from top to bottom, several rows at a time."""
    colors = job.picture.colors
    try:
        strips = restore_image(job.model, colors, job.options, engine=engine, progress=progress)
        if job.size == job.enlarged_size:
            yield from strips
        else:
            yield _resized(collect_strips(strips, strips.shape), job.size)
        job.num_tiles = strips.num_tiles
    except ImageError as error:
        raise image_error(job.source.path, str(error)) from error


def _resized(prediction: Prediction, size: tuple[int, int]) -> Prediction:
    """Resize mean and sigma; a kernel without negative weights keeps sigma from falling below 0.

    The mean of errors is at least the error of the mean, so that sigma is not too small where the
    picture shrinks.
    """
    mean, sigma = prediction
    if sigma is not None:
        sigma = resize(sigma, size=size, kernel="linear")
    return Prediction(resize(mean, size=size), sigma)


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
            info=page_info(job),
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
        warnings=warnings_of(job),
        width=files.shape[3],
        height=files.shape[2],
        resized_from=None if job.size == job.enlarged_size else job.enlarged_size[::-1],
        exact=job.num_tiles == 1 or tiles_are_exact(job.model, job.options),
        seconds=time.perf_counter() - job.start,
    )
