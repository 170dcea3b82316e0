"""Search windows for networks that compare each position with similar ones around it."""

from collections.abc import Iterator

import torch
from torch import Tensor

from musigma.networks.layers import at_least


def mirror_to_side(image: Tensor, side: int) -> Tensor:
    """Pad an image to a minimum side by mirroring, downwards and to the right.

    Example:
        >>> mirror_to_side(torch.tensor([[[[1.0, 2.0]]]]), 3).squeeze().tolist()
        [[1.0, 2.0, 2.0], [1.0, 2.0, 2.0], [1.0, 2.0, 2.0]]
    """
    for dim in (-2, -1):
        size = image.shape[dim]
        index = mirrored_index(at_least(size, side), size, image.device)
        image = image.index_select(dim, index)
    return image


def mirrored_index(length: int, size: int, device: torch.device) -> Tensor:
    """Return `length` indices that run through `size` pixels forwards and backwards in turn."""
    index = torch.arange(length, device=device)
    # The same as index % (2 * size), which ONNX export does not support for a free size.
    index = index - index // (2 * size) * (2 * size)
    return torch.minimum(index, 2 * size - 1 - index)


class Candidates:
    """The positions of a grid that each position is compared with.

    They fill a window around the position, without the nearest ones. At the border the window is
    moved inwards, so that it always has the same size.

    Args:
        height: Height of the grid.
        width: Width of the grid.
        window: Side of the window.
        near: Distance up to which positions are left out: 0 leaves out the position itself alone.
        device: Device of the masks.
    """

    def __init__(
        self, height: int, width: int, *, window: int, near: int, device: torch.device
    ) -> None:
        self.height, self.width, self.window = height, width, window
        positions = [torch.arange(size, device=device) for size in (height, width)]
        self._inside = [_in_window(position, window) for position in positions]
        self._near = [(position - position.unsqueeze(1)).abs() <= near for position in positions]

    def bands(self) -> Iterator[tuple[slice, slice]]:
        """Yield rows and the rows of their candidates, so that memory grows with the area alone.

        Compiled graphs have no loops whose length depends on the image: they compare all pairs, as
        small grids do. On the meta device, where costs are counted, one band stands for all.
        """
        if torch.compiler.is_compiling() or self.height * self.width <= self.window**2:
            yield slice(None), slice(None)
            return
        if self._near[0].is_meta:
            yield slice(None), slice(self.window)
            return
        for row in range(self.height):
            top = max(min(row - self.window // 2, self.height - self.window), 0)
            yield slice(row, row + 1), slice(top, top + self.window)

    def mask(self, rows: slice, others: slice) -> Tensor:
        """Say which positions of `others` are candidates of those of `rows`, as a matrix."""
        inside, near = (
            down[rows, others][:, None, :, None] & across[None, :, None, :]
            for down, across in (self._inside, self._near)
        )
        return (inside & ~near).flatten(2).flatten(0, 1)


def _in_window(position: Tensor, window: int) -> Tensor:
    last = (position[-1] + 1 - window).clamp_min(0)
    first = torch.minimum((position - window // 2).clamp_min(0), last).unsqueeze(1)
    return (position >= first) & (position < first + window)
