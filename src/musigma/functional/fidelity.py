"""How near an image is to its target: one value per image, no protocol hidden inside."""

import math

import torch
from torch import Tensor

from musigma.functional.geometry import crop_border
from musigma.types import ImageError

_WINDOW = 11
_WINDOW_STD = 1.5
_K1, _K2 = 0.01, 0.03


def psnr(image: Tensor, target: Tensor, *, data_range: float, shave: int) -> Tensor:
    r"""Return ``10 log10(data_range^2 / MSE)`` in dB, shape ``(N,)`` in float64.

    The mean runs over channels and pixels of each image; equal images give infinity.

    Args:
        image: ``(N, C, H, W)``.
        target: The same shape.
        data_range: Peak value, 1 for images in ``[0, 1]``.
        shave: Pixels left out at each border, in super-resolution the scale.

    Example:
        >>> target = torch.full((1, 3, 9, 9), 0.5)
        >>> psnr(target + 0.1, target, data_range=1, shave=0)
        tensor([20.0000], dtype=torch.float64)
    """
    image, target = _prepare(image, target, shave)
    error = (image - target).square().flatten(1).mean(1)
    return 10 * torch.log10(data_range**2 / error)


def ssim(image: Tensor, target: Tensor, *, data_range: float, shave: int) -> Tensor:
    r"""Return the structural similarity of Wang et al. (2004), shape ``(N,)`` in float64.

    Local moments under an 11x11 Gaussian window of standard deviation 1.5, over the positions where
    the window lies inside the image, without downsampling; ``K = (0.01, 0.03)``; the mean over
    positions and channels. Arguments as in `psnr`.
    """
    image, target = _prepare(image, target, shave)
    height, width = image.shape[-2:]
    if min(height, width) < _WINDOW:
        raise ImageError(
            f"SSIM needs {_WINDOW}x{_WINDOW} pixels inside the border, got {width}x{height} "
            f"(width x height) after cutting {shave}; use a larger image"
        )
    c1, c2 = (_K1 * data_range) ** 2, (_K2 * data_range) ** 2
    mean_x, mean_y = _window_mean(image), _window_mean(target)
    var_x = _window_mean(image * image) - mean_x * mean_x
    var_y = _window_mean(target * target) - mean_y * mean_y
    cov = _window_mean(image * target) - mean_x * mean_y
    luminance = (2 * mean_x * mean_y + c1) / (mean_x * mean_x + mean_y * mean_y + c1)
    structure = (2 * cov + c2) / (var_x + var_y + c2)
    return (luminance * structure).flatten(1).mean(1)


def _prepare(image: Tensor, target: Tensor, shave: int) -> tuple[Tensor, Tensor]:
    if image.ndim != 4 or image.shape != target.shape:
        raise ImageError(
            f"expected two images of one shape (N, C, H, W), got {tuple(image.shape)} and "
            f"{tuple(target.shape)}; crop or convert one of them first"
        )
    # In float32 the difference of two moments loses the digits that SSIM compares.
    return crop_border(image, shave).double(), crop_border(target, shave).double()


def _window_mean(image: Tensor) -> Tensor:
    offsets = range(-(_WINDOW // 2), _WINDOW // 2 + 1)
    weights = [math.exp(-0.5 * (offset / _WINDOW_STD) ** 2) for offset in offsets]
    for dim in (-2, -1):
        length = image.shape[dim] - _WINDOW + 1
        mean = torch.zeros_like(image.narrow(dim, 0, length))
        for start, weight in enumerate(weights):
            mean.add_(image.narrow(dim, start, length), alpha=weight / sum(weights))
        image = mean
    return image
