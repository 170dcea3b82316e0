"""Restoring picture files: read, predict, write back in kind, with the error map beside it."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from musigma.data.files import ImageSource, image_error
from musigma.data.io import read_image, write_image
from musigma.data.sigma_files import write_sigma
from musigma.functional.noise import estimate_noise_std
from musigma.functional.resize import resize
from musigma.inference.calibration import Calibration
from musigma.inference.page import write_page
from musigma.inference.predictor import DEFAULT_MEMORY, predict, with_noise_map
from musigma.models import Model, entry
from musigma.types import ConfigError, ImageError, Prediction

TileProgress = Callable[[int, int], None]
SIGMA, PICTURE, INTERVAL, NPZ = ".sigma.png", ".error-map.png", ".interval.png", ".npz"
PAGE = ".html"


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
        tile: Largest side of a tile.
        memory: Bytes that a tile may need.
    """

    folder: Path
    noise_std: float | None = None
    estimate_noise: bool = False
    sigma: bool = False
    npz: bool = False
    page: bool = False
    coverage: float | None = None
    tile: int | None = None
    memory: int = DEFAULT_MEMORY


@dataclass(frozen=True, kw_only=True)
class Restored:
    """What became of one file; the noise level is that which a denoiser was told."""

    source: Path
    output: Path
    sigma: Path | None
    noise_std: float | None
    width: int
    height: int
    seconds: float


def restore_file(
    model: Model, source: ImageSource, options: Options, *, progress: TileProgress | None = None
) -> Restored:
    """Restore one picture file and write what was asked for beside it.

    The result has the format, bit depth, alpha and profile of its source. Nothing is written when
    anything about the source is wrong.
    """
    start = time.perf_counter()
    if (options.sigma or options.npz) and not model.has_sigma:
        hint = "leave --sigma out or choose another model"
        raise ConfigError(f"{model.name} has no sigma branch; {hint}")
    output = options.folder / source.name
    if _real(output) == _real(source.path):
        raise image_error(output, "would replace its own source; choose another output folder")
    calibration = check_coverage(model, options.coverage)
    image, meta = read_image(source.path)
    try:
        if options.estimate_noise:
            options = replace(options, noise_std=estimate_noise_std(image))
        prediction = restore(model, image, options, progress=progress)
    except ImageError as error:
        raise image_error(source.path, str(error)) from error
    if meta.alpha is not None:
        size = (prediction.mean.shape[-2], prediction.mean.shape[-1])
        meta = replace(meta, alpha=resize(meta.alpha, size=size).clamp(0, 1))
    write_image(output, prediction.mean, meta)
    sigma = _write_error(prediction, calibration, output, options)
    if options.page:
        _write_page(model, image, prediction, calibration, output)
    return Restored(
        source=source.path,
        output=output,
        sigma=sigma,
        noise_std=options.noise_std,
        width=prediction.mean.shape[-1],
        height=prediction.mean.shape[-2],
        seconds=time.perf_counter() - start,
    )


def find_clashes(sources: Sequence[ImageSource], options: Options) -> dict[Path, ImageError]:
    """Return an error, by path, for each source whose results would replace what is not theirs.

    That is another source, or the results of a source before it: two folders may hold pictures of
    one name, and ``a.png`` and ``a.jpg`` would share one error map.
    """
    owners = {_real(source.path): source.path for source in sources}
    clashes: dict[Path, ImageError] = {}
    for source in sources:
        results = [_real(path) for path in _results(options.folder / source.name, options)]
        owner = next((owners[path] for path in results if path in owners), None)
        if owner is None:
            owners |= dict.fromkeys(results, source.path)
        elif owner != source.path:
            text = f"its results would replace {owner} or what is made from it"
            clashes[source.path] = image_error(source.path, f"{text}; use another output folder")
    return clashes


def restore(
    model: Model, image: Tensor, options: Options, *, progress: TileProgress | None = None
) -> Prediction:
    """Restore an image in memory, adding the noise map where the network takes one."""
    if entry(model.name).noise_map:
        if options.noise_std is None:
            raise ConfigError(f"{model.name} must be told the noise level; give --noise-std")
        image = with_noise_map(image, options.noise_std)
    return predict(
        model.network, image, tile=options.tile, memory=options.memory, progress=progress
    )


def calibration_of(model: Model) -> Calibration | None:
    """Return the calibration that a weights file carries, if any."""
    stored = model.metadata.get("calibration")
    return Calibration.from_dict(stored) if stored else None


def check_coverage(model: Model, coverage: float | None) -> Calibration | None:
    """Return a model's calibration, and refuse one that is not for the coverage asked for."""
    calibration = calibration_of(model)
    if coverage is not None and (calibration is None or calibration.coverage != coverage):
        state = f"calibrated for {calibration.coverage}" if calibration else "not calibrated"
        raise ConfigError(
            f"{model.name} is {state}; 'musigma calibrate ... --coverage {coverage}' fits "
            "intervals to held-out images"
        )
    return calibration


def _write_page(
    model: Model,
    image: Tensor,
    prediction: Prediction,
    calibration: Calibration | None,
    output: Path,
) -> None:
    facts, interval = {"Model": model.name}, None
    if calibration is not None and prediction.sigma is not None:
        facts["Intervals"] = calibration.promise
        interval = calibration.apply(prediction.sigma)
    write_page(
        _beside(output, PAGE),
        before=image,
        prediction=prediction,
        interval=interval,
        coverage=calibration.coverage if calibration and interval is not None else None,
        title=output.name,
        facts=facts,
    )


def _write_error(
    prediction: Prediction, calibration: Calibration | None, output: Path, options: Options
) -> Path | None:
    if not (options.sigma or options.npz):
        return None
    sigma = prediction.sigma
    assert sigma is not None
    if calibration is not None:
        write_sigma(_beside(output, INTERVAL), calibration.apply(sigma), kind="png")
        sigma = calibration.calibrated_sigma(sigma)
    write_sigma(_beside(output, SIGMA), sigma, kind="png")
    write_sigma(_beside(output, PICTURE), sigma, kind="picture")
    if options.npz:
        write_sigma(_beside(output, NPZ), sigma, kind="npz", mean=prediction.mean)
    return _beside(output, SIGMA)


def _results(output: Path, options: Options) -> list[Path]:
    endings = (SIGMA, PICTURE, INTERVAL, NPZ) if options.sigma or options.npz else ()
    pages = (PAGE,) if options.page else ()
    return [output, *(_beside(output, ending) for ending in (*endings, *pages))]


def _beside(output: Path, ending: str) -> Path:
    return output.with_name(output.stem + ending)


def _real(path: Path) -> str:
    return os.path.realpath(path)  # Path.resolve raises on a link that leads to itself
