"""Restore one picture for the page and for the API: the files of the result, and a JSON report."""

import dataclasses
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from musigma.app.limits import Limits
from musigma.app.preview import Preview
from musigma.images.decoding import declared_size
from musigma.images.image_io import RowWriter
from musigma.images.listing import ImageSource, printable
from musigma.model import Model, load
from musigma.networks.weights_file import shipped_weights
from musigma.prediction.engines import Engine
from musigma.prediction.predict import Progress
from musigma.prediction.tiling import tile_for_memory
from musigma.restoration.error_maps import describe, error_map_writer
from musigma.restoration.interactive import DEFAULT_WEIGHTS, TILE, default_engine
from musigma.restoration.options import Options
from musigma.restoration.picture_job import Job, read_picture
from musigma.restoration.restore_file import compute_strips, write_results
from musigma.restoration.restored import Restored
from musigma.restoration.viewer.data import error_colors
from musigma.types import ConfigError, ImageError, Prediction, nearest, no_scale, short_repr
from musigma.uncertainty.calibration import Calibration

NUM_MODELS = 3
"""Models that are kept in memory with their engines."""

OWN_THREADS = ("onnx", "openvino")
"""Engines that compute with threads of their own, besides those of torch."""

MEDIA_TYPES = {"picture": "image/png", "sigma": "image/png", "report": "text/html"}
"""The files of a result, by what they hold."""


@dataclass(frozen=True, kw_only=True)
class RestoreRequest:
    """What to do with a picture.

    Attributes:
        scale: Zoom factor; 1 cleans the picture.
        weights: Name of shipped weights.
        noise_std: Noise level in 8-bit levels, for weights that take one; `None` to estimate it.

    Example:
        >>> RestoreRequest.parse({"scale": "4"})
        RestoreRequest(scale=4, weights='photo', noise_std=None)
    """

    scale: int = 2
    weights: str = DEFAULT_WEIGHTS
    noise_std: float | None = None

    def __post_init__(self) -> None:
        """Refuse what does not exist, before any work is done."""
        known = shipped_weights()
        scales = known.get(self.weights)
        if scales is None:
            hint = nearest(self.weights, [*known])
            raise ConfigError(f"there are no weights {self.weights!r}; {hint}")
        if self.scale not in scales:
            raise no_scale(self.weights, scales, self.scale)
        if self.noise_std is not None and not 0 <= self.noise_std <= 255:
            raise ConfigError(f"noise_std must be from 0 to 255, got {self.noise_std}")

    @classmethod
    def parse(cls, values: Mapping[str, str]) -> "RestoreRequest":
        """Read a request from texts, such as those of an address; empty texts are left out."""
        check_settings(values, [field.name for field in dataclasses.fields(cls)])
        values = {name: value for name, value in values.items() if value != ""}
        scale = _number("scale", values.get("scale", "2"), int)
        level = _number("noise_std", values["noise_std"], float) if "noise_std" in values else None
        return cls(scale=scale, weights=values.get("weights", DEFAULT_WEIGHTS), noise_std=level)


def check_settings(values: Mapping[str, str], known: list[str]) -> None:
    """Refuse a setting that does not exist."""
    for name in values:
        if name not in known:
            raise ConfigError(f"there is no setting {name!r}; {nearest(name, known)}")


Number = TypeVar("Number", int, float)


def _number(name: str, text: str, kind: Callable[[str], Number]) -> Number:
    try:
        return kind(text)
    except ValueError as error:
        raise ConfigError(f"{name} must be a number, got {short_repr(text)}") from error


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Limit the threads of torch for a while.

    Beside an engine with threads of its own, torch only turns samples into files. Its operations
    there are so short that its threads would spend more time on waiting for each other than on
    computing.

    Args:
        number: Of the threads.

    Example:
        >>> with torch_threads(1):
        ...     torch.get_num_threads()
        1
    """
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Restorer:
    """Restores pictures with the shipped weights, one at a time.

    Args:
        limits: What is admitted.
        engine: Name of the engine, as for `Model.engine`; by default `default_engine` on a CPU and
            ``torch`` elsewhere.
        device: Where to compute, as for `Model.to`.
    """

    def __init__(self, limits: Limits, *, engine: str | None = None, device: str = "auto") -> None:
        self.limits = limits
        self._engine_name, self._device = engine, device
        self.model = lru_cache(maxsize=NUM_MODELS)(self._load)

    def _load(self, weights: str, scale: int) -> Model:
        return load(weights, scale=scale).to(self._device)

    def engine(self, model: Model) -> Engine:
        """Return what runs a model; it is made once."""
        on_cpu = model.device.type == "cpu"
        return model.engine(self._engine_name or (default_engine() if on_cpu else "torch"))

    def warm_up(self) -> None:
        """Load default weights, engine and packages, so that the first request is quick."""
        self.engine(self.model(DEFAULT_WEIGHTS, 2))
        error_colors()  # imports matplotlib

    def restore(
        self,
        source: Path,
        request: RestoreRequest,
        folder: Path,
        *,
        name: str = "picture",
        page: bool = True,
        progress: Progress | None = None,
        show: Callable[[bytes], None] | None = None,
    ) -> "Result":
        """Restore a picture file.

        Args:
            source: The file, of any name.
            request: What to do.
            folder: Empty folder for the files of the result.
            name: What the picture is called; the files are named after it.
            page: Whether to write the report, a page; it takes a third of a second per megapixel.
            progress: Called after each tile with the number done and the number in all.
            show: Receives the picture as far as it is done, as a small JPEG.

        Raises:
            TooLargeError: If the picture is too large.
            ImageError: If it cannot be read.
        """
        with _naming(name, source, folder):
            output = ImageSource(source, Path(safe_name(name) + ".png"))
            options = Options(
                folder=folder,
                page=page,
                memory=self.limits.memory,
                max_pixels=self.limits.max_pixels,
            )
            return self._restore(output, request, options, progress, show)

    def _restore(
        self,
        source: ImageSource,
        request: RestoreRequest,
        options: Options,
        progress: Progress | None,
        show: Callable[[bytes], None] | None,
    ) -> "Result":
        start = time.perf_counter()
        declared = declared_size(source.path)
        self.limits.check_size(declared.height, declared.width, scale=request.scale)
        model = self.model(request.weights, request.scale)
        engine = self.engine(model)
        options = _with_noise(options, model, request.noise_std)
        with torch_threads(1 if engine.name in OWN_THREADS else torch.get_num_threads()):
            job = _with_small_tiles(read_picture(model, source, options, engine=engine))
            strips = compute_strips(job, engine, progress=progress)
            with _Tap(job, show) as tap:
                restored = write_results(job, tap.through(strips))
        files = {"picture": restored.output}
        files |= {"report": restored.files["page"]} if options.page else {}
        files |= {"sigma": tap.path} if model.has_sigma else {}
        return Result(
            report=_report(job, restored, engine, time.perf_counter() - start),
            files=files,
            calibration=model.calibration,
        )


@dataclass(frozen=True, kw_only=True)
class Result:
    """A restored picture.

    Attributes:
        report: What can be said about it, as plain JSON values.
        files: Its files, by what they hold: ``picture``, ``sigma``, ``report``.
        calibration: How to read sigma.
    """

    report: dict[str, Any]
    files: dict[str, Path]
    calibration: Calibration | None


def safe_name(name: str) -> str:
    """Return a name without folders, suffix and signs that a system or a page might obey.

    Example:
        >>> safe_name("../../holiday photo.jpg"), safe_name("<b>"), safe_name("..")
        ('holiday_photo', 'b', 'picture')
    """
    stem = re.split(r"[/\\]", name)[-1].rpartition(".")[0] or name
    return re.sub(r"[^\w-]+", "_", stem, flags=re.ASCII)[:60].strip("_") or "picture"


def _with_noise(options: Options, model: Model, noise_std: float | None) -> Options:
    if noise_std is not None and not model.takes_noise_level:
        raise ConfigError(f"{model.name} takes no noise level; leave noise_std out")
    estimate = model.takes_noise_level and noise_std is None
    return dataclasses.replace(options, noise_std=noise_std, estimate_noise=estimate)


def _with_small_tiles(job: Job) -> Job:
    """Let tiles be no larger than `TILE`; the memory that the picture leaves may ask for less."""
    options, width = job.options, job.picture.colors.shape[3]
    side = tile_for_memory(job.model.network, memory=options.memory, width=width)
    job.options = dataclasses.replace(options, tile=min(TILE, side))
    return job


@contextmanager
def _naming(name: str, *paths: Path) -> Iterator[None]:
    """Let errors speak of the picture's name: clients do not know the folders of the server."""
    try:
        yield
    except ImageError as error:
        text = str(error)
        for path in paths:
            text = text.replace(printable(path), safe_name(name))
        raise ImageError(text) from error


class _Tap(ExitStack):
    """Writes sigma and shows the picture while the strips of a result pass."""

    def __init__(self, job: Job, show: Callable[[bytes], None] | None) -> None:
        super().__init__()
        self.path = job.output.with_suffix(".sigma.png")
        self._job = job
        _, _, height, width = job.picture.colors.shape
        self._size = (job.model.scale * height, job.model.scale * width)
        self._preview = Preview(self._size, show) if show else None
        self._writer: RowWriter | None = None

    def through(self, strips: Iterable[Prediction]) -> Iterator[Prediction]:
        for mean, sigma in strips:
            if self._preview is not None:
                self._preview.add(mean)
            if sigma is not None:
                self._write(sigma)
            yield Prediction(mean, sigma)

    def _write(self, sigma: Tensor) -> None:
        if self._writer is None:
            shape = (1, sigma.shape[1], *self._size)
            info = describe("sigma")
            self._writer = self.enter_context(
                error_map_writer(self.path, shape, "sigma", info=info)
            )
        self._writer.write(sigma)


def _report(job: Job, restored: Restored, engine: Engine, seconds: float) -> dict[str, Any]:
    return {
        "weights": job.model.name,
        "scale": job.model.scale,
        "digest": job.model.digest,
        "engine": engine.name,
        "width": restored.width,
        "height": restored.height,
        "exact": restored.exact,
        "noise_std": restored.noise_std,
        "noise_estimated": restored.noise_estimated,
        "calibration": calibration_json(job.calibration),
        "promise": restored.promise,
        "promise_reason": restored.promise_reason,
        "warnings": restored.warnings,
        "seconds": round(seconds, 3),
    }


def calibration_json(calibration: Calibration | None) -> dict[str, Any] | None:
    """Return a calibration with its conditions in words, as plain JSON values."""
    if calibration is None:
        return None
    return {**calibration.to_dict(), "conditions": calibration.conditions}
