"""The result of a prediction as it grows, tile by tile."""

import torch
from torch import Tensor

from musigma.inference.tiling import Tile
from musigma.models import Network
from musigma.types import ImageError, Prediction


class Canvas:
    """The result as it grows."""

    def __init__(self, network: Network, height: int, width: int) -> None:
        self.scale = network.scale
        self.shape = (1, network.out_channels, height * self.scale, width * self.scale)
        self.mean = _empty(self.shape)
        self.sigma: Tensor | None = None

    def paste(self, tile: Tile, result: Prediction) -> None:
        """Put the part of a result that a tile is responsible for in its place."""
        rows, columns, scale = tile.rows, tile.columns, self.scale
        top = (rows.start - rows.read_start) * scale
        left = (columns.start - columns.read_start) * scale
        height = (rows.stop - rows.start) * scale
        width = (columns.stop - columns.start) * scale
        here = (
            ...,
            slice(rows.start * scale, rows.start * scale + height),
            slice(columns.start * scale, columns.start * scale + width),
        )
        there = (..., slice(top, top + height), slice(left, left + width))
        self.mean[here] = result.mean[there].float().cpu()
        if result.sigma is not None:
            if self.sigma is None:
                self.sigma = _empty(self.shape)
            self.sigma[here] = result.sigma[there].float().cpu()

    def prediction(self, *, grey: bool) -> Prediction:
        """Return the whole, once every tile is there; grey again where the image was."""
        results = [self.mean] if self.sigma is None else [self.mean, self.sigma]
        if not all(bool(torch.isfinite(values).all()) for values in results):
            raise ImageError("the network returned values that are not finite; check its weights")
        if not grey:
            return Prediction(self.mean, self.sigma)
        sigma = None if self.sigma is None else self.sigma.mean(1, keepdim=True)
        return Prediction(self.mean.mean(1, keepdim=True), sigma)


def _empty(shape: tuple[int, ...]) -> Tensor:
    try:
        return torch.empty(shape)
    except RuntimeError as error:
        text = f"a result of {shape[-1]} x {shape[-2]} pixels does not fit the memory"
        raise ImageError(f"{text}; cut the picture into parts") from error
