"""How benchmark inputs are made from their targets."""

from typing import NamedTuple

from torch import Tensor

from musigma.functional.geometry import crop_to_multiple
from musigma.functional.resize import bicubic_down


class Pair(NamedTuple):
    """A low-resolution image and the target it was made from."""

    degraded: Tensor
    target: Tensor


def downscale_pair(image: Tensor, scale: int) -> Pair:
    """Crop an image to a multiple of the scale and shrink it as the published test sets were.

    Args:
        image: ``(N, C, H, W)``, uint8 or float in ``[0, 1]``.
        scale: Zoom factor between ``degraded`` and ``target``.

    Returns:
        ``degraded`` of shape ``(N, C, H // scale, W // scale)``, on 8-bit levels, and ``target``,
        the cropped image, otherwise untouched; both of the image's type.

    Example:
        >>> import torch
        >>> degraded, target = downscale_pair(torch.rand(1, 3, 37, 31), 4)
        >>> degraded.shape, target.shape
        (torch.Size([1, 3, 9, 7]), torch.Size([1, 3, 36, 28]))
    """
    target = crop_to_multiple(image, scale)
    return Pair(bicubic_down(target, scale), target)
