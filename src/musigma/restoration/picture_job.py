"""A picture that was read: all that is decided about it before the network runs."""

import os
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from musigma.functional.equal_channels import gray_if_equal
from musigma.functional.noise import NoiseEstimate
from musigma.functional.picture_statistics import PictureStatistics, Windowed, measure
from musigma.images.image_io import MAX_PIXELS, ImageMeta, OpenedImage, open_image
from musigma.images.listing import ImageSource, image_error
from musigma.model import Model
from musigma.prediction.engines import Engine
from musigma.restoration.noise_level import measure_noise
from musigma.restoration.options import Options, calibration_for, with_engine_name
from musigma.restoration.picture_memory import memory_for_tiles
from musigma.restoration.promise import Promise, promise_for
from musigma.restoration.restored import file_stamp
from musigma.types import ImageError
from musigma.uncertainty.calibration import Calibration

NOISE_SIDE = 4096
"""Most rows and columns, from the middle of a picture, from which its noise is estimated."""


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
        height, width = self.picture.colors.shape[2:]
        return height * self.model.scale, width * self.model.scale

    @property
    def output(self) -> Path:
        """The restored picture."""
        return self.options.folder / self.source.name


def read_picture(
    model: Model, source: ImageSource, options: Options, *, engine: Engine | None = None
) -> Job:
    """Read a picture, or say why it cannot be restored with these options."""
    start, stamp = time.perf_counter(), file_stamp(source.path)
    checked_output(source, options)
    calibration = calibration_for(model, options)
    picture = open_image(
        source.path,
        max_pixels=options.max_pixels or MAX_PIXELS,
        frame=options.frame,
        memory=options.memory,
    )
    options = replace(options, memory=memory_for_tiles(model, source, picture, options))
    seen = gray_if_equal(picture.colors)
    statistics = measure(seen)
    noise = _measure_noise(model, source, seen, statistics, options)
    if options.estimate_noise:
        options = replace(options, noise_std=noise.std)
    if engine is not None:
        options = with_engine_name(options, engine)
    height, width = picture.colors.shape[2:]
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


def checked_output(source: ImageSource, options: Options) -> Path:
    """Return where the restored picture goes, or say that it would replace its source."""
    output = options.folder / source.name
    if os.path.realpath(output) == os.path.realpath(source.path):
        raise image_error(output, "would replace its own source; choose another output folder")
    return output


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
    if is_resized:
        return promise.taken_back(
            "it was resized, and the promise is for the result of the network"
        )
    return promise


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
