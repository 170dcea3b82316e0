"""Pictures that give a low-resolution picture back when they are shrunk by bicubic."""

from functools import lru_cache

import torch
from torch import Tensor

from musigma.functional.resize import resize
from musigma.types import ImageError

MAX_SIDE = 16_384
"""Longer sides are refused: the matrices of a side grow with its square."""


def shrink(image: Tensor, scale: int) -> Tensor:
    """Shrink ``(N, C, H, W)`` by bicubic without rounding; sides are multiples of the scale."""
    height, width = image.shape[-2:]
    if height % scale or width % scale:
        raise ImageError(
            f"expected sides that are multiples of the scale {scale}, got {width} x {height}"
        )
    return resize(image, size=(height // scale, width // scale))


def without_visible_part(errors: Tensor, scale: int) -> Tensor:
    """Remove from errors what the shrunk picture would show, by an orthogonal projection.

    Example:
        >>> hidden = without_visible_part(torch.rand(1, 3, 16, 16), 4)
        >>> bool(shrink(hidden, 4).abs().max() < 1e-5)
        True
    """
    return errors - enlarge(shrink(errors, scale), scale)


def made_consistent(image: Tensor, degraded: Tensor, scale: int, *, rounds: int = 4) -> Tensor:
    """Change an image as little as possible so that shrinking it gives `degraded`.

    Values stay in ``[0, 1]``. Cutting them off disturbs the agreement a little, so that both are
    done several times in turn.

    Args:
        image: ``(N, C, H, W)``.
        degraded: ``(N, C, H / scale, W / scale)``, or one for all.
        scale: Zoom factor.
        rounds: How often.
    """
    for _ in range(rounds):
        image = (image + enlarge(degraded - shrink(image, scale), scale)).clamp(0, 1)
    return image


def enlarge(degraded: Tensor, scale: int) -> Tensor:
    """Return the smallest image that gives `degraded` when it is shrunk: the pseudo-inverse."""
    height, width = degraded.shape[-2:]
    rows, columns = (
        _pseudo_inverse(side * scale, scale).to(degraded.device) for side in (height, width)
    )
    return (rows @ degraded.double() @ columns.T).to(degraded.dtype)


def spread_of_input(weights: Tensor, scale: int) -> Tensor:
    """Return how much each value of the input counts in a weighted sum of the enlarged input.

    Example:
        >>> weights, degraded = torch.rand(1, 3, 16, 16), torch.rand(1, 3, 4, 4)
        >>> direct = (weights * enlarge(degraded, 4)).sum()
        >>> bool(torch.isclose((spread_of_input(weights, 4) * degraded).sum(), direct))
        True
    """
    rows, columns = (_pseudo_inverse(side, scale).to(weights.device) for side in weights.shape[-2:])
    return (rows.T @ weights.double() @ columns).to(weights.dtype)


@lru_cache(maxsize=32)
def _pseudo_inverse(length: int, scale: int) -> Tensor:
    """Return the matrix that enlarges a side of ``length / scale`` to `length`.

    Bicubic works on rows and columns one after the other, so that the inverse does, too.
    """
    if length > MAX_SIDE:
        raise ImageError(f"samples have at most {MAX_SIDE} pixels on a side, got {length}")
    shrinking = resize(
        torch.eye(length, dtype=torch.float64)[None, None], size=(length // scale, length)
    )[0, 0]
    gram = shrinking @ shrinking.T
    return torch.linalg.solve(gram, shrinking).T.contiguous()
