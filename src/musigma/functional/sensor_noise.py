"""Noise of a camera: of one level, growing with the light, or of a raw picture; not clipped."""

import torch
from torch import Tensor
from torch.nn.functional import conv2d

from musigma.functional.blur import blur
from musigma.functional.color import linear_to_srgb, srgb_to_linear
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
        grain: Kernels by which the noise is smoothed, ``(N, k, k)``, as demosaicing does it. They
            are scaled so that the variance of white noise stays.
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
    noise = _smoothed(noise, grain)
    # Where there is no second part, the product is what the denoising protocol has always been.
    level = _per_image(std, image) / 255
    if isinstance(gain, Tensor) or gain > 0:
        light = _per_image(gain, image) / 255 * image.clamp(min=0)
        return image + noise * (level**2 + light).sqrt()
    return image + noise * level


def raw_noise(
    image: Tensor,
    *,
    gain: float | Tensor,
    std: float | Tensor = 0.0,
    grain: Tensor | None = None,
    color: float | Tensor = 1.0,
    color_grain: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Add the noise of a sensor whose picture was developed: demosaiced, and given sRGB's curve.

    The noise arises in linear light, ``std^2 + gain * light`` in 8-bit levels, at the pixels of a
    Bayer mosaic (red and green in the first row). The other pixels of a channel get theirs by
    interpolation, so that neighbors share it. The curve of sRGB makes it strong in the dark.
    Cameras then smooth the noise of the color differences far more than that of the luma.

    Args:
        image: ``(N, C, H, W)`` in ``[0, 1]``, 1 or 3 channels. A gray sensor has no mosaic.
        gain: Variance over light; one number, or one per image, ``(N,)``.
        std: Standard deviation of reading out; one number, or one per image, ``(N,)``.
        grain: As that of `sensor_noise`: smoothing inside the camera.
        color: Factor of the noise of the color differences; one number, or one per image, ``(N,)``.
        color_grain: Kernels by which that noise is smoothed, ``(N, k, k)``, scaled as `grain` is.
        generator: As that of `sensor_noise`.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> image = torch.tensor([0.1, 0.8]).view(2, 1, 1, 1).expand(2, 3, 64, 64)
        >>> noise = raw_noise(image, gain=0.5, generator=generator) - image
        >>> dark, bright = (noise * 255).std((1, 2, 3)).tolist()
        >>> round(dark), round(bright)
        (6, 4)
    """
    light = srgb_to_linear(image.clamp(0, 1))
    normal = _normal(image, grey=False, generator=generator)
    level = (_per_image(std, image) / 255) ** 2 + _per_image(gain, image) / 255 * light
    noise = _smoothed(_demosaiced(normal * level.sqrt()), grain)
    developed = linear_to_srgb(light + noise)
    as_developed = color_grain is None and not isinstance(color, Tensor) and color == 1
    if as_developed or image.shape[1] != 3:
        return developed
    noise = developed - image
    luma = _luma(noise)
    return image + luma + _smoothed(noise - luma, color_grain) * _per_image(color, image)


def _luma(noise: Tensor) -> Tensor:
    red, green, blue = noise.chunk(3, dim=1)
    return 0.299 * red + 0.587 * green + 0.114 * blue


def _demosaiced(noise: Tensor) -> Tensor:
    """Keep each channel's noise at its pixels of the mosaic and interpolate it between them."""
    if noise.shape[1] != 3:
        return noise
    height, width = noise.shape[-2:]
    row = torch.arange(height, device=noise.device).view(-1, 1) % 2
    column = torch.arange(width, device=noise.device) % 2
    mosaic = torch.stack([(row + column == 0), (row != column), (row + column == 2)])
    around = noise.new_tensor([[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]) / 4
    beside = noise.new_tensor([[0.0, 1.0, 0.0], [1.0, 4.0, 1.0], [0.0, 1.0, 0.0]]) / 4
    kernels = torch.stack([around, beside, around]).unsqueeze(1)
    return conv2d(noise * mosaic, kernels, padding=1, groups=3)


def _smoothed(noise: Tensor, grain: Tensor | None) -> Tensor:
    """Smooth noise with a kernel per image, scaled so that the variance of white noise stays."""
    if grain is None:
        return noise
    return blur(noise, grain / grain.square().sum((1, 2), keepdim=True).sqrt())


def _normal(image: Tensor, grey: bool | Tensor, generator: torch.Generator | None) -> Tensor:
    device = image.device if generator is None else generator.device
    noise = torch.randn(image.shape, generator=generator, device=device).to(image)
    if isinstance(grey, Tensor):
        return torch.where(grey.view(-1, 1, 1, 1), noise[:, :1], noise)
    return noise[:, :1].expand_as(noise) if grey else noise


def _per_image(value: float | Tensor, image: Tensor) -> float | Tensor:
    return value.to(image).view(-1, 1, 1, 1) if isinstance(value, Tensor) else value
