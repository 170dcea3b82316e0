"""Noise of a camera: of one level everywhere, or growing with the light; not clipped."""

import torch
from torch import Tensor

from musigma.functional.blur import blur
from musigma.types import ImageError


def sensor_noise(
    image: Tensor,
    *,
    std: float | Tensor = 0.0,
    gain: float | Tensor = 0.0,
    grey: bool | Tensor = False,
    grain: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Add Gaussian noise with the variance ``std^2 + gain * signal``, all in 8-bit levels.

    The first part is the same everywhere, as that of reading out a sensor. The second grows with
    the signal, as that of counted light: at level 100 a gain of 0.25 gives a deviation of 5.

    Args:
        image: ``(N, C, H, W)`` in ``[0, 1]``; as a signal, values below 0 count as 0.
        std: Standard deviation in 8-bit levels; one number, or one per image, ``(N,)``.
        gain: Variance over signal; one number, or one per image, ``(N,)``.
        grey: Whether all channels get the same noise; one for all, or one per image, ``(N,)``.
        grain: Kernels by which the noise is smoothed, ``(N, k, k)``, as demosaicing does it. It is
            scaled so that its variance stays.
        generator: Draws the noise on its own device; the global one of the image's where left out,
            which alone can be compiled.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> noisy = sensor_noise(torch.zeros(1, 3, 64, 64), std=25, generator=generator)
        >>> 24 < noisy.std() * 255 < 26
        tensor(True)
    """
    if image.ndim != 4 or not image.is_floating_point():
        raise ImageError(
            f"expected a float image (N, C, H, W) in [0, 1], got {tuple(image.shape)} {image.dtype}"
        )
    if not isinstance(std, Tensor) and std < 0:
        raise ImageError(f"std is 0 or more, in 8-bit levels (such as 25), got {std}")
    noise = _normal(image, grey, generator)
    if grain is not None:
        noise = blur(noise, grain / grain.square().sum((1, 2), keepdim=True).sqrt())
    # Where there is no second part, the product is what the denoising protocol has always been.
    level = _per_image(std, image) / 255
    if isinstance(gain, Tensor) or gain > 0:
        light = _per_image(gain, image) / 255 * image.clamp(min=0)
        return image + noise * (level**2 + light).sqrt()
    return image + noise * level


def _normal(image: Tensor, grey: bool | Tensor, generator: torch.Generator | None) -> Tensor:
    device = image.device if generator is None else generator.device
    noise = torch.randn(image.shape, generator=generator, device=device).to(image)
    if isinstance(grey, Tensor):
        return torch.where(grey.view(-1, 1, 1, 1), noise[:, :1], noise)
    return noise[:, :1].expand_as(noise) if grey else noise


def _per_image(value: float | Tensor, image: Tensor) -> float | Tensor:
    return value.to(image).view(-1, 1, 1, 1) if isinstance(value, Tensor) else value
