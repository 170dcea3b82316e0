"""Join the results of tiles to rows of the whole result, from top to bottom."""

from collections.abc import Iterable

import torch
from torch import Tensor

from musigma.functional.finite import is_finite
from musigma.networks import Network
from musigma.prediction.tiling import Span, Tile
from musigma.types import ImageError, Prediction


class Stitcher:
    """Holds the rows of a result that are being made, and hands out those that are finished.

    Tiles come in rows, each from left to right. A value belongs to one tile, unless tiles of the
    network are approximate: then neighbors overlap, and the weight of a tile falls linearly from 1
    to 0 across the overlap. The weights of all tiles at a pixel add up to 1.

    Args:
        network: What made the results.
        height: Height of the image.
        width: Width of the image.
        is_grey: Whether the result is the mean of the channels.
        overlap: How far tiles reach into each other, from `musigma.prediction.tiling.overlap_of`.
    """

    def __init__(
        self, network: Network, height: int, width: int, *, is_grey: bool, overlap: int
    ) -> None:
        self.network, self.height, self.width, self.is_grey = network, height, width, is_grey
        self.overlap = overlap
        self.top = 0  # first row of the window, in pixels of the result
        self.window: Tensor | None = None  # (1 or 2 for mean and sigma, C, rows, width)

    def paste(self, tile: Tile, result: Prediction) -> Prediction | None:
        """Put the result of a tile in its place; return the rows that this finishes, if any.

        Raises:
            ImageError: If values of these rows are not finite.
        """
        rows = _Placement(tile.rows, self.height, self.overlap, self.network.scale)
        columns = _Placement(tile.columns, self.width, self.overlap, self.network.scale)
        values = torch.cat([part for part in result if part is not None])
        values = values[..., rows.source, columns.source].float().cpu()
        window = self._window_down_to(rows.stop, num_parts=len(values))
        target = window[..., rows.start - self.top : rows.stop - self.top, columns.target]
        if self.overlap:
            target += values * rows.weight()[:, None] * columns.weight()
        else:
            target.copy_(values)
        if tile.columns.stop < self.width:
            return None
        num_waiting = 0 if tile.rows.stop == self.height else self.overlap
        finished = (tile.rows.stop - num_waiting) * self.network.scale
        return self._take(finished) if finished > self.top else None

    def _window_down_to(self, bottom: int, *, num_parts: int) -> Tensor:
        old = self.window
        num_rows = 0 if old is None else old.shape[2]
        if old is None or self.top + num_rows < bottom:
            width = self.width * self.network.scale
            grown = _zeros(num_parts, self.network.out_channels, bottom - self.top, width)
            if old is not None:
                grown[:, :, :num_rows] = old
            self.window = old = grown
        return old

    def _take(self, bottom: int) -> Prediction:
        assert self.window is not None
        num_rows = bottom - self.top
        done, rest = self.window[:, :, :num_rows], self.window[:, :, num_rows:]
        # A copy, so that the few rows that wait for the next tiles do not keep the window alive.
        self.window = rest.clone() if rest.shape[2] else None
        self.top = bottom
        # The smallest and the largest value are enough, and need no memory, as a mask would.
        if not is_finite(done):
            raise ImageError("the network returned values that are not finite; check its weights")
        if self.is_grey:
            done = done.mean(1, keepdim=True)
        return Prediction(done[:1], done[1:] if len(done) > 1 else None)


class _Placement:
    """Where the values of a tile go along one axis, in pixels of the result.

    Attributes:
        start, stop: The pixels of the result that the tile writes.
        target: The same as a slice.
        source: The slice of the tile's own result that goes there.
    """

    def __init__(self, span: Span, length: int, overlap: int, scale: int) -> None:
        self.span, self.length, self.overlap, self.scale = span, length, overlap, scale
        self.start = max(0, span.start - overlap) * scale
        self.stop = min(length, span.stop + overlap) * scale
        self.target = slice(self.start, self.stop)
        origin = span.read_start * scale
        self.source = slice(self.start - origin, self.stop - origin)

    def weight(self) -> Tensor:
        """The rise at the start of the span less the rise at its end: neighbors add up to 1."""
        pixels = (torch.arange(self.start, self.stop, dtype=torch.float64) + 0.5) / self.scale
        weight = self._rise(pixels, self.span.start) if self.span.start > 0 else 1.0
        falling = self._rise(pixels, self.span.stop) if self.span.stop < self.length else 0.0
        return (weight - falling + torch.zeros_like(pixels)).float()

    def _rise(self, pixels: Tensor, middle: int) -> Tensor:
        return ((pixels - middle) / (2 * self.overlap) + 0.5).clamp(0, 1)


def collect_strips(strips: Iterable[Prediction], shape: tuple[int, int, int, int]) -> Prediction:
    """Join strips of rows to a result of a shape that is known from the start."""
    whole = [_zeros(*shape)]
    top = 0
    for strip in strips:
        parts = [part for part in strip if part is not None]
        if len(whole) < len(parts):
            whole.append(_zeros(*shape))
        for target, rows in zip(whole, parts, strict=True):
            target[:, :, top : top + rows.shape[2]] = rows
        top += parts[0].shape[2]
    return Prediction(*whole)


def _zeros(*shape: int) -> Tensor:
    try:
        return torch.zeros(shape)
    except RuntimeError as error:
        text = f"a result of {shape[-1]} x {shape[-2]} pixels does not fit the memory"
        raise ImageError(f"{text}; cut the picture into parts") from error
