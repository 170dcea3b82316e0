"""Restoring picture files: read, predict, write back in kind, with the error map beside it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from musigma.data.files import ImageSource, image_error
from musigma.data.io import read_image, write_image
from musigma.data.sigma_files import write_sigma
from musigma.functional.resize import resize
from musigma.inference.calibration import Calibration
from musigma.inference.predictor import DEFAULT_MEMORY, predict, with_noise_map
from musigma.models import Model, entry
from musigma.types import ConfigError, ImageError, Prediction

TileProgress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class Options:
    """How files are restored.

    Attributes:
        folder: Where results go.
        noise_std: Noise level in 8-bit units, for a denoiser.
        sigma: Whether to write the error map, as 16-bit PNG and as a picture.
        npz: Whether to write it, with the mean, as NPZ too.
        tile: Largest side of a tile.
        memory: Bytes that a tile may need.
    """

    folder: Path
    noise_std: float | None = None
    sigma: bool = False
    npz: bool = False
    tile: int | None = None
    memory: int = DEFAULT_MEMORY


@dataclass(frozen=True, kw_only=True)
class Restored:
    """What became of one file."""

    source: Path
    output: Path
    sigma: Path | None
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
    output = options.folder / source.name
    if output.resolve() == source.path.resolve():
        raise image_error(output, "would replace its own source; choose another output folder")
    image, meta = read_image(source.path)
    prediction = restore(model, image, options, progress=progress)
    if meta.alpha is not None:
        size = (prediction.mean.shape[-2], prediction.mean.shape[-1])
        meta = replace(meta, alpha=resize(meta.alpha, size=size).clamp(0, 1))
    write_image(output, prediction.mean, meta)
    sigma = _write_error(prediction, calibration_of(model), output, options)
    return Restored(
        source=source.path,
        output=output,
        sigma=sigma,
        width=prediction.mean.shape[-1],
        height=prediction.mean.shape[-2],
        seconds=time.perf_counter() - start,
    )


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


def _write_error(
    prediction: Prediction, calibration: Calibration | None, output: Path, options: Options
) -> Path | None:
    if not (options.sigma or options.npz):
        return None
    if prediction.sigma is None:
        raise ImageError("the model has no sigma branch; leave --sigma out or choose another model")
    sigma = prediction.sigma
    if calibration is not None:
        sigma = calibration.calibrated_sigma(sigma)
    exact = output.with_name(f"{output.stem}.sigma.png")
    write_sigma(exact, sigma, kind="png")
    write_sigma(output.with_name(f"{output.stem}.error-map.png"), sigma, kind="picture")
    if options.npz:
        npz = output.with_name(f"{output.stem}.npz")
        write_sigma(npz, sigma, kind="npz", mean=prediction.mean)
    if calibration is not None:
        half_width = output.with_name(f"{output.stem}.interval.png")
        write_sigma(half_width, calibration.apply(prediction.sigma), kind="png")
    return exact
