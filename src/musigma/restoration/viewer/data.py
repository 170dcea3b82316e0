"""What the viewer shows of a result: the pictures and error maps, as one JSON object.

``viewer.js`` says at its top what the object holds.
"""

import base64
import functools
import math
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from musigma.functional.color import match_channels, to_uint8
from musigma.functional.finite import is_finite
from musigma.functional.scores import check_share
from musigma.images.box_downsample import BoxDownsampler
from musigma.restoration.viewer.tiles import (
    OVERVIEW_SIDE,
    TILE,
    Layer,
    Size,
    encoded_picture,
    error_code,
    error_level,
    shrunk,
    weighted_pixels,
)
from musigma.types import ImageError

Quantity = Literal["sigma", "half_width", "error"]

LOSSLESS_PIXELS = 2**20
"""A result with at most this many pixels is stored without loss."""

MAX_PIXELS = 64_000_000
"""A result with more pixels is shown smaller, since a browser could not hold the page."""

BYTES_PER_PIXEL = 0.72
"""Bytes of all layers per pixel of a large result. In a page they take a third more."""

MAX_BYTES = 32_000_000
"""Bytes of all layers of a result, however large it is."""

PICTURE_WEIGHT = 3
"""Bytes per pixel of a picture relative to those of an error map, which is smoother."""

_THUMBNAIL_SIDE = 320
_MEANINGS: dict[Quantity, str] = {
    "sigma": "the absolute error that the network predicts, not calibrated",
    "half_width": "half the width of the interval around each value",
    "error": "the distance from the truth",
}


class Resolution(NamedTuple):
    """How exactly the viewer reads, for 95 % of the pixels.

    Attributes:
        value: Values of the result are off by at most this many levels of 255.
        before: The same for the input.
        error: Errors are off by at most this share of themselves, and as many levels.
    """

    value: int
    before: int
    error: float


class _Stored(NamedTuple):
    layer: Layer
    overview: BoxDownsampler  # small, for thumbnails and statistics


class ViewerData:
    """Collects input, result and error maps from rows that come from top to bottom.

    Args:
        size: Height and width of the result.
        before: Height and width of the input.
        num_channels: 1 or 3, of the result; the input is shown in as many.
        coverage: The share of values that the intervals should hold.

    Example:
        >>> data = ViewerData((4, 6), before=(2, 3), num_channels=3, coverage=0.9)
        >>> data.add_before(torch.rand(1, 3, 2, 3))
        >>> data.add(torch.rand(1, 3, 4, 6), half_width=torch.rand(1, 3, 4, 6))
        >>> sorted(data.to_json())
        ['channels', 'colors', 'full', 'layers', 'maps', 'shown', 'tile']
    """

    def __init__(
        self, size: Size, *, before: Size, num_channels: int, coverage: float | None = None
    ) -> None:
        self.size, self.before, self.num_channels = size, before, num_channels
        self.coverage = None if coverage is None else check_share("coverage", coverage)
        self._stored: dict[str, _Stored] = {}
        self._map_bytes = _map_bytes_per_pixel(shown_size(size), shown_size(before))

    def add_before(self, rows: Tensor) -> None:
        """Add the next rows of the input, ``(1, 1 or 3, rows, w)`` in ``[0, 1]``."""
        self._add_picture("input", match_channels(rows, self.num_channels), self.before)

    def add(
        self,
        mean: Tensor,
        *,
        sigma: Tensor | None = None,
        half_width: Tensor | None = None,
        error: Tensor | None = None,
        alpha: Tensor | None = None,
    ) -> None:
        """Add the next rows of the result, ``(1, C, rows, W)``.

        Args:
            mean: The result.
            sigma: The error that the network predicts.
            half_width: Half the width of the interval around the mean.
            error: The true absolute error.
            alpha: The opacity of the result, ``(1, 1, rows, W)``.
        """
        self._add_picture("result", mean, self.size)
        if alpha is not None:
            self._add_picture("alpha", alpha, self.size)
        for name, values in (("sigma", sigma), ("half_width", half_width), ("error", error)):
            if values is not None:
                self._add_map(name, 255 * values.detach().float().cpu())

    @property
    def shown(self) -> Size:
        """Height and width of the result in the viewer."""
        return shown_size(self.size)

    @property
    def quantities(self) -> list[Quantity]:
        """The error maps that were added, in the order in which they are offered."""
        return [quantity for quantity in _MEANINGS if quantity in self._stored]

    @property
    def resolution(self) -> Resolution:
        """How exactly values and errors can be read."""
        value, before = (self._stored[name].layer.read_error for name in ("result", "input"))
        steps = [0.5 + self._stored[name].layer.read_error for name in self.quantities]
        error = float(error_level(torch.tensor(max(steps, default=0.0))))
        return Resolution(value, before, error)

    @property
    def typical_half_width(self) -> float | None:
        """The median over the pixels of the interval's half-width, in levels of 255."""
        if "half_width" not in self._stored:
            return None
        return float(np.median(self._levels("half_width")))

    def to_json(self) -> dict[str, object]:
        """Return what ``viewer.js`` needs, after the last row."""
        pictures = [name for name in ("input", "result", "alpha") if name in self._stored]
        return {
            "shown": list(self.shown[::-1]),
            "full": list(self.size[::-1]),
            "channels": ["R", "G", "B"] if self.num_channels == 3 else ["Gray"],
            "tile": TILE,
            "colors": base64.b64encode(error_colors().tobytes()).decode(),
            "layers": {name: self._stored[name].layer.to_json() for name in pictures},
            "maps": [self._map_to_json(quantity) for quantity in self.quantities],
        }

    def name_of(self, quantity: Quantity) -> str:
        """Return the name of an error map, as a person reads it."""
        share = "" if self.coverage is None else f"{100 * self.coverage:g} % "
        names = {"sigma": "Sigma", "half_width": f"{share}interval", "error": "True error"}
        return names[quantity]

    @property
    def thumbnail_top(self) -> float | None:
        """The level of 255 that is brightest in the thumbnail of the error."""
        quantities = [name for name in self.quantities if name != "error"]
        return self._top(quantities[-1]) if quantities else None

    def thumbnails(self) -> dict[str, str]:
        """Return small JPEGs of input, result and error, as base64 text."""
        pictures = {name: self._stored[name].overview.result() for name in ("input", "result")}
        if "alpha" in self._stored:
            alpha = self._stored["alpha"].overview.result()
            pictures["result"] = alpha * pictures["result"] + (1 - alpha) * 0.8
        samples = {name: _samples(image) for name, image in pictures.items()}
        if quantities := [name for name in self.quantities if name != "error"]:
            levels, top = self._levels(quantities[-1]), self._top(quantities[-1])
            samples["error"] = error_colors()[(255 * np.minimum(levels / top, 1)).astype(np.uint8)]
        return {name: _thumbnail(image) for name, image in samples.items()}

    def _add_picture(self, name: str, rows: Tensor, size: Size) -> None:
        rows = rows.detach().float().cpu()
        if name not in self._stored:
            budget = None if self._map_bytes is None else PICTURE_WEIGHT * self._map_bytes
            layer = Layer(size, shrink=_shrink(size), bytes_per_pixel=budget)
            overview = BoxDownsampler(max(1, max(size) // _THUMBNAIL_SIDE))
            self._stored[name] = _Stored(layer, overview)
        for part in self._stored[name]:
            part.add(rows)

    def _add_map(self, name: str, levels: Tensor) -> None:
        if not is_finite(levels) or bool(levels.min() < 0):
            raise ImageError(f"{name} must be finite and not negative; check where it comes from")
        if name not in self._stored:
            budget, shrink = self._map_bytes, _shrink(self.size)
            layer = Layer(self.size, shrink=shrink, bytes_per_pixel=budget, encode=error_code)
            overview = BoxDownsampler(math.ceil(max(self.size) / OVERVIEW_SIDE))
            self._stored[name] = _Stored(layer, overview)
        self._stored[name].layer.add(levels)
        self._stored[name].overview.add(levels.mean(1, keepdim=True))

    def _map_to_json(self, quantity: Quantity) -> dict[str, object]:
        name = self.name_of(quantity)
        quantiles = np.percentile(self._levels(quantity), np.arange(101))
        return {
            "quantity": quantity,
            "name": name,
            "caption": f"{name} (levels of 255): {_MEANINGS[quantity]}",
            "top": self._top(quantity),
            "quantiles": [float(f"{level:.4g}") for level in quantiles],
            "layer": self._stored[quantity].layer.to_json(),
        }

    def _top(self, quantity: Quantity) -> float:
        """Return the end of the color scale; sigma and true error share one."""
        if quantity == "half_width":
            return round_top(self._levels(quantity))
        shared = [name for name in self.quantities if name != "half_width"]
        return max(round_top(self._levels(name)) for name in shared)

    def _levels(self, quantity: Quantity) -> NDArray[np.float32]:
        """Return the mean over the channels, in the size of the overview."""
        return self._stored[quantity].overview.result()[0, 0].numpy()


def shown_size(size: Size) -> Size:
    """Return the size in which a picture is shown: its own, up to `MAX_PIXELS`."""
    return shrunk(size, _shrink(size))


def _shrink(size: Size) -> int:
    return max(1, math.ceil(math.sqrt(math.prod(size) / MAX_PIXELS)))


def _map_bytes_per_pixel(shown: Size, before: Size) -> float | None:
    """Return the budget of an error map, `None` where nothing is to be lost.

    It is reckoned for input, result and two error maps.
    """
    if max(math.prod(shown), math.prod(before)) <= LOSSLESS_PIXELS:
        return None
    pictures = PICTURE_WEIGHT * (weighted_pixels(shown) + weighted_pixels(before))
    num_bytes = min(BYTES_PER_PIXEL * math.prod(shown), MAX_BYTES)
    return num_bytes / (pictures + 2 * weighted_pixels(shown))


def round_top(levels: NDArray[np.float32]) -> float:
    """Return a round number of levels that at most 0.5 % of the pixels exceed.

    Example:
        >>> round_top(np.full((2, 2), 6.1, np.float32))
        8.0
    """
    top = float(np.percentile(levels, 99.5))
    if top <= 0:
        return 1.0
    exponent = math.floor(math.log10(top))
    ends = (float(f"{digit}e{exponent}") for digit in (1, 2, 3, 4, 5, 6, 8, 10))
    return next(end for end in ends if end >= top)


@functools.cache
def error_colors() -> NDArray[np.uint8]:
    """Return the 256 colors of the error maps, ``(256, 3)``."""
    import matplotlib

    colors: NDArray[np.uint8] = matplotlib.colormaps["magma"](np.arange(256), bytes=True)
    return np.ascontiguousarray(colors[:, :3])


def _samples(image: Tensor) -> NDArray[np.uint8]:
    return to_uint8(image)[0].permute(1, 2, 0).numpy()


def _thumbnail(samples: NDArray[np.uint8]) -> str:
    from PIL import Image

    image = Image.fromarray(samples[..., 0] if samples.shape[2] == 1 else samples)
    image.thumbnail((_THUMBNAIL_SIDE, _THUMBNAIL_SIDE))
    small = np.asarray(image)
    encoded = encoded_picture(small.reshape(*small.shape[:2], -1), "JPEG", quality=80)
    return base64.b64encode(encoded).decode()
