"""Downsample an image by box averages while its rows arrive."""

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d


class BoxDownsampler:
    """Downsamples an image by an integer factor: each value is the mean of a box of pixels.

    Boxes at the right and at the bottom end where the image ends.

    Example:
        >>> view = BoxDownsampler(2)
        >>> for rows in torch.arange(15.0).view(1, 1, 5, 3).split(3, dim=2):
        ...     view.add(rows)
        >>> view.result()
        tensor([[[[ 2.0000,  3.5000],
                  [ 8.0000,  9.5000],
                  [12.5000, 14.0000]]]])
    """

    def __init__(self, factor: int) -> None:
        self.factor = factor
        self._incomplete: Tensor | None = None  # rows of a box that has not arrived completely
        self._means: list[Tensor] = []

    def add(self, rows: Tensor) -> None:
        """Add the next rows, ``(1, C, rows, W)``."""
        if self._incomplete is not None:
            rows = torch.cat([self._incomplete, rows], dim=2)
        complete = rows.shape[2] // self.factor * self.factor
        if complete:
            self._means.append(self._average(rows[:, :, :complete]))
        self._incomplete = rows[:, :, complete:].clone() if complete < rows.shape[2] else None

    def take(self, *, last: bool = False) -> list[Tensor]:
        """Return the rows that are complete, in parts, and forget them.

        Args:
            last: Whether no further rows will come, so that the last box is complete, too.
        """
        if last and self._incomplete is not None:
            self._means.append(self._average(self._incomplete))
            self._incomplete = None
        rows, self._means = self._means, []
        return rows

    def result(self) -> Tensor:
        """Return the image after the last row, ``(1, C, ceil(H / factor), ceil(W / factor))``."""
        self._means = [torch.cat(self.take(last=True), dim=2)]
        return self._means[0]

    def _average(self, rows: Tensor) -> Tensor:
        if self.factor == 1:
            return rows.clone()
        return avg_pool2d(rows, self.factor, ceil_mode=True, count_include_pad=False)
