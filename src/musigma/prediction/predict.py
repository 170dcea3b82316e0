"""From an image to its prediction: the one path that commands, evaluation and training share."""

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Protocol, SupportsFloat

import torch
from torch import Tensor

from musigma.functional.color import match_channels
from musigma.functional.equal_channels import gray_if_equal
from musigma.images.conversion import ImageLike, as_batch
from musigma.networks import Network
from musigma.prediction.engines.base import Engine
from musigma.prediction.engines.pytorch import TorchEngine
from musigma.prediction.stitching import Stitcher, collect_strips
from musigma.prediction.tiling import (
    SMALL_CONVOLUTION,
    Tile,
    border_of,
    bytes_per_pixel,
    overlap_of,
    plan_tiles,
    stacked_tiles,
    tile_for_memory,
)
from musigma.types import ConfigError, ImageError, MusigmaError, Prediction, first_line

DEFAULT_MEMORY = 2 * 2**30
Progress = Callable[[int, int], None]

GRAY_NOISE_FACTOR = math.sqrt(3)
"""By how much the noise level that a color network is told is raised for a gray picture.

The network sees the picture three times, with the same noise each time. It has learned noise that
differs between the colors, so that the mean of the three is less noisy by this factor."""

_OUT_OF_MEMORY = ("DefaultCPUAllocator", "bad_alloc", "bad allocation", "Failed to allocate memory")
"""What PyTorch, ONNX Runtime and OpenVINO say where a CPU has no memory left."""


class Image(Protocol):
    """A tensor ``(1, C, H, W)``, or an object that reads a part of one when it is indexed."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole image."""
        ...

    def __getitem__(self, part: Any, /) -> Tensor:
        """Return a part as float32 in ``[0, 1]``."""
        ...


def predict(
    network: Network,
    image: ImageLike,
    *,
    noise_std: float | None = None,
    engine: Engine | None = None,
    tile: int | None = None,
    memory: int = DEFAULT_MEMORY,
    progress: Progress | None = None,
) -> Prediction:
    """Restore an image or a batch of images, tile by tile; the result is in host memory.

    A gray image goes through a color network as three equal channels and comes back gray. An image
    of three equal channels comes back as three equal channels from a network that takes the noise
    level. Several threads may call this function for one network.

    Args:
        network: On the device where it should run. A network in training mode is run as it would
            run in evaluation mode; its own mode is not changed.
        image: A PIL image, an array ``(H, W)``, ``(H, W, C)`` or ``(N, H, W, C)``, or a tensor
            ``(C, H, W)`` or ``(N, C, H, W)``. Integers use the full range of their type; floats
            lie in ``[0, 1]``.
        noise_std: Noise level in 8-bit levels, for a network that takes one, and only for it.
        engine: What runs the network; by default PyTorch in float32. `musigma.prediction.tiling`
            says how near tiles are to the whole image then.
        tile: Largest side of a tile; by default as large as `memory` allows, and smaller where such
            a tile turns out to be too large for the device.
        memory: Bytes that the forward pass of a tile may need.
        progress: Called after each tile with the number done and the number in all.

    Example:
        >>> from musigma.networks import create
        >>> predict(create("bicubic", scale=2), torch.rand(1, 3, 8, 8)).mean.shape
        torch.Size([1, 3, 16, 16])
    """
    _require_network(network)
    batch = as_batch(image)
    engine = TorchEngine(network) if engine is None else engine
    predictions = []
    for index, single in enumerate(batch[:, None]):
        strips = predict_strips(
            network,
            single,
            noise_std=noise_std,
            engine=engine,
            tile=tile,
            memory=memory,
            progress=progress_of_part(progress, index, len(batch)),
        )
        predictions.append(collect_strips(strips, strips.shape))
    return _concatenate(predictions)


def predict_strips(
    network: Network,
    image: Image,
    *,
    noise_std: float | None = None,
    num_channels: int | None = None,
    engine: Engine | None = None,
    tile: int | None = None,
    stacked: int = 1,
    memory: int = DEFAULT_MEMORY,
    progress: Progress | None = None,
) -> "Strips":
    """Restore one image; the result comes from top to bottom, some rows at a time.

    Neither the image nor the result need be in memory as a whole: a tile of the image is read when
    it is its turn, and `memory` also holds the rows that are being made. Arguments are those of
    `predict`, with three differences: the image is ``(1, C, H, W)`` float32 in ``[0, 1]``, a gray
    result is repeated to `num_channels` channels, and the image may be a number of small images of
    equal size, `stacked` one below the other. Each of these is a tile without a border, and the
    network gets many at once; each gives one strip.
    """
    _check_noise_level(network, noise_std)
    is_grey = _is_grey(network, image)
    num_channels = num_channels or (1 if is_grey else network.out_channels)
    if network.takes_noise_level and not is_grey:
        image = gray_if_equal(image)
        is_grey = image.shape[1] < network.out_channels
    if is_grey and noise_std is not None:
        noise_std *= GRAY_NOISE_FACTOR
    return Strips(
        network,
        image if noise_std is None else _NoiseMapped(image, noise_std),
        num_channels=num_channels,
        engine=TorchEngine(network) if engine is None else engine,
        is_grey=is_grey,
        tile=tile,
        stacked=stacked,
        memory=memory,
        progress=progress,
    )


class Strips(Iterator[Prediction]):
    """The rows of a result from top to bottom, computed as they are asked for.

    Attributes:
        shape: Shape of the whole mean.
        num_tiles: Tiles that were run so far. A tile that did not fit the memory of the device and
            was cut counts as its parts: the network saw the whole image only where this is 1 in
            the end.
    """

    def __init__(
        self,
        network: Network,
        image: Image,
        *,
        engine: Engine,
        num_channels: int | None = None,
        is_grey: bool = False,
        tile: int | None = None,
        stacked: int = 1,
        memory: int = DEFAULT_MEMORY,
        progress: Progress | None = None,
    ) -> None:
        self.network, self.image, self.engine = network, image, engine
        self.is_grey, self.tile, self.memory = is_grey, tile, memory
        self.stacked = stacked
        self.progress = progress
        height, width = image.shape[-2:]
        self.num_channels = num_channels or network.out_channels
        self.shape = (1, self.num_channels, height * network.scale, width * network.scale)
        self.num_tiles = 0
        self._tiles = self._plan(height, width)
        self._strips = self._generate(height, width)

    def __next__(self) -> Prediction:
        """Return the next rows."""
        return next(self._strips)

    def _plan(self, height: int, width: int) -> list[Tile]:
        network, side = self.network, self.tile
        if self.stacked > 1:
            return stacked_tiles(self.stacked, height // self.stacked, width)
        if side is None and network.info.is_black_box:
            side = max(height, width)  # its answer to a whole picture is what was asked for
        elif side is None:
            side = tile_for_memory(network, memory=self.memory, width=width)
        # Tiles that are approximate anyway need not use one algorithm for all convolutions.
        smallest = 1 if network.receptive_radius is None else SMALL_CONVOLUTION + 1
        return plan_tiles(
            height,
            width,
            tile=side,
            border=border_of(network),
            multiple=network.size_multiple,
            least=max(1, min(smallest, self.memory // bytes_per_pixel(network))),
        )

    def _generate(self, height: int, width: int) -> Iterator[Prediction]:
        is_stack = self.stacked > 1
        overlap = 0 if is_stack else overlap_of(self.network)
        stitcher = Stitcher(self.network, height, width, is_grey=self.is_grey, overlap=overlap)
        together = self.engine.batches or is_stack
        num_pixels = self.memory // bytes_per_pixel(self.network) if together else 0
        num_done = 0
        for batch in _batches(self._tiles, num_pixels):
            pieces = torch.cat([_read(self.image, tile, is_grey=self.is_grey) for tile in batch])
            for tile, result in zip(batch, self._run(pieces), strict=True):
                strip = stitcher.paste(tile, result)
                num_done += 1
                if self.progress:
                    self.progress(num_done, len(self._tiles))
                if strip is not None:
                    yield _with_channels(strip, self.num_channels)

    def _run(self, pieces: Tensor) -> list[Prediction]:
        """Run equal tiles together, or one by one or in parts where they do not fit the device."""
        prediction = _attempt(self.engine, pieces)
        if prediction is not None:
            self.num_tiles += len(pieces)
            mean, sigma = prediction
            sigmas = [None] * len(mean) if sigma is None else sigma[:, None]
            return [Prediction(*parts) for parts in zip(mean[:, None], sigmas, strict=True)]
        if len(pieces) > 1:
            return [result for piece in pieces[:, None] for result in self._run(piece)]
        return [self._run_in_parts(pieces)]

    def _run_in_parts(self, piece: Tensor) -> Prediction:
        side = 0 if self.tile is not None else max(piece.shape[-2:]) // 2
        while side:
            # To the network a tile is an image, so it can be cut into tiles like one.
            parts = Strips(self.network, piece, engine=self.engine, tile=side, memory=self.memory)
            with suppress(_TileError):
                result = collect_strips(parts, parts.shape)
                self.num_tiles += parts.num_tiles
                return result
            side //= 2
        raise _TileError(
            f"a tile of {piece.shape[-1]} x {piece.shape[-2]} pixels, border included, is too "
            f"large for the memory of {self.engine.device}; set `memory` or `tile` to less"
        )


def _require_network(network: object) -> None:
    if not isinstance(network, Network):
        name = type(network).__name__
        raise ConfigError(f"predict takes a network, got {name}; a model has its own predict")


def progress_of_part(progress: Progress | None, index: int, num_parts: int) -> Progress | None:
    """Return a callback for one of several images; all of them have as many tiles as this one.

    Args:
        progress: Called with the number of tiles done and the number in all, over all images.
        index: Of the image, from 0.
        num_parts: How many images there are.
    """
    if progress is None:
        return None
    return lambda done, total: progress(index * total + done, num_parts * total)


def _concatenate(predictions: list[Prediction]) -> Prediction:
    if len(predictions) == 1:
        return predictions[0]
    means, sigmas = zip(*predictions, strict=True)
    return Prediction(torch.cat(means), None if sigmas[0] is None else torch.cat(sigmas))


class _NoiseMapped:
    """An image with its noise level as a further channel, added tile by tile."""

    def __init__(self, image: Image, noise_std: float) -> None:
        self.image, self.noise_std = image, noise_std
        batch, channels, *size = image.shape
        self.shape = (batch, channels + 1, *size)

    def __getitem__(self, part: Any) -> Tensor:
        return with_noise_map(self.image[part], self.noise_std)


def _check_noise_level(network: Network, noise_std: float | None) -> None:
    if not network.takes_noise_level:
        if noise_std is not None:
            raise ConfigError("the network takes no noise level; leave `noise_std` out")
        return
    if noise_std is None:
        raise ConfigError("the network takes the noise level; give `noise_std` in 8-bit levels")
    if not _is_level(noise_std):
        raise ConfigError(f"`noise_std` must be zero or a positive number, got {noise_std!r}")


def _is_level(value: object) -> bool:
    return isinstance(value, SupportsFloat) and 0 <= float(value) < math.inf


def with_noise_map(image: Tensor, noise_std: float) -> Tensor:
    """Append a channel that holds the noise level, on the scale of the image."""
    level = torch.full_like(image[:, :1], noise_std / 255)
    return torch.cat([image, level], dim=1)


def _is_grey(network: Network, image: Image) -> bool:
    """Say whether a gray image meets a color network, or why image and network do not fit."""
    shape = tuple(image.shape)
    if len(shape) != 4 or shape[0] != 1 or 0 in shape:
        raise ImageError(f"expected one image (1, C, H, W), got shape {shape}")
    num_colors = network.in_channels - network.takes_noise_level
    if shape[1] == 1 and network.out_channels == 3:
        return True
    if shape[1] == 3 and network.out_channels == 1:
        raise ImageError(
            "the image has colors and the network is for gray ones; use a network for color, "
            "such as drunet, or turn the image into gray"
        )
    if shape[1] != num_colors:
        raise ImageError(f"the network takes {num_colors} channels and the image has {shape[1]}")
    return False


def _read(image: Image, tile: Tile, *, is_grey: bool) -> Tensor:
    rows, columns = tile.rows, tile.columns
    piece = image[..., rows.read_start : rows.read_stop, columns.read_start : columns.read_stop]
    if is_grey:
        piece = torch.cat([match_channels(piece[:, :1], 3), piece[:, 1:]], dim=1)
    return piece


def _with_channels(strip: Prediction, num_channels: int) -> Prediction:
    """Repeat the rows of a gray result, where an image of equal channels comes back as it came."""
    mean, sigma = strip
    sigma = None if sigma is None else match_channels(sigma, num_channels)
    return Prediction(match_channels(mean, num_channels), sigma)


def _batches(tiles: list[Tile], max_pixels: int) -> Iterator[list[Tile]]:
    """Yield neighbors of equal size together, as long as they read at most `max_pixels`."""

    def size(tile: Tile) -> tuple[int, int]:
        spans = tile.rows, tile.columns
        height, width = (span.read_stop - span.read_start for span in spans)
        return height, width

    for (height, width), equal in itertools.groupby(tiles, size):
        equal_tiles = list(equal)
        count = max(1, max_pixels // (height * width))
        for start in range(0, len(equal_tiles), count):
            yield equal_tiles[start : start + count]


class _TileError(ConfigError):
    """A tile that is too large for the device."""


class _RunError(ConfigError):
    """A network that can be built, but not run."""

    def __init__(self, error: Exception) -> None:
        reason = f"{type(error).__name__}: {first_line(error)}"
        hint = "its settings may not fit one another; --debug shows where"
        super().__init__(f"the network cannot be run ({reason}); {hint}")


def _attempt(engine: Engine, pieces: Tensor) -> Prediction | None:
    """Run an engine; return `None` where the memory of its device is too small."""
    # The error must be gone before the next attempt: it keeps what filled the memory alive.
    try:
        return engine(pieces)
    except MusigmaError:
        raise
    except Exception as error:
        if not is_out_of_memory(error):
            raise _RunError(error) from error
        return None


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error says that the memory of a device or of the host is used up."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return any(mark in str(error) for mark in _OUT_OF_MEMORY)
