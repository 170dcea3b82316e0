"""Tiles that give what the whole image would give: each is read with the border it depends on.

What is promised about tiles, for every network with a finite receptive radius, on any device:

- The arithmetic is the same as for the whole image. With numbers that float32 does not round, tiles
  and the whole image are equal to the bit.
- In float32, no value differs by more than `TILE_TOLERANCE` times the largest value. The libraries
  below PyTorch choose the order of a sum, and the routine for the last values of a row, by the size
  of the image and by the processor; both change the rounding.

Most networks do better. On one AMD processor, also limited to AVX2 and to SSE4.1 instructions,
tiles of edsr-baseline x2 and drunet-small were equal to the bit for one image and one tile size.
That is a measurement, not a promise; ``make test-everywhere`` prints it for the machine at hand.

Tiles of networks that see the whole image (no receptive radius) are approximate.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from musigma.networks import Network
from musigma.types import ConfigError

TILE_TOLERANCE = 1e-5
"""Largest difference between tiles and the whole image, as a share of the largest value."""

SMALL_CONVOLUTION = 20_480
"""Values up to which PyTorch's CPU convolutions use another algorithm, with other rounding.

Tiles read more pixels than this, so that they are computed by the algorithm of the whole image.
"""

MAX_TILE = 1024
"""Side of the largest tile that is chosen by default: larger ones save little and take long."""

GLOBAL_BORDER = 32
"""Border, in pixels, around a tile of a network that sees the whole image: no border is exact."""

GLOBAL_OVERLAP = 16
"""How far such a tile is blended into its neighbors, beyond its own pixels."""


@dataclass(frozen=True)
class Span:
    """A tile along one axis.

    Attributes:
        start, stop: The pixels the tile is responsible for.
        read_start, read_stop: The pixels it reads.
    """

    start: int
    stop: int
    read_start: int
    read_stop: int


@dataclass(frozen=True)
class Tile:
    """A rectangle of the image."""

    rows: Span
    columns: Span


def plan_tiles(
    height: int, width: int, *, tile: int, border: int, multiple: int = 1, least: int = 1
) -> list[Tile]:
    """Cut an image into tiles of at most ``tile`` pixels a side, borders not counted.

    Args:
        height: Height of the image.
        width: Width of the image.
        tile: Largest side of a tile.
        border: How far a tile reads beyond its own pixels, where there are any.
        multiple: Tiles read from multiples of this, where a network divides the image into cells.
        least: Fewest pixels that a tile reads, unless the image itself has fewer.

    Example:
        >>> [span.rows.read_start for span in plan_tiles(100, 8, tile=50, border=3)]
        [0, 47]
    """
    if tile < 1:
        raise ConfigError(f"a tile must have at least one pixel, got {tile}")
    side = math.isqrt(least - 1) + 1
    shortest = (max(side, math.ceil(least / width)), max(side, math.ceil(least / height)))
    rows = list(_spans(height, tile, border, multiple, shortest[0]))
    columns = list(_spans(width, tile, border, multiple, shortest[1]))
    return [Tile(row, column) for row in rows for column in columns]


def stacked_tiles(count: int, height: int, width: int) -> list[Tile]:
    """Return one tile for each of some images of equal size that lie one below the other.

    Example:
        >>> [tile.rows.read_start for tile in stacked_tiles(3, 8, 6)]
        [0, 8, 16]
    """
    tops = range(0, count * height, height)
    return [Tile(Span(t, t + height, t, t + height), Span(0, width, 0, width)) for t in tops]


def tile_for_memory(network: Network, *, memory: int, width: int = 0) -> int:
    """Return the side of the largest tile, up to `MAX_TILE`, that should fit a number of bytes.

    Args:
        network: What runs.
        memory: Bytes for the forward pass and, where a width is given, for the rows of the result
            that are being made or written to a file.
        width: Width of the image.
    """
    # What a tile reads beyond its own pixels, at most: networks with cells begin and end with one.
    border = 2 * (border_of(network) + network.size_multiple - 1)
    per_pixel, per_row = bytes_per_pixel(network), bytes_per_row(network, width)
    fixed = 4 * network.fixed_activation_floats
    # The larger root of per_pixel (side + border)^2 + per_row side + fixed = memory, for
    # side + border.
    half = per_row / (2 * per_pixel)
    rest = max(0, memory - fixed)
    side = math.floor(math.sqrt(half**2 + (rest + per_row * border) / per_pixel) - half)
    if side <= border:
        needed = least_memory_for_tiles(network, width=width)
        raise ConfigError(
            f"{memory / 2**20:.0f} MiB are too few for one tile with its border of "
            f"{border_of(network)} pixels; set `memory` to at least "
            f"{math.ceil(needed / 2**20)} MiB"
        )
    return min(side - border, MAX_TILE)


def least_memory_for_tiles(network: Network, *, width: int = 0) -> int:
    """Return the bytes that the smallest tile needs; arguments are those of `tile_for_memory`.

    A black box gets whole pictures, and nobody knows what it needs; only the rows are counted.
    """
    if network.info.is_black_box:
        return bytes_per_row(network, width)
    border = 2 * (border_of(network) + network.size_multiple - 1)
    fixed = 4 * network.fixed_activation_floats
    return bytes_per_pixel(network) * (border + 1) ** 2 + bytes_per_row(network, width) + fixed


def bytes_per_pixel(network: Network) -> int:
    """Estimate the memory a forward pass needs for each pixel of the input, in float32.

    Most networks need most memory where they enlarge the features: for the input and the output of
    the last step together, and as much again for the workspace of the convolution. Networks that
    need more state it in ``activation_floats_per_pixel``.
    """
    enlarged = network.feature_channels * max(network.feature_scale, network.scale) ** 2
    usual = 4 * max(enlarged, 4 * network.feature_channels)
    return 4 * max(usual, network.activation_floats_per_pixel)


def bytes_per_row(network: Network, width: int) -> int:
    """Return the memory of the results that belong to one row of the input, while they are moved.

    They are there twice: one strip is written while the next is made.
    """
    num_parts = 1 + network.has_sigma
    return 2 * num_parts * 4 * network.out_channels * width * network.scale**2


def overlap_of(network: Network) -> int:
    """Return how far tiles are blended into each other: not at all where they are exact."""
    return GLOBAL_OVERLAP if network.receptive_radius is None else 0


def border_of(network: Network) -> int:
    """Return how far a tile must read beyond its own pixels."""
    return GLOBAL_BORDER if network.receptive_radius is None else network.receptive_radius


def _spans(length: int, tile: int, border: int, multiple: int, shortest: int) -> Iterator[Span]:
    count = math.ceil(length / tile)
    # Tiles of nearly one size, so that no sliver is left at the end.
    size = math.ceil(length / count)
    for start in range(0, length, size):
        stop = min(start + size, length)
        read_start = max(0, min(start - border, length - shortest)) // multiple * multiple
        read_stop = min(length, max(stop + border, read_start + shortest))
        yield Span(start, stop, read_start, read_stop)
