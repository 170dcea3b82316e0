"""Flips, borders and crops: the ways to rearrange pixels without changing them."""

from typing import Literal

import torch
from torch import Tensor

from musigma.types import ImageError

Border = Literal["reflect", "symmetric", "replicate"]

NUM_DIHEDRAL = 8
"""Flips and quarter turns of a square; `dihedral` counts them from 0."""


def dihedral(image: Tensor, k: int) -> Tensor:
    """Return view ``k`` of the eight flips and transposes of ``(..., H, W)``.

    Bit 2 of ``k`` transposes, then bit 1 flips the rows and bit 0 the columns; ``k = 0`` changes
    nothing. Views 4 to 7 have shape ``(..., W, H)``.

    Example:
        >>> dihedral(torch.tensor([[1, 2], [3, 4]]), 5)
        tensor([[3, 1],
                [4, 2]])
    """
    _check_dihedral(k)
    if k & 4:
        image = image.transpose(-2, -1)
    return _flip(image, k)


def dihedral_inverse(image: Tensor, k: int) -> Tensor:
    """Undo `dihedral` with the same ``k``."""
    _check_dihedral(k)
    image = _flip(image, k)
    return image.transpose(-2, -1) if k & 4 else image


def border_index(position: Tensor, length: int, mode: Border) -> Tensor:
    """Map positions on the endless line to ``[0, length)`` by the border rule.

    With pixels ``a b c``, ``reflect`` continues to the left with ``b`` (no pixel twice),
    ``symmetric`` with ``a`` (the edge twice), both again and again; ``replicate`` repeats the edge.
    Any distance from the image is allowed.

    Example:
        >>> line = torch.arange(-4, 6)
        >>> border_index(line, 3, "reflect").tolist()
        [0, 1, 2, 1, 0, 1, 2, 1, 0, 1]
        >>> border_index(line, 3, "symmetric").tolist()
        [2, 2, 1, 0, 0, 1, 2, 2, 1, 0]
    """
    if mode == "replicate" or length == 1:
        return position.clamp(0, length - 1)
    twice = int(mode == "symmetric")
    last = 2 * length - 2 + twice
    position = position % (last + twice)
    return torch.minimum(position, last - position)


def pad(image: Tensor, padding: tuple[int, int, int, int], *, mode: Border = "reflect") -> Tensor:
    """Pad ``(..., H, W)`` by ``(left, right, top, bottom)`` pixels, however small the image is."""
    if min(padding) < 0:
        raise ImageError(f"padding must not be negative, got {padding}; crop the image instead")
    left, right, top, bottom = padding
    for dim, before, after in ((-2, top, bottom), (-1, left, right)):
        if before or after:
            length = image.shape[dim]
            line = torch.arange(-before, length + after, device=image.device)
            image = image.index_select(dim, border_index(line, length, mode))
    return image


def windows(image: Tensor, *, left: Tensor, top: Tensor, size: tuple[int, int]) -> Tensor:
    """Return a window of each image, which begins at a place of its own; edges are replicated.

    Args:
        image: ``(N, C, H, W)``.
        left: First column of each window, ``(N,)``, int64; columns below 0 repeat the first one.
        top: First row, likewise.
        size: Height and width of all windows.

    Example:
        >>> image = torch.arange(6.0).view(1, 1, 2, 3)
        >>> windows(image, left=torch.tensor([-1]), top=torch.tensor([1]), size=(1, 3))
        tensor([[[[3., 3., 4.]]]])
    """
    for dim, first, length in ((2, top, size[0]), (3, left, size[1])):
        line = first.view(-1, 1) + torch.arange(length, device=image.device)
        index = border_index(line, image.shape[dim], "replicate")
        shape = list(image.shape)
        shape[dim] = length
        index = index[:, None, :, None] if dim == 2 else index[:, None, None, :]
        image = image.gather(dim, index.expand(shape))
    return image


def pad_to_multiple(image: Tensor, multiple: int, *, mode: Border = "reflect") -> Tensor:
    """Pad ``(..., H, W)`` at the bottom and the right until both sides are multiples.

    Example:
        >>> pad_to_multiple(torch.zeros(1, 3, 37, 31), 8).shape
        torch.Size([1, 3, 40, 32])
    """
    height, width = image.shape[-2:]
    return pad(image, (0, -width % multiple, 0, -height % multiple), mode=mode)


def crop_to_multiple(image: Tensor, multiple: int) -> Tensor:
    """Cut ``(..., H, W)`` at the bottom and the right until both sides are multiples.

    Example:
        >>> crop_to_multiple(torch.zeros(1, 3, 37, 31), 4).shape
        torch.Size([1, 3, 36, 28])
    """
    height, width = image.shape[-2:]
    if min(height, width) < multiple:
        raise ImageError(
            f"expected an image of at least {multiple}x{multiple} pixels, got {width}x{height} "
            f"(width x height); leave it out or use a smaller scale"
        )
    return image[..., : height - height % multiple, : width - width % multiple]


def crop_border(image: Tensor, border: int) -> Tensor:
    """Cut ``border`` pixels off each side of ``(..., H, W)``."""
    height, width = image.shape[-2:]
    if border < 0 or 2 * border >= min(height, width):
        raise ImageError(
            f"cannot cut a border of {border} pixels off an image of {width}x{height} "
            f"(width x height); use a larger image or a border of 0 or more that leaves some of it"
        )
    return image[..., border : height - border, border : width - border]


def _flip(image: Tensor, k: int) -> Tensor:
    dims = [dim for bit, dim in ((2, -2), (1, -1)) if k & bit]
    return image.flip(dims) if dims else image


def _check_dihedral(k: int) -> None:
    if not 0 <= k < NUM_DIHEDRAL:
        raise ImageError(f"a dihedral view is numbered 0 to {NUM_DIHEDRAL - 1}, got {k}")
