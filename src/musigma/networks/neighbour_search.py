"""What networks that look for similar places share: where they look, and room enough for it."""

from collections.abc import Iterator

import torch
from torch import Tensor


def larger(size: int, least: int) -> int:
    """Return the larger of two sizes, in compiled graphs with free sizes too."""
    found: int = torch.sym_max(size, least)  # type: ignore[no-untyped-call]
    return found


def at_least(image: Tensor, side: int) -> Tensor:
    """Continue an image whose sides are shorter by its mirror image, downwards and to the right."""
    for dim in (-2, -1):
        size = image.shape[dim]
        place = torch.arange(larger(size, side), device=image.device)
        # That is, place % (2 * size), which ONNX export does not know for a free size.
        place = place - place // (2 * size) * (2 * size)
        image = image.index_select(dim, torch.minimum(place, 2 * size - 1 - place))
    return image


class Candidates:
    """The places of a grid that each is compared with: a window around it, but for the nearest.

    At the border the window is moved inwards, so that it holds as many places as elsewhere.

    Args:
        height: Of the grid.
        width: Of the grid.
        window: Side of the window.
        near: How far away the nearest are: 0 for the place itself alone.
        device: Where the masks are needed.
    """

    def __init__(
        self, height: int, width: int, *, window: int, near: int, device: torch.device
    ) -> None:
        self.height, self.width, self.window = height, width, window
        places = [torch.arange(size, device=device) for size in (height, width)]
        self._inside = [_in_window(place, window) for place in places]
        self._near = [(place - place.unsqueeze(1)).abs() <= near for place in places]

    def bands(self) -> Iterator[tuple[slice, slice]]:
        """Yield rows and the rows that hold their candidates; memory then grows with the area.

        Compiled graphs have no loops of a length that depends on the image: they compare all with
        all, as small grids do. The meta device, where costs are counted, compares as many as bands
        do, in one go.
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
        """Tell which places of `others` are candidates of those of `rows`, ``(number, number)``."""
        inside, near = (
            down[rows, others][:, None, :, None] & across[None, :, None, :]
            for down, across in (self._inside, self._near)
        )
        return (inside & ~near).flatten(2).flatten(0, 1)


def _in_window(place: Tensor, window: int) -> Tensor:
    last = (place[-1] + 1 - window).clamp_min(0)
    first = torch.minimum((place - window // 2).clamp_min(0), last).unsqueeze(1)
    return (place >= first) & (place < first + window)
