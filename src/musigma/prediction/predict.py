"""From an image to its prediction: the one path that commands, evaluation and training share."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Protocol

import torch
from torch import Tensor

from musigma.functional.color import match_channels
from musigma.networks import Network
from musigma.prediction.engines.base import Engine
from musigma.prediction.engines.pytorch import TorchEngine
from musigma.prediction.stitching import Canvas, gather
from musigma.prediction.tiling import (
    SMALL,
    Tile,
    border_of,
    bytes_per_pixel,
    plan_tiles,
    tile_for_memory,
)
from musigma.types import ConfigError, ImageError, Prediction

DEFAULT_MEMORY = 2 * 2**30
Progress = Callable[[int, int], None]


class Image(Protocol):
    """A tensor ``(1, C, H, W)``, or what gives one where it is looked at."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole."""
        ...

    def __getitem__(self, part: Any, /) -> Tensor:
        """Return a part as float32 in ``[0, 1]``."""
        ...


def predict(
    network: Network,
    image: Tensor,
    *,
    noise_std: float | None = None,
    engine: Engine | None = None,
    tile: int | None = None,
    memory: int = DEFAULT_MEMORY,
    progress: Progress | None = None,
) -> Prediction:
    """Restore one image, tile by tile; image and result stay in host memory.

    A grey image goes through a colour network as three equal channels and comes back grey.

    Args:
        network: In evaluation mode, on the device where it should run.
        image: ``(1, C, H, W)`` float32 in ``[0, 1]``.
        noise_std: Noise level in 8-bit levels, for a network that takes one, and only for it.
        engine: What runs the network; by default PyTorch in float32, where tiles of a network with
            a radius give what the whole image gives, to the bit on a CPU.
        tile: Largest side of a tile; by default what `memory` allows, and less where a tile turns
            out to be too large for the device.
        memory: Bytes that the forward pass of a tile may need.
        progress: Called after each tile with the number done and the number in all.
    """
    strips = predict_strips(
        network,
        image,
        noise_std=noise_std,
        engine=engine,
        tile=tile,
        memory=memory,
        progress=progress,
    )
    return gather(strips, result_shape(network, image))


def predict_strips(
    network: Network,
    image: Image,
    *,
    noise_std: float | None = None,
    engine: Engine | None = None,
    tile: int | None = None,
    memory: int = DEFAULT_MEMORY,
    progress: Progress | None = None,
) -> Iterator[Prediction]:
    """Yield what `predict` returns from top to bottom, some rows at a time.

    Neither the image nor the result need be in memory as a whole: a tile of the image is read when
    it is its turn, and `memory` holds the rows that are being made, too.
    """
    grey = _is_grey(network, image)
    image = _with_noise_level(network, image, noise_std)
    height, width = image.shape[-2:]
    side = tile_for_memory(network, memory=memory, width=width) if tile is None else tile
    # Where no tile is exact, there is no arithmetic to keep.
    exact = SMALL + 1 if network.receptive_radius is not None else 1
    tiles = plan_tiles(
        height,
        width,
        tile=side,
        border=border_of(network),
        multiple=network.size_multiple,
        least=max(1, min(exact, memory // bytes_per_pixel(network))),
    )
    engine = TorchEngine(network) if engine is None else engine
    canvas = Canvas(network, height, width, grey=grey)
    number = 0
    for batch in _batches(tiles, memory // bytes_per_pixel(network) if engine.batches else 0):
        pieces = torch.cat([_read(image, one, grey=grey) for one in batch])
        for one, result in zip(batch, _run(network, engine, pieces, tile, memory), strict=True):
            strip = canvas.paste(one, result)
            number += 1
            if progress:
                progress(number, len(tiles))
            if strip is not None:
                yield strip


def result_shape(network: Network, image: Image) -> tuple[int, int, int, int]:
    """Return the shape of the mean, or say why an image is none for the network."""
    channels = 1 if _is_grey(network, image) else network.out_channels
    return 1, channels, image.shape[-2] * network.scale, image.shape[-1] * network.scale


class _NoiseMapped:
    """An image with its noise level as a further channel, added tile by tile."""

    def __init__(self, image: Image, noise_std: float) -> None:
        self.image, self.noise_std = image, noise_std
        batch, channels, *size = image.shape
        self.shape = (batch, channels + 1, *size)

    def __getitem__(self, part: Any) -> Tensor:
        return with_noise_map(self.image[part], self.noise_std)


def _with_noise_level(network: Network, image: Image, noise_std: float | None) -> Image:
    if network.takes_noise_level:
        if noise_std is None:
            raise ConfigError("the network takes the noise level; give noise_std in 8-bit levels")
        return _NoiseMapped(image, noise_std)
    if noise_std is not None:
        raise ConfigError("the network takes no noise level; leave noise_std out")
    return image


def with_noise_map(image: Tensor, noise_std: float) -> Tensor:
    """Append a channel that holds the noise level, on the scale of the image."""
    level = torch.full_like(image[:, :1], noise_std / 255)
    return torch.cat([image, level], dim=1)


def _is_grey(network: Network, image: Image) -> bool:
    """Say whether a grey image meets a colour network, or why image and network do not fit."""
    shape = tuple(image.shape)
    if len(shape) != 4 or shape[0] != 1 or 0 in shape:
        raise ImageError(f"expected one image (1, C, H, W), got shape {shape}")
    num_colours = network.in_channels - network.takes_noise_level
    if shape[1] == 1 and network.out_channels == 3:
        return True
    if shape[1] == 3 and network.out_channels == 1:
        raise ImageError(
            "the image has colours and the network is for grey ones; use a network for colour, "
            "such as drunet, or turn the image into grey"
        )
    if shape[1] != num_colours:
        raise ImageError(f"the network takes {num_colours} channels and the image has {shape[1]}")
    return False


def _read(image: Image, tile: Tile, *, grey: bool) -> Tensor:
    rows, columns = tile.rows, tile.columns
    piece = image[..., rows.read_start : rows.read_stop, columns.read_start : columns.read_stop]
    if grey:
        piece = torch.cat([match_channels(piece[:, :1], 3), piece[:, 1:]], dim=1)
    return piece


def _batches(tiles: list[Tile], most: int) -> Iterator[list[Tile]]:
    """Yield neighbours of equal size together, as long as they read at most so many pixels."""

    def size(tile: Tile) -> tuple[int, int]:
        spans = tile.rows, tile.columns
        height, width = (span.read_stop - span.read_start for span in spans)
        return height, width

    for (height, width), equal in itertools.groupby(tiles, size):
        rest = list(equal)
        count = max(1, most // (height * width))
        yield from (rest[start : start + count] for start in range(0, len(rest), count))


class _TileError(ConfigError):
    """A tile that is too large for the device."""


def _run(
    network: Network, engine: Engine, pieces: Tensor, tile: int | None, memory: int
) -> list[Prediction]:
    """Run equal tiles, one by one or in smaller ones where they do not fit the device."""
    found = _attempt(engine, pieces)
    if found is not None:
        mean, sigma = found
        sigmas = [None] * len(mean) if sigma is None else sigma[:, None]
        return [Prediction(*parts) for parts in zip(mean[:, None], sigmas, strict=True)]
    if len(pieces) > 1:
        parts = [_run(network, engine, piece, tile, memory) for piece in pieces[:, None]]
        return [part for (part,) in parts]
    side = 0 if tile is not None else max(pieces.shape[-2:]) // 2
    while side:
        # To the network a tile is an image: cut up, it gives what it would have given whole.
        with suppress(_TileError):
            return [predict(network, pieces, engine=engine, tile=side, memory=memory)]
        side //= 2
    raise _TileError(
        f"a tile of {pieces.shape[-1]} x {pieces.shape[-2]} pixels, border included, is too large "
        f"for {engine.device}; give less --memory, or a smaller --tile"
    )


def _attempt(engine: Engine, pieces: Tensor) -> Prediction | None:
    # The error must be gone before the next attempt: it keeps what filled the memory alive.
    try:
        return engine(pieces)
    except torch.OutOfMemoryError:
        return None
