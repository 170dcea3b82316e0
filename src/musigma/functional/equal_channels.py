"""Color pictures whose red, green and blue are equal: they are gray, however they are stored."""

from typing import Any

import torch
from torch import Tensor

from musigma.functional.picture_statistics import Windowed

ROWS = 256
"""Rows that are compared at a time: those of a picture in colors differ in the first few."""


class FirstChannel:
    """The first channel of a picture, ``(1, 1, H, W)``, which is read when it is indexed."""

    def __init__(self, image: Windowed) -> None:
        self.image = image
        self.shape = (1, 1, *image.shape[2:])

    def __getitem__(self, part: Any) -> Tensor:
        """Return a part; its first two indices must be those of all channels."""
        return self.image[part][:, :1]


def gray_if_equal(image: Windowed) -> Windowed:
    """Return a picture as it is, or its first channel where it has three that are equal everywhere.

    Args:
        image: ``(1, C, H, W)``, a tensor or what is read in parts.

    Example:
        >>> tuple(gray_if_equal(torch.zeros(1, 3, 8, 6)).shape)
        (1, 1, 8, 6)
        >>> tuple(gray_if_equal(torch.rand(1, 3, 8, 6)).shape)
        (1, 3, 8, 6)
    """
    if image.shape[1] != 3:
        return image
    height, width = image.shape[2:]
    for top in range(0, height, ROWS):
        rows = image[:, :, top : min(top + ROWS, height), 0:width]
        if not torch.equal(rows, rows[:, :1].expand_as(rows)):
            return image
    return FirstChannel(image)
