"""Noise of a camera: of one level everywhere, or growing with the light; not clipped."""

import torch
from torch import Tensor


def gaussian_noise(
    image: Tensor,
    *,
    std: float | Tensor,
    grey: bool | Tensor = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Return ``image + (std / 255) n`` with ``n`` standard normal.

    Args:
        image: ``(N, C, H, W)`` in ``[0, 1]``.
        std: Standard deviation in 8-bit levels; one number, or one per image, ``(N,)``.
        grey: Whether all channels get the same noise; one for all, or one per image, ``(N,)``.
        generator: Draws the noise on its own device; the global one of the image's where left out,
            which alone can be compiled.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> noise = gaussian_noise(torch.zeros(1, 3, 64, 64), std=25, generator=generator)
        >>> 24 < noise.std() * 255 < 26
        tensor(True)
    """
    return image + _normal(image, grey, generator) * (_per_image(std, image) / 255)


def poisson_noise(
    image: Tensor,
    *,
    gain: float | Tensor,
    grey: bool | Tensor = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Add noise whose variance grows with the signal, as counted light has it.

    The noise is Gaussian, as that of many photons is. In 8-bit levels its variance is ``gain`` times
    the signal: at level 100 a gain of 0.25 gives a standard deviation of 5.

    Args:
        image: ``(N, C, H, W)`` in ``[0, 1]``; values below 0 count as 0.
        gain: One number, or one per image, ``(N,)``.
        grey: As in `gaussian_noise`.
        generator: As in `gaussian_noise`.
    """
    variance = _per_image(gain, image) / 255 * image.clamp(min=0)
    return image + _normal(image, grey, generator) * variance.sqrt()


def _normal(image: Tensor, grey: bool | Tensor, generator: torch.Generator | None) -> Tensor:
    device = image.device if generator is None else generator.device
    noise = torch.randn(image.shape, generator=generator, device=device).to(image)
    if isinstance(grey, Tensor):
        return torch.where(grey.view(-1, 1, 1, 1), noise[:, :1], noise)
    return noise[:, :1] if grey else noise


def _per_image(value: float | Tensor, image: Tensor) -> float | Tensor:
    return value.to(image).view(-1, 1, 1, 1) if isinstance(value, Tensor) else value
