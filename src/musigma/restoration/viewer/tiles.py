"""Pictures and error maps as the viewer reads them: JPEG or PNG tiles at several sizes.

The tiles are encoded while the rows arrive, so that a large picture is never in memory as a whole.
"""

import base64
import io
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from musigma.functional.color import to_uint8
from musigma.images.box_downsample import BoxDownsampler

Size = tuple[int, int]
"""Height and width."""

TILE = 512
"""Side of a tile, in pixels."""

SHRINK = 3
"""Each level is smaller than the one before by this factor."""

OVERVIEW_SIDE = 1400
"""There are levels until the longer side is at most this."""

OVERVIEW_WEIGHT = 1.5
"""Bytes per pixel of a smaller level, relative to the first: it has more detail in each pixel."""

QUALITIES = (95, 92, 88, 84, 78, 70, 60, 50, 40)
"""JPEG qualities, from which the first one that keeps to the budget is taken."""

READ_SHARE = 0.95
"""The share of samples for which `Layer.read_error` holds."""

_MEASURED = 4  # the error of every fourth tile is measured


def error_code(levels: Tensor) -> Tensor:
    """Return error levels of 255 as bytes, ``255 / 8 log2(1 + level)``, rounded.

    Large errors need coarser steps than small ones: one step is 2.2 % of ``1 + level``.

    Example:
        >>> error_code(torch.tensor([0.0, 1.0, 10.0, 255.0, 400.0]))
        tensor([  0,  32, 110, 255, 255], dtype=torch.uint8)
    """
    return (255 / 8 * torch.log2(1 + levels.clamp(0, 255))).round().to(torch.uint8)


def error_level(code: Tensor) -> Tensor:
    """Return the level that a byte of `error_code` stands for.

    Example:
        >>> [round(float(level), 2) for level in error_level(torch.tensor([0, 32, 255]))]
        [0.0, 1.01, 255.0]
    """
    return 2 ** (code.float() * 8 / 255) - 1


def shrunk(size: Size, factor: int) -> Size:
    """Return the size of an image of box averages; boxes end where the image ends.

    Example:
        >>> shrunk((4, 7), 3)
        (2, 3)
    """
    return math.ceil(size[0] / factor), math.ceil(size[1] / factor)


def level_factors(size: Size) -> list[int]:
    """Return by how much each stored level is smaller than the layer.

    Example:
        >>> level_factors((3000, 4000)), level_factors((300, 400))
        ([1, 3], [1])
    """
    factors = [1]
    while max(shrunk(size, factors[-1])) > OVERVIEW_SIDE:
        factors.append(SHRINK * factors[-1])
    return factors


def weighted_pixels(size: Size) -> float:
    """Return the number of pixels of all levels, those of smaller levels with their weight."""
    first, *smaller = (math.prod(shrunk(size, factor)) for factor in level_factors(size))
    return first + OVERVIEW_WEIGHT * sum(smaller)


class Layer:
    """One picture in tiles, from rows that come from top to bottom.

    Args:
        size: Height and width of the picture.
        shrink: By how much the layer is smaller than the picture; its pixels are averages.
        bytes_per_pixel: A budget for the tiles, kept by the quality of the JPEGs; without it the
            tiles are PNG and nothing is lost.
        encode: Turns values into bytes; the smaller levels are averages of the values.

    Example:
        >>> layer = Layer((4, 5))
        >>> layer.add(torch.zeros(1, 3, 4, 5))
        >>> entries = layer.to_json()
        >>> entries["size"], entries["type"], len(entries["levels"][0]["tiles"])
        ([5, 4], 'image/png', 1)
    """

    def __init__(
        self,
        size: Size,
        *,
        shrink: int = 1,
        bytes_per_pixel: float | None = None,
        encode: Callable[[Tensor], Tensor] = to_uint8,
    ) -> None:
        self.size = shrunk(size, shrink)
        self._encode = encode
        self._type = "image/png" if bytes_per_pixel is None else "image/jpeg"
        self._levels = []
        for factor in level_factors(self.size):
            weight = 1.0 if factor == 1 else OVERVIEW_WEIGHT
            budget = None if bytes_per_pixel is None else weight * bytes_per_pixel
            self._levels.append((factor, BoxDownsampler(shrink * factor), _Tiles(budget)))

    def add(self, rows: Tensor) -> None:
        """Add the next rows, ``(1, C, rows, W)``."""
        for _, view, tiles in self._levels:
            view.add(rows)
            for part in view.take():
                tiles.add(self._encode(part))

    @property
    def read_error(self) -> int:
        """How many bytes a sample is off at most, for `READ_SHARE` of the samples."""
        return self._levels[0][2].read_error

    def to_json(self) -> dict[str, object]:
        """Return the layer after its last row, as the viewer expects it."""
        levels = []
        for factor, view, tiles in self._levels:
            for part in view.take(last=True):
                tiles.add(self._encode(part))
            texts = [base64.b64encode(tile).decode() for tile in tiles.finish()]
            levels.append({"factor": factor, "tiles": texts})
        return {"size": list(self.size[::-1]), "type": self._type, "levels": levels}


class _Tiles:
    """Cuts rows of bytes into tiles and encodes each row of tiles within the budget."""

    def __init__(self, bytes_per_pixel: float | None) -> None:
        self._budget = bytes_per_pixel
        self._rows: list[Tensor] = []
        self._tiles: list[bytes] = []
        self._allowed = 0.0  # bytes that the tiles so far may take
        self._first_quality = 0  # index of the quality that is tried first
        self._error_counts = np.zeros(256, np.int64)

    def add(self, rows: Tensor) -> None:
        self._rows.append(rows)
        if sum(part.shape[2] for part in self._rows) < TILE:
            return
        together = torch.cat(self._rows, dim=2)
        complete = together.shape[2] // TILE * TILE
        for top in range(0, complete, TILE):
            self._encode_band(together[:, :, top : top + TILE])
        self._rows = [together[:, :, complete:].clone()]

    def finish(self) -> list[bytes]:
        """Return all tiles, row by row."""
        rest = torch.cat(self._rows, dim=2) if self._rows else None
        self._rows = []
        if rest is not None and rest.shape[2]:
            self._encode_band(rest)
        return self._tiles

    @property
    def read_error(self) -> int:
        counts = self._error_counts.cumsum()  # all zero where nothing was lost
        return int(np.searchsorted(counts, READ_SHARE * counts[-1]))

    def _encode_band(self, band: Tensor) -> None:
        samples = band[0].permute(1, 2, 0).numpy()
        tiles = [samples[:, left : left + TILE] for left in range(0, samples.shape[1], TILE)]
        encoded = [_png(tile) for tile in tiles] if self._budget is None else self._jpegs(tiles)
        self._tiles += encoded

    def _jpegs(self, tiles: Sequence[NDArray[np.uint8]]) -> list[bytes]:
        """Encode a row of tiles; what it leaves of its budget goes to the rows below."""
        assert self._budget is not None
        self._allowed += self._budget * sum(tile.shape[0] * tile.shape[1] for tile in tiles)
        for index in range(self._first_quality, len(QUALITIES)):
            encoded = [_jpeg(tile, QUALITIES[index]) for tile in tiles]
            if sum(map(len, encoded)) <= self._allowed:
                break
        self._allowed -= sum(map(len, encoded))
        self._first_quality = max(0, index - 1)  # the next row may have less detail
        for number in range(len(self._tiles) % _MEASURED, len(tiles), _MEASURED):
            self._measure(tiles[number], encoded[number])
        return encoded

    def _measure(self, tile: NDArray[np.uint8], encoded: bytes) -> None:
        from PIL import Image

        with Image.open(io.BytesIO(encoded)) as image:
            decoded = np.asarray(image).reshape(tile.shape)
        difference = np.abs(decoded.astype(np.int16) - tile)
        self._error_counts += np.bincount(difference.ravel(), minlength=256)


def _png(samples: NDArray[np.uint8]) -> bytes:
    # Level 4 takes half as long again and saves a twelfth.
    return encoded_picture(samples, "PNG", compress_level=2)


def _jpeg(samples: NDArray[np.uint8], quality: int) -> bytes:
    return encoded_picture(samples, "JPEG", quality=quality, subsampling=0, optimize=True)


def encoded_picture(samples: NDArray[np.uint8], format_name: str, **options: object) -> bytes:
    """Return ``(H, W, 1 or 3)`` samples as a picture file."""
    from PIL import Image

    gray = samples.ndim == 3 and samples.shape[2] == 1
    buffer = io.BytesIO()
    picture = Image.fromarray(np.ascontiguousarray(samples[..., 0] if gray else samples))
    picture.save(buffer, format_name, **options)
    return buffer.getvalue()
