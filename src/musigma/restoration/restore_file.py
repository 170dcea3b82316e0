"""Restoring picture files: read, predict, write back in kind, with the error map beside it."""

import os
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from musigma.functional.noise import estimate_noise_std
from musigma.images.image_io import OpenedImage, Raster, open_image
from musigma.images.listing import ImageSource, image_error
from musigma.model import Model
from musigma.prediction.engines import Engine
from musigma.prediction.predict import DEFAULT_MEMORY, Image, Strips, predict_strips
from musigma.prediction.self_ensemble import SelfEnsemble
from musigma.restoration.output_files import INTERVAL, NPZ, PAGE, PICTURE, SIGMA, Results, beside
from musigma.types import ConfigError, ImageError, Prediction
from musigma.uncertainty.calibration import Calibration

TileProgress = Callable[[int, int], None]
NOISE_SIDE = 4096
"""The noise level of a larger picture is estimated from so many rows and columns of its middle."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How files are restored.

    Attributes:
        folder: Where results go.
        noise_std: Noise level in 8-bit units, for a denoiser.
        estimate_noise: Whether to estimate the noise level of each picture instead.
        sigma: Whether to write the error map, as 16-bit PNG and as a picture.
        npz: Whether to write it, with the mean, as NPZ too.
        page: Whether to write a page to look at: input against result, and the error map.
        coverage: Of the intervals; the model must be calibrated for it.
        engine: What runs the network, one of `musigma.prediction.engines.ENGINES` or ``auto``.
        ensemble: Whether to average over flips and quarter turns, at eight times the cost.
        tile: Largest side of a tile.
        memory: Bytes for a tile and for the rows of the result that are being made.
    """

    folder: Path
    noise_std: float | None = None
    estimate_noise: bool = False
    sigma: bool = False
    npz: bool = False
    page: bool = False
    coverage: float | None = None
    engine: str = "torch"
    ensemble: bool = False
    tile: int | None = None
    memory: int = DEFAULT_MEMORY


@dataclass(frozen=True, kw_only=True)
class Restored:
    """What became of one file.

    Attributes:
        source: What was read.
        output: The restored picture.
        sigma: Its error map, if one was asked for.
        noise_std: The level that a denoiser was told.
        width: Of the result.
        height: Of the result.
        exact: Whether it is what the network gives for the whole picture. It is not where the
            picture was cut into tiles for a network that sees all of it.
        seconds: From the beginning of reading to the end of writing.
    """

    source: Path
    output: Path
    sigma: Path | None
    noise_std: float | None
    width: int
    height: int
    exact: bool
    seconds: float


@dataclass(kw_only=True)
class Job:
    """A picture that was read, and what is to become of it; `read`, `strips` and `write` follow."""

    source: ImageSource
    options: Options
    model: Model
    calibration: Calibration | None
    picture: OpenedImage
    start: float
    num_tiles: int = 0

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
    """Restore one picture file and write what was asked for beside it.

    The result has the format, bit depth, alpha and profile of its source. Nothing is written when
    anything about the source is wrong. Memory holds the picture as it was decoded, and of the
    result the rows that are being made.

    Args:
        model: What restores it.
        source: The file.
        options: How.
        engine: What `engine_for` gave for these options, where there are many files.
        progress: Called after each tile with the number done and the number in all.
    """
    engine = engine or engine_for(model, options.engine, ensemble=options.ensemble)
    job = read(model, source, options)
    return write(job, strips(job, engine, progress=progress))


def engine_for(
    model: Model,
    name: str,
    *,
    ensemble: bool = False,
    report: Callable[[str], None] = lambda _: None,
) -> Engine:
    """Return what runs a model: an engine by name, or its average over eight views of a tile.

    Args:
        model: In evaluation mode, on the device where it should run.
        name: As for `musigma.prediction.engines.make_engine`.
        ensemble: Whether to average.
        report: Told what ``auto`` measured and which engine it took.
    """
    if model.onnx is not None and name == "torch":
        name = "onnx"  # the float32 engine of a model that holds no PyTorch weights
    engine = model.engine(name, report=report)
    return SelfEnsemble(engine) if ensemble else engine


def tiles_are_exact(model: Model, options: Options) -> bool:
    """Say whether tiles give what the whole picture would give, but for rounding."""
    # A flipped tile may be divided into other cells than the flipped picture.
    turned = options.ensemble and model.network.size_multiple > 1
    return model.network.receptive_radius is not None and not turned


def read(model: Model, source: ImageSource, options: Options) -> Job:
    """Read a picture, or say why it cannot be restored with these options."""
    start = time.perf_counter()
    if (options.sigma or options.npz) and not model.has_sigma:
        hint = "leave `sigma` out or choose another `model`"
        raise ConfigError(f"{model.name} has no sigma branch; {hint}")
    output = options.folder / source.name
    if _real(output) == _real(source.path):
        raise image_error(output, "would replace its own source; choose another output folder")
    calibration = model.calibration
    if options.coverage is not None:
        calibration = model.require_calibration(options.coverage)
    picture = open_image(source.path)
    if options.estimate_noise:
        try:
            noise_std = estimate_noise_std(_middle(picture.colours))
        except ImageError as error:
            raise image_error(source.path, str(error)) from error
        options = replace(options, noise_std=noise_std)
    return Job(
        source=source,
        options=options,
        model=model,
        calibration=calibration,
        picture=picture,
        start=start,
    )


def strips(
    job: Job, engine: Engine, *, progress: TileProgress | None = None
) -> Generator[Prediction, None, None]:
    """Yield the restored picture from top to bottom, some rows at a time."""
    try:
        rows = restore(
            job.model, job.picture.colours, job.options, engine=engine, progress=progress
        )
        yield from rows
        job.num_tiles = rows.num_tiles
    except ImageError as error:
        raise image_error(job.source.path, str(error)) from error


def write(job: Job, rows: Iterable[Prediction]) -> Restored:
    """Write what `strips` yields into the files that were asked for."""
    rows = iter(rows)
    strip = next(rows, None)  # before a file is opened, since this is what fails if anything does
    assert strip is not None
    options = job.options
    with ExitStack() as stack:
        results = Results(
            stack,
            job.picture,
            job.output,
            strip,
            calibration=job.calibration,
            sigma=options.sigma,
            npz=options.npz,
            page=options.page,
            facts={"Model": job.model.name},
        )
        while strip is not None:
            results.add(strip)
            strip = next(rows, None)
        results.finish()
    return Restored(
        source=job.source.path,
        output=job.output,
        sigma=beside(job.output, SIGMA) if options.sigma or options.npz else None,
        noise_std=options.noise_std,
        width=results.shape[3],
        height=results.shape[2],
        exact=job.num_tiles == 1 or tiles_are_exact(job.model, options),
        seconds=time.perf_counter() - job.start,
    )


def find_clashes(sources: Sequence[ImageSource], options: Options) -> dict[Path, ImageError]:
    """Return an error, by path, for each source whose results would replace what is not theirs.

    That is another source, or the results of a source before it: two folders may hold pictures of
    one name, and ``a.png`` and ``a.jpg`` would share one error map.
    """
    owners = {_real(source.path): source.path for source in sources}
    clashes: dict[Path, ImageError] = {}
    for source in sources:
        results = [_real(path) for path in result_paths(options.folder / source.name, options)]
        owner = next((owners[path] for path in results if path in owners), None)
        if owner is None:
            owners |= dict.fromkeys(results, source.path)
        elif owner != source.path:
            text = f"its results would replace {owner} or what is made from it"
            clashes[source.path] = image_error(source.path, f"{text}; use another output folder")
    return clashes


def restore(
    model: Model,
    image: Image,
    options: Options,
    *,
    engine: Engine | None = None,
    progress: TileProgress | None = None,
) -> Strips:
    """Return a restored image in strips, telling the network the noise level if it takes one."""
    if model.takes_noise_level and options.noise_std is None:
        raise ConfigError(f"{model.name} must be told the noise level; give `noise_std`")
    return predict_strips(
        model.network,
        image,
        noise_std=options.noise_std if model.takes_noise_level else None,
        engine=engine,
        tile=options.tile,
        memory=options.memory,
        progress=progress,
    )


def result_paths(output: Path, options: Options) -> list[Path]:
    """Return the names of all that may be written for a picture."""
    endings = (SIGMA, PICTURE, INTERVAL, NPZ) if options.sigma or options.npz else ()
    pages = (PAGE,) if options.page else ()
    return [output, *(beside(output, ending) for ending in (*endings, *pages))]


def _middle(image: Raster) -> Tensor:
    places = []
    for length in image.shape[2:]:
        start = max(0, length - NOISE_SIDE) // 2
        places.append(slice(start, start + NOISE_SIDE))
    return image[(slice(None), slice(None), *places)]


def _real(path: Path) -> str:
    return os.path.realpath(path)  # Path.resolve raises on a link that leads to itself
