"""Noise reduction as cameras and programs do it; weak texture goes with the noise."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from musigma.functional.blur import blur, gaussian_kernels

STDS_IN_WINDOW = 2
"""Radius of a window, in its standard deviations. What lies further out hardly counts."""


def bilateral(image: Tensor, *, difference: Tensor, std: Tensor, radius: int) -> Tensor:
    """Average each pixel with those around it that are like it: edges stay, weak texture goes.

    The weights of a neighbor fall with its distance and with the difference of its colors, both as
    a Gaussian (Tomasi and Manduchi 1998). Beyond its borders an image repeats its last pixels.

    Args:
        image: ``(N, C, H, W)`` in ``[0, 1]``.
        difference: Standard deviation of the weights in the difference of the colors, the root of
            its mean square over the channels, in 8-bit levels, ``(N,)``. At 0 only equal colors
            are averaged.
        std: Standard deviation of the weights in space, in pixels, ``(N,)``.
        radius: Half the side of the window, rounded down.

    Example:
        >>> edge = torch.tensor([10.0, 12, 10, 200, 202, 200]).view(1, 1, 1, 6) / 255
        >>> smooth = bilateral(edge, difference=torch.tensor([8.0]), std=torch.ones(1), radius=2)
        >>> [round(value) for value in (smooth * 255).flatten().tolist()]
        [10, 11, 11, 201, 201, 200]
    """
    height, width = image.shape[-2:]
    wide = pad(image, [radius] * 4, mode="replicate")
    likeness = _per_image(difference / 255, image).clamp(min=1e-4).square()
    nearness = gaussian_kernels(std.to(image), radius=radius)
    total = torch.zeros_like(image)
    weights = torch.zeros_like(image[:, :1])
    for row in range(2 * radius + 1):
        for column in range(2 * radius + 1):
            neighbor = wide[:, :, row : row + height, column : column + width]
            distance = (neighbor - image).square().mean(1, keepdim=True) / likeness
            weight = nearness[:, row, column].view(-1, 1, 1, 1) * torch.exp(-0.5 * distance)
            total, weights = total + weight * neighbor, weights + weight
    return total / weights


def wiener(image: Tensor, *, noise_std: Tensor, std: Tensor, radius: int) -> Tensor:
    """Take from each value what its neighborhood holds less of than the noise would (Lee 1980).

    Where the variance around a pixel is not above that of the noise, the local mean is all that is
    left. Where it is far above, the pixel stays as it is, noise included. Each channel is on its
    own.

    Args:
        image: ``(N, C, H, W)`` in ``[0, 1]``.
        noise_std: Standard deviation of the noise that is expected, in 8-bit levels, ``(N,)``.
        std: Standard deviation of the Gaussian window, in pixels, ``(N,)``.
        radius: Half the side of the window, rounded down.

    Example:
        >>> edge = torch.tensor([10.0, 12, 10, 12, 200, 200, 202, 200]).view(1, 1, 1, 8) / 255
        >>> calm = wiener(edge, noise_std=torch.tensor([4.0]), std=torch.ones(1), radius=1)
        >>> [round(value) for value in (calm * 255).flatten().tolist()]
        [11, 11, 10, 12, 200, 200, 201, 201]
    """
    kernels = gaussian_kernels(std.to(image), radius=radius)
    mean = blur(image, kernels)
    variance = blur((image - mean).square(), kernels)
    noise = _per_image(noise_std / 255, image).square()
    return mean + (image - mean) * (1 - noise / variance.clamp(min=1e-12)).clamp(min=0)


def _per_image(value: Tensor, image: Tensor) -> Tensor:
    return value.to(image).view(-1, 1, 1, 1)
