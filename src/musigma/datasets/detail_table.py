"""How much detail there is at each place of the training images, to choose patches by."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate

CELL = 16
"""Side in pixels of the squares for which the detail is stored."""


class DetailTable(NamedTuple):
    """The detail of the patches of images, by where they begin.

    Attributes:
        values: Of all images, row by row, for patches that begin in each cell.
        offsets: Where the values of each image begin.
        heights: In cells, of each image.
        widths: Likewise.
    """

    values: Tensor
    offsets: Tensor
    heights: Tensor
    widths: Tensor

    def at(self, image: Tensor, row: Tensor, column: Tensor) -> Tensor:
        """Return the detail of patches by their image, row and column; all of one shape."""
        down = torch.minimum(row // CELL, self.heights[image] - 1)
        across = torch.minimum(column // CELL, self.widths[image] - 1)
        return self.values[self.offsets[image] + down * self.widths[image] + across]


def detail(image: Tensor, *, block: int) -> Tensor:
    """Return what is lost when blocks become one pixel: the mean distance to the mean of a block.

    Args:
        image: uint8, ``(C, H, W)``.
        block: Side of a block in pixels.

    Returns:
        A value per block in 8-bit levels, ``(H // block, W // block)``.

    Example:
        >>> stripes = torch.tensor([0, 20], dtype=torch.uint8).repeat(1, 2, 2)
        >>> detail(stripes, block=2)
        tensor([[10., 10.]])
    """
    gray = image.float().mean(0)[None, None]
    height, width = (side // block * block for side in gray.shape[-2:])
    gray = gray[..., :height, :width]
    distance = (gray - interpolate(avg_pool2d(gray, block), scale_factor=block)).abs()
    return avg_pool2d(distance, block)[0, 0]


def detail_of_windows(image: Tensor, *, side: int, block: int) -> Tensor:
    """Return the mean detail of square windows that begin at multiples of `CELL`.

    Args:
        image: uint8, ``(C, H, W)``, at least as large as a window.
        side: Of a window, in pixels; rounded to cells.
        block: As for `detail`.
    """
    per_block = detail(image, block=block)[None, None]
    size = [max(1, length // CELL) for length in image.shape[-2:]]
    cells = interpolate(per_block, size=size, mode="area")
    window = [min(max(1, side // CELL), length) for length in size]
    return avg_pool2d(cells, window, stride=1)[0, 0]


def build_table(
    images: Sequence[Tensor], *, side: int, block: int, device: torch.device
) -> DetailTable:
    """Measure images on a device; arguments as for `detail_of_windows`."""
    tables = [detail_of_windows(image.to(device), side=side, block=block) for image in images]
    sizes = torch.tensor([table.shape for table in tables])
    counts = sizes.prod(1)
    return DetailTable(
        values=torch.cat([table.flatten() for table in tables]),
        offsets=(counts.cumsum(0) - counts).to(device),
        heights=sizes[:, 0].to(device),
        widths=sizes[:, 1].to(device),
    )
