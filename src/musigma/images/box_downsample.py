"""A smaller view of an image whose rows come little by little."""

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d


class BoxMean:
    """Shrinks an image by a whole factor: each value is the mean of a box of pixels.

    Boxes at the right and at the bottom are cut off where the image ends.

    Example:
        >>> view = BoxMean(2)
        >>> for rows in torch.arange(15.0).view(1, 1, 5, 3).split(3, dim=2):
        ...     view.add(rows)
        >>> view.result()
        tensor([[[[ 2.0000,  3.5000],
                  [ 8.0000,  9.5000],
                  [12.5000, 14.0000]]]])
    """

    def __init__(self, factor: int) -> None:
        self.factor = factor
        self._waiting: Tensor | None = None
        self._done: list[Tensor] = []

    def add(self, rows: Tensor) -> None:
        """Take the next rows, ``(1, C, rows, W)``."""
        if self._waiting is not None:
            rows = torch.cat([self._waiting, rows], dim=2)
        whole = rows.shape[2] // self.factor * self.factor
        if whole:
            self._done.append(self._means(rows[:, :, :whole]))
        self._waiting = rows[:, :, whole:].clone() if whole < rows.shape[2] else None

    def result(self) -> Tensor:
        """Return the view, ``(1, C, ceil(H / factor), ceil(W / factor))``, once all rows came."""
        if self._waiting is not None:
            self._done.append(self._means(self._waiting))
            self._waiting = None
        return torch.cat(self._done, dim=2)

    def _means(self, rows: Tensor) -> Tensor:
        if self.factor == 1:
            return rows.clone()
        return avg_pool2d(rows, self.factor, ceil_mode=True, count_include_pad=False)
