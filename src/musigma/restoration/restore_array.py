"""Restore values in memory, in their own units; viewers and other programs call this."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from musigma.images.science.image import Values
from musigma.images.science.samples import encode
from musigma.model import Model
from musigma.prediction.engines import Engine
from musigma.prediction.predict import DEFAULT_MEMORY, Progress
from musigma.prediction.tiling import MAX_TILE, tile_for_memory
from musigma.restoration.array_source import (
    NUM_COLORS,
    ArraySource,
    Index,
    planes_of,
    result_type,
)
from musigma.restoration.options import Options
from musigma.restoration.promise import Promise, lossy_reason
from musigma.restoration.restore_science import Outcome, ScienceRecord, restore_planes
from musigma.types import ConfigError

LOSSY_SUFFIXES = frozenset({".jpg", ".jpeg", ".jfif"})

_RANGE_ORIGINS = {
    "declared by the file": "by the type of the values",
    "measured in the file": "as measured",
}
_QUANTITIES = {
    "std": "Sigma is the calibrated standard deviation of the error, in the units of the values",
    "sigma": "Sigma is the error that the network predicts; it is not calibrated",
    "none": "The model predicts no errors",
}


@dataclass(frozen=True, kw_only=True)
class ArrayOptions:
    """How an array is restored.

    Attributes:
        noise_std: Noise level in 1/255 of the range of values, for models that take one; `None`
            to estimate it.
        coverage: Coverage of the intervals; by default that of the calibration.
        value_range: Values that are black and white; by default those of the weights, those of the
            type, or measured ones.
        all_planes: Whether to restore all planes of a stack, and not only that which is shown.
        tile: Largest side of a tile, where `DEFAULT_MEMORY` does not ask for less.
    """

    noise_std: float | None = None
    coverage: float | None = None
    value_range: tuple[float, float] | None = None
    all_planes: bool = False
    tile: int = MAX_TILE


@dataclass(frozen=True, eq=False, kw_only=True)
class RestoredArray:
    """A restored array, in the units of its source.

    Attributes:
        name: Of the source.
        rgb: Whether the last axis of `mean` holds colors.
        mean: The restored values, with as many axes as the source.
        std: Their errors in the same shape, without opacity; `None` for a model without sigma.
        factor: Half-width of the interval in units of `std`; `None` without a calibration.
        coverage: Share of the values that the intervals aim to hold.
        zoom: How many pixels there are for one of the source, along rows and columns.
        first: Index of the first plane in the source.
        report: Whole sentences about the result, among them what the intervals promise.
        info: Short texts about the result by name, for metadata.
    """

    name: str
    rgb: bool
    mean: NDArray[Any]
    std: NDArray[np.float32] | None
    factor: float | None
    coverage: float | None
    zoom: int
    first: Index
    report: list[str] = field(default_factory=list)
    info: dict[str, str] = field(default_factory=dict)

    @property
    def colors(self) -> NDArray[Any]:
        """The restored values without opacity."""
        return self.mean[..., :NUM_COLORS] if self.rgb else self.mean

    @property
    def half_width(self) -> NDArray[np.float32] | None:
        """Half the width of each interval; `None` without sigma or without a calibration."""
        if self.std is None or self.factor is None:
            return None
        return np.float32(self.factor) * self.std


def restore_array(
    model: Model,
    source: ArraySource,
    options: ArrayOptions | None = None,
    *,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> RestoredArray:
    """Restore the planes of an array one by one, as those of a scientific file.

    Args:
        model: What restores them.
        source: The array.
        options: How.
        engine: What runs the network; by default that of the model.
        progress: Called after each tile with the number done and the number in all. An error that
            it raises ends the work.

    Raises:
        MusigmaError: The array or the options cannot be used, and what to do.

    Example:
        >>> from musigma.model import load
        >>> source = ArraySource(name="cells", data=np.zeros((3, 8, 9), np.uint16), rgb=False)
        >>> options = ArrayOptions(all_planes=True)
        >>> restore_array(load("bicubic", scale=2), source, options).mean.shape
        (3, 16, 18)
    """
    options = options or ArrayOptions()
    indices = source.planes(all_planes=options.all_planes)
    if model.network.in_channels - model.network.takes_noise_level not in (1, NUM_COLORS):
        indices.sort()  # the network sees the planes jointly, in their order
    rows = _Rows(source, indices, zoom=model.scale, has_errors=model.has_sigma)
    outcome = restore_planes(
        model,
        planes_of(source, indices, value_range=options.value_range),
        _file_options(model, source, options),
        engine=model.engine() if engine is None else engine,
        open_writer=lambda _: rows.open(),
        progress=progress,
    )
    return _restored(model, source, options, rows, outcome)


def _file_options(model: Model, source: ArraySource, options: ArrayOptions) -> Options:
    if options.noise_std is not None and not model.takes_noise_level:
        raise ConfigError(f"{model.name} takes no noise level; leave `noise_std` out")
    tile = tile_for_memory(model.network, memory=DEFAULT_MEMORY, width=source.size[1])
    return Options(
        folder=Path(),  # nothing is written
        noise_std=options.noise_std,
        estimate_noise=model.takes_noise_level and options.noise_std is None,
        coverage=options.coverage if model.calibration is not None else None,
        value_range=options.value_range,
        tile=min(options.tile, tile),
    )


class _Rows:
    """Takes the restored rows of all planes."""

    def __init__(
        self, source: ArraySource, indices: list[Index], *, zoom: int, has_errors: bool
    ) -> None:
        height, width = (zoom * length for length in source.size)
        self._source, self._indices, self._dtype = source, indices, result_type(source)
        shape = (len(indices), height, width, source.num_samples)
        self._mean = np.zeros(shape, self._dtype)
        num_colors = min(NUM_COLORS, source.num_samples)
        self._std = np.zeros((*shape[:3], num_colors), np.float32) if has_errors else None

    @contextmanager
    def open(self) -> Iterator["_Rows"]:
        """Be what `restore_planes` writes to."""
        yield self

    def write(self, plane: int, top: int, values: Values, errors: Values | None) -> None:
        """Store rows of a plane."""
        number, sample = divmod(plane, self._source.num_samples)
        rows = slice(top, top + len(values))
        self._mean[number, rows, :, sample] = encode(values, self._dtype)
        if errors is not None and self._std is not None:
            self._std[number, rows, :, sample] = errors

    @property
    def mean(self) -> NDArray[Any]:
        """The values in the axes of the source."""
        return self._in_order(self._mean)

    @property
    def std(self) -> NDArray[np.float32] | None:
        """The errors in the axes of the source."""
        return None if self._std is None else self._in_order(self._std)

    def _in_order(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return planes in the order of their indices: the first was that which is shown."""
        order = sorted(range(len(self._indices)), key=self._indices.__getitem__)
        if order != sorted(order):
            array = array[order]
        leading = self._source.leading
        if len(order) == 1:
            leading = (1,) * len(leading)
        shape = (*leading, *array.shape[1:])
        return array.reshape(shape if self._source.rgb else shape[:-1])


def _restored(
    model: Model, source: ArraySource, options: ArrayOptions, rows: _Rows, outcome: Outcome
) -> RestoredArray:
    record = outcome.record
    promise = _with_lossy_file(model, source, outcome.promise)
    report = _report(model, source, outcome, promise)
    (first, *_) = source.planes(all_planes=False)
    return RestoredArray(
        name=source.name,
        rgb=source.rgb,
        mean=rows.mean,
        std=rows.std,
        factor=record.interval_factor,
        coverage=record.coverage,
        zoom=model.scale,
        first=(0,) * len(first) if options.all_planes else first,
        report=report,
        info={
            "model": f"{model.name}, scale {model.scale}",
            "digest": model.digest,
            "quantity": record.error_quantity,
            "applied": record.applied,
            "value_range": f"{record.range_in_words} ({_origin(record.range_origin)})",
            "report": " ".join(report),
        },
    )


def _with_lossy_file(model: Model, source: ArraySource, promise: Promise | None) -> Promise | None:
    """Take the promise back where the values come from a JPEG file and the model is not for it."""
    is_lossy = source.path is not None and source.path.suffix.lower() in LOSSY_SUFFIXES
    if promise is None or model.calibration is None or not is_lossy:
        return promise
    reason = lossy_reason(model.calibration, "JPEG")
    return promise.taken_back(reason) if reason else promise


def _report(
    model: Model, source: ArraySource, outcome: Outcome, promise: Promise | None
) -> list[str]:
    record, (height, width) = outcome.record, outcome.size
    done = "Denoised" if model.scale == 1 else f"Enlarged by {model.scale}"
    num_planes = len(record.bands) // min(NUM_COLORS, source.num_samples)
    planes = f"{num_planes} planes of " if num_planes > 1 else ""
    sentences = [
        f"{done} with {model.name} in {outcome.seconds:.1f} s: {planes}{width} x {height} pixels.",
        _range_sentence(record),
    ]
    if outcome.options.noise_std is not None:
        how = "estimated" if outcome.options.estimate_noise else "given"
        sentences.append(f"The noise level is {outcome.options.noise_std:.3g} of 255, {how}.")
    sentences.append(f"{_QUANTITIES[record.error_quantity]}.")
    sentences += [text.replace("--range", "a value range") for text in outcome.warnings]
    if promise is not None and model.has_sigma:
        sentences.append(_promise_sentence(promise, num_planes))
    return sentences


def _range_sentence(record: ScienceRecord) -> str:
    origin = _origin(record.range_origin)
    if isinstance(record.low, list) or isinstance(record.high, list):
        return f"Each plane has its own black and white: {record.range_in_words}, {origin}."
    return f"Black is {record.low:g} and white {record.high:g}, {origin}."


def _promise_sentence(promise: Promise, num_planes: int) -> str:
    if promise.text is None:
        return f"The intervals promise nothing for this picture: {promise.reason}."
    looked_at = " This was looked at in the first plane alone." if num_planes > 1 else ""
    return f"{promise.text}.{looked_at}"


def _origin(origin: str) -> str:
    return _RANGE_ORIGINS.get(origin, origin)
