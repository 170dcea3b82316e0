"""The error that saving adds to a result: rounding to 8 or 16 bits, and the loss of JPEG and WebP.

An interval is computed for the float mean of a network. The file holds other values, and they are
known when it is written. The error of a value of the file is that of the mean plus that of saving.
Their variances add up, and the interval grows as the standard deviation does:

    std' = sqrt(std^2 + mean square of the saving error nearby)
    half_width' = half_width std' / std
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from musigma.images.image_io import BAND
from musigma.restoration.error_maps import Quantity
from musigma.types import Prediction

BLOCK = 8
"""Side of the boxes over which the saving error is averaged: that of the blocks of JPEG."""

_LARGEST_RATIO = 2.0  # of half_width and std, for values that the network takes for certain


def with_saving_error(
    maps: dict[Quantity, Tensor], mean: Tensor, stored: Tensor
) -> dict[Quantity, Tensor]:
    """Return error maps of the values that a file holds.

    Args:
        maps: Error maps of the mean. `sigma`, which is what the network says, stays as it is.
        mean: The mean, ``(1, C, H, W)``.
        stored: What the file holds instead, in the same shape.

    Example:
        >>> mean, stored = torch.zeros(1, 1, 8, 8), torch.full((1, 1, 8, 8), 0.3)
        >>> maps = {"std": torch.full_like(mean, 0.4), "half_width": torch.full_like(mean, 0.8)}
        >>> widened = with_saving_error(maps, mean, stored)
        >>> round(float(widened["std"].max()), 6), round(float(widened["half_width"].max()), 6)
        (0.5, 1.0)
    """
    if "std" not in maps:
        return maps
    variance = _mean_square_nearby(stored - mean.clamp(0, 1))
    std, half_width = maps["std"], maps["half_width"]
    ratio = torch.where(std > 0, half_width / std, _LARGEST_RATIO)
    widened = (std.square() + variance).sqrt()
    return maps | {"std": widened, "half_width": ratio * widened}


class Bands:
    """Cuts strips of any height into bands of `BAND` rows, as the encoders take them.

    The blocks of a JPEG then lie inside a band, so that what the file will hold can be computed for
    each band alone.
    """

    def __init__(self) -> None:
        self._rest: Prediction | None = None

    def add(self, strip: Prediction) -> Iterator[Prediction]:
        """Add rows; yield the bands that are complete."""
        if self._rest is not None:
            missing = BAND - self._rest.mean.shape[2]
            strip, first = _rows(strip, missing, None), _rows(strip, 0, missing)
            self._rest = _join(self._rest, first)
            if self._rest.mean.shape[2] == BAND:
                yield self._rest
                self._rest = None
        height = strip.mean.shape[2]
        complete = height - height % BAND
        for top in range(0, complete, BAND):
            yield _rows(strip, top, top + BAND)
        if complete < height:
            # A copy, so that a few rows do not keep the whole strip in memory.
            self._rest = _join(_rows(strip, complete, None))

    def last(self) -> Iterator[Prediction]:
        """Yield the rows that fill no band."""
        if self._rest is not None:
            yield self._rest
            self._rest = None


def _rows(strip: Prediction, start: int, stop: int | None) -> Prediction:
    sigma = None if strip.sigma is None else strip.sigma[:, :, start:stop]
    return Prediction(strip.mean[:, :, start:stop], sigma)


def _join(*strips: Prediction) -> Prediction:
    mean = torch.cat([strip.mean for strip in strips], 2)
    sigmas = [strip.sigma for strip in strips if strip.sigma is not None]
    return Prediction(mean, torch.cat(sigmas, 2) if sigmas else None)


def _mean_square_nearby(error: Tensor) -> Tensor:
    height, width = error.shape[2:]
    means = avg_pool2d(error.square(), BLOCK, ceil_mode=True, count_include_pad=False)
    means = means.repeat_interleave(BLOCK, 2)[:, :, :height]
    return means.repeat_interleave(BLOCK, 3)[:, :, :, :width]
