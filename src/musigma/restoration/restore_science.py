"""Restore a scientific file: values stay in its units, and an error plane stands beside each plane.

Planes are restored one group after the other, each from top to bottom, so that a file of any size
needs the memory of some of its rows.
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from musigma.functional.equal_channels import gray_if_equal
from musigma.functional.noise import NoiseEstimate
from musigma.functional.picture_statistics import PictureStatistics, measure
from musigma.functional.resize import resize
from musigma.images.image_io import BAND
from musigma.images.listing import ImageSource, image_error
from musigma.images.science.formats import COLLECTED_ROWS, open_science, science_writer
from musigma.images.science.image import FormatName, PlaneWriter, Result, ScienceImage, Values
from musigma.images.science.value_range import (
    Sampled,
    ValueRange,
    choose_ranges,
    range_warnings,
    sample_plane,
    stored_normalisation,
)
from musigma.model import Model
from musigma.prediction.engines import Engine
from musigma.prediction.predict import Progress
from musigma.prediction.tiling import least_memory_for_tiles
from musigma.restoration.noise_level import measure_noise
from musigma.restoration.options import Options, calibration_for, with_engine_name
from musigma.restoration.plane_groups import (
    NormalisedPlanes,
    StackedPlanes,
    plan_groups,
    stacks,
)
from musigma.restoration.promise import Promise, science_promise
from musigma.restoration.restore_image import restore_image
from musigma.types import ImageError, Prediction
from musigma.uncertainty.calibration import Calibration

NOISE_SIDE = 1024
"""Most rows and columns, from the middle of a plane, from which its noise is estimated."""

_ROUNDING_VARIANCE = 1 / 12  # of rounding to integers
_CONVERTED_BYTES = 6 * 8  # for each value of the rows that are converted to the units of the file
_MAX_RANGES = 16  # that are written into the notes of a file
_MAX_NAMES = 16  # of parts that are left out
_KERNEL_RADIUS = 2  # of bicubic interpolation, in rows of the source
_MEANINGS = {
    "std": "calibrated standard deviation of the error of each value, in the units of the values",
    "sigma": "absolute error that the network predicts, not calibrated, in the units of the values",
    "none": "the model predicts no errors",
}


@dataclass(frozen=True, kw_only=True)
class ScienceRecord:
    """How a scientific file was restored.

    Attributes:
        format: One of those of `ScienceImage`.
        bands: Names of the planes that were restored.
        applied: Whether the network saw the planes one by one or together, in words.
        num_channels: How many planes the network sees together.
        low: The value that the network saw as 0: one for all planes, or one for each.
        high: The value that the network saw as 1: one for all planes, or one for each.
        range_origin: Where these two come from.
        error_quantity: What the error planes hold: ``std``, ``sigma`` or ``none``.
        interval_factor: Half-width of the interval in units of the error plane, for a calibrated
            model.
        coverage: The share of values that these intervals aim to hold.
    """

    format: FormatName
    bands: list[str]
    applied: str
    num_channels: int
    low: float | list[float]
    high: float | list[float]
    range_origin: str
    error_quantity: str
    interval_factor: float | None
    coverage: float | None

    @property
    def range_in_words(self) -> str:
        """The values that the network saw as 0 and 1, of each plane where planes differ."""
        pairs = np.broadcast(self.low, self.high)  # one or both may be the same for all planes
        texts = list(dict.fromkeys(f"{low:g} to {high:g}" for low, high in pairs))
        return ", ".join(texts[:_MAX_RANGES] + ["..."] * (len(texts) > _MAX_RANGES))


class Outcome(NamedTuple):
    """What `restore_planes` says about planes that it has restored.

    Attributes:
        record: How they were restored.
        options: With the engine that ran, the noise level and the memory for tiles.
        noise: The noise that was measured in the first planes.
        promise: What the intervals promise; `None` without a calibration.
        warnings: What the user should know about the result.
        size: Height and width of the result.
        num_tiles: The largest number of tiles of a group of planes.
        seconds: Time that it took.
    """

    record: ScienceRecord
    options: Options
    noise: NoiseEstimate
    promise: Promise | None
    warnings: list[str]
    size: tuple[int, int]
    num_tiles: int
    seconds: float


def restore_science(
    model: Model,
    source: ImageSource,
    format_name: FormatName,
    options: Options,
    *,
    engine: Engine,
    progress: Progress | None = None,
) -> Outcome:
    """Restore a scientific file and write it in its own format, with errors if the model has them.

    Args:
        model: The model.
        source: The file.
        format_name: Its format.
        options: How to restore it.
        engine: What runs the network.
        progress: Called after each tile with the number done and the number in all.
    """
    _check(source, options)
    image = open_science(
        source.path, format_name, max_pixels=options.max_pixels, memory=options.memory
    )
    with closing(image):
        return restore_planes(
            model,
            image,
            options,
            engine=engine,
            open_writer=lambda result: science_writer(options.folder / source.name, image, result),
            progress=progress,
        )


def restore_planes(
    model: Model,
    image: ScienceImage,
    options: Options,
    *,
    engine: Engine,
    open_writer: Callable[[Result], AbstractContextManager[PlaneWriter]],
    progress: Progress | None = None,
) -> Outcome:
    """Restore planes of values, and hand them over in their units, from top to bottom.

    Args:
        model: The model.
        image: The planes.
        options: How to restore them.
        engine: What runs the network.
        open_writer: Is told about the result and returns what takes its rows.
        progress: Called after each tile with the number done and the number in all. An error that
            it raises ends the work.
    """
    start = time.perf_counter()
    task = _prepare(model, image, options, engine)
    result = Result(scale=model.scale, has_errors=model.has_sigma, notes=_notes(model, task))
    with open_writer(result) as writer:
        num_tiles = _restore_groups(task, engine, writer, progress)
        _enlarge_others(image, model.scale, writer)
    return Outcome(
        record=task.record,
        options=task.options,
        noise=task.noise,
        promise=task.promise,
        warnings=_warnings(task),
        size=result.size_of(image),
        num_tiles=num_tiles,
        seconds=time.perf_counter() - start,
    )


@dataclass(frozen=True, kw_only=True)
class _Task:
    model: Model
    image: ScienceImage
    options: Options
    calibration: Calibration | None
    ranges: dict[int, ValueRange]
    samples: list[Sampled]
    groups: list[NormalisedPlanes]
    record: ScienceRecord
    noise: NoiseEstimate
    promise: Promise | None


def _check(source: ImageSource, options: Options) -> None:
    """Refuse options that are for photographs."""
    for name, is_set in (("npz", options.npz), ("page", options.page), ("width", options.size)):
        if is_set:
            text = f"is a scientific file, for which there is no `{name}`"
            raise image_error(source.path, f"{text}; its errors are planes of the result")
    if options.frame is not None:
        text = "is a scientific file, and all its planes are restored"
        raise image_error(source.path, f"{text}; leave `frame` out")


def _prepare(model: Model, image: ScienceImage, options: Options, engine: Engine) -> _Task:
    planes, applied = plan_groups(model, image)
    normalisation = stored_normalisation(model.metadata)
    asked = normalisation.percentiles if normalisation else None
    sampled = {plane: sample_plane(image, plane, asked) for plane in image.value_planes}
    ranges = choose_ranges(
        image, sampled, planes, given=options.value_range, of_weights=normalisation
    )
    fills = {p: ranges[p].low if s is None else s.median for p, s in sampled.items()}
    groups = [NormalisedPlanes(image, group, ranges, fills) for group in planes]
    options = with_engine_name(options, engine)
    options = replace(options, memory=_memory_for_tiles(model, image, planes, options))
    looked_at = groups[0] if groups[0].shape[1] in (1, 3) else groups[0].first_plane()
    seen = gray_if_equal(looked_at)
    statistics = measure(seen)
    noise = measure_noise(
        seen,
        statistics,
        estimate_level=options.estimate_noise,
        look_for_growth=model.scale == 1,
        max_side=NOISE_SIDE,
    )
    if options.estimate_noise:
        options = replace(options, noise_std=noise.std)
    calibration = calibration_for(model, options)
    return _Task(
        model=model,
        image=image,
        options=options,
        calibration=calibration,
        ranges=ranges,
        samples=[sample for sample in sampled.values() if sample is not None],
        groups=groups,
        record=_record(model, image, ranges, (applied, len(planes[0])), calibration),
        noise=noise,
        promise=_promise(calibration, image, options, statistics),
    )


def _restore_groups(
    task: _Task, engine: Engine, writer: PlaneWriter, progress: Progress | None
) -> int:
    """Restore and write all groups of planes; return the largest number of tiles of one."""
    most = done = 0
    # A tile that the user has asked for, and a network of somebody else, see planes one by one.
    together = task.options.tile is None and not task.model.network.info.is_black_box
    for stack in stacks(task.groups, together=together):
        strips = restore_image(
            task.model,
            stack[0] if len(stack) == 1 else StackedPlanes(stack),
            task.options,
            engine=engine,
            stacked=len(stack),
            progress=_progress_of(progress, done, len(stack), len(task.groups)),
        )
        top, height = 0, stack[0].shape[2] * task.model.scale
        try:
            for strip in strips:
                _write_strip(task, stack[top // height], strip, top % height, writer)
                top += strip.mean.shape[2]
        except ImageError as error:
            raise _named(task.image, error) from error
        most = max(most, strips.num_tiles // len(stack))
        done += len(stack)
    return most


def _write_strip(
    task: _Task, planes: NormalisedPlanes, strip: Prediction, top: int, writer: PlaneWriter
) -> None:
    """Write the rows of a group in the units of the file, a few at a time."""
    for start in range(0, strip.mean.shape[2], BAND):
        rows = slice(start, start + BAND)
        for channel, plane in enumerate(planes.planes):
            mean = strip.mean[0, channel, rows]
            sigma = None if strip.sigma is None else strip.sigma[0, channel, rows]
            values, missing = _in_units(task, planes, plane, mean, top + start)
            errors = None if sigma is None else _errors_in_units(task, plane, sigma)
            if errors is not None:
                errors[missing] = np.nan
            writer.write(plane, top + start, values, errors)


def _in_units(
    task: _Task, planes: NormalisedPlanes, plane: int, mean: Tensor, top: int
) -> tuple[Values, NDArray[np.bool_]]:
    """Return values in the units of the file, with NaN where they are missing, and where that is.

    At scale 1 a value that the network changes by no more than the rounding of float32 is the value
    of the file, to the bit.
    """
    scale, value_range = task.model.scale, task.ranges[plane]
    before = _source_rows(task.image, plane, top, top + len(mean), scale)
    values = mean.double().numpy() * value_range.span + value_range.low
    if scale == 1:
        seen = planes.normalized(plane, before)
        unchanged = np.abs(mean.numpy() - seen) <= np.spacing(np.abs(seen))
        values = np.where(unchanged, before, values)
    # Infinite values are no measurements, and a network cannot see them.
    missing = _repeated(~np.isfinite(before), top, len(mean), scale)
    values[missing] = np.nan
    return values, missing


def _errors_in_units(task: _Task, plane: int, sigma: Tensor) -> Values:
    span = task.ranges[plane].span
    if task.calibration is None:
        return sigma.double().numpy() * span
    std = task.calibration.std(sigma).double().numpy() * span
    if task.image.dtypes[plane].kind == "f":
        return std
    widened: Values = np.sqrt(np.square(std) + _ROUNDING_VARIANCE)
    return widened


def _enlarge_others(image: ScienceImage, scale: int, writer: PlaneWriter) -> None:
    """Enlarge opacity bicubically, and repeat the pixels of labels."""
    height = image.shape[1]
    for plane, role in enumerate(image.roles):
        if role == "values":
            continue
        for top in range(0, height, BAND):
            bottom = min(top + BAND, height)
            if role == "labels" or scale == 1:
                rows = image.read(plane, slice(top, bottom), slice(0, image.shape[2]))
                values = rows.repeat(scale, 0).repeat(scale, 1)
            else:
                values = _bicubic_rows(image, plane, top, bottom, scale)
            writer.write(plane, top * scale, values, None)


def _bicubic_rows(image: ScienceImage, plane: int, top: int, bottom: int, scale: int) -> Values:
    first, last = max(0, top - _KERNEL_RADIUS), min(image.shape[1], bottom + _KERNEL_RADIUS)
    rows = image.read(plane, slice(first, last), slice(0, image.shape[2]))
    enlarged = resize(torch.from_numpy(rows)[None, None], scale=scale)[0, 0].double()
    part = enlarged[(top - first) * scale : (bottom - first) * scale]
    return part.clamp(float(rows.min()), float(rows.max())).numpy()


def _source_rows(image: ScienceImage, plane: int, top: int, bottom: int, scale: int) -> Values:
    rows = slice(top // scale, -(-bottom // scale))
    return image.read(plane, rows, slice(0, image.shape[2]))


def _repeated(mask: NDArray[np.bool_], top: int, num_rows: int, scale: int) -> NDArray[np.bool_]:
    """Return a mask of the source in the size of the result, from its row `top`."""
    offset = top % scale
    return mask.repeat(scale, 0)[offset : offset + num_rows].repeat(scale, 1)


def _memory_for_tiles(
    model: Model, image: ScienceImage, planes: list[tuple[int, ...]], options: Options
) -> int:
    """Return what the rows that are converted and collected leave of the memory."""
    width = image.shape[2] * model.scale
    largest = max(dtype.itemsize for dtype in image.dtypes)
    num_planes = max(map(len, planes)) * (1 + model.has_sigma)
    taken = width * (BAND * _CONVERTED_BYTES + num_planes * COLLECTED_ROWS * largest)
    kept = _kept_bytes(model, image)
    taken += kept
    least = least_memory_for_tiles(model.network, width=image.shape[2])
    if options.tile is None and options.memory - taken < least:
        needed = math.ceil((taken + least) / 2**20)
        whole = "the file, its result and" if kept else f"rows of {width} pixels and"
        text = f"{whole} one tile need {needed} MiB of memory"
        raise image_error(image.path, f"{text}; set `memory` to that or more")
    return max(1, options.memory - taken)


def _kept_bytes(model: Model, image: ScienceImage) -> int:
    """Return the size of a file and its result where both are in memory as a whole."""
    if image.format != "EXR":
        return 0
    samples = sum(dtype.itemsize for dtype in image.dtypes)
    errors = 4 * len(image.value_planes) if model.has_sigma else 0
    return image.shape[1] * image.shape[2] * (samples + model.scale**2 * (samples + errors))


def _record(
    model: Model,
    image: ScienceImage,
    ranges: dict[int, ValueRange],
    applied: tuple[str, int],
    calibration: Calibration | None,
) -> ScienceRecord:
    low, high = (_common([getattr(r, key) for r in ranges.values()]) for key in ("low", "high"))
    quantity = "none" if not model.has_sigma else "sigma" if calibration is None else "std"
    has_interval = calibration is not None and model.has_sigma
    return ScienceRecord(
        format=image.format,
        bands=[image.names[plane] for plane in image.value_planes],
        applied=applied[0],
        num_channels=applied[1],
        low=low,
        high=high,
        range_origin=next(iter(ranges.values())).origin,
        error_quantity=quantity,
        interval_factor=calibration.factor if calibration and has_interval else None,
        coverage=calibration.coverage if calibration and has_interval else None,
    )


def _notes(model: Model, task: _Task) -> dict[str, str]:
    """Return what the file says about its result."""
    record = task.record
    notes = {
        "quantity": record.error_quantity,
        "meaning": _MEANINGS[record.error_quantity],
        "model": f"{model.name}, scale {model.scale}",
        "applied": record.applied,
        "value_range": f"{record.range_in_words} ({record.range_origin})",
    }
    if record.interval_factor is not None:
        factor = f"{record.interval_factor:.6g}"
        notes["interval"] = f"value +- {factor} std aims to hold a share of {record.coverage:g}"
    if task.promise is not None:
        notes["promise"] = task.promise.text or f"none: {task.promise.reason}"
    return notes


def _common(numbers: list[float]) -> float | list[float]:
    """Return one number where all are equal, and all of them where they differ."""
    return numbers[0] if len({*numbers}) == 1 else numbers


def _promise(
    calibration: Calibration | None,
    image: ScienceImage,
    options: Options,
    statistics: PictureStatistics,
) -> Promise | None:
    if calibration is None:
        return None
    return science_promise(calibration, image.format, options, statistics)


def _warnings(task: _Task) -> list[str]:
    warnings = range_warnings(next(iter(task.ranges.values())), task.samples)
    if task.image.left_out:
        names = _few(task.image.left_out)
        warnings.append(f"The result does not have these parts of the file: {names}.")
    return warnings


def _few(names: Sequence[str]) -> str:
    """Return names with commas between them; of very many only the first."""
    more = len(names) - _MAX_NAMES
    return ", ".join([*names[:_MAX_NAMES], *[f"and {more} more"] * (more > 0)])


def _progress_of(
    progress: Progress | None, before: int, stacked: int, num_groups: int
) -> Progress | None:
    """Return a callback for some groups of planes, after others; all have as many tiles."""
    if progress is None:
        return None
    return lambda done, total: progress(
        before * total // stacked + done, num_groups * total // stacked
    )


def _named(image: ScienceImage, error: ImageError) -> ImageError:
    text = str(error)
    return error if text.startswith(str(image.path)) else image_error(image.path, text)
