"""Inputs spoiled on purpose, so that the guard learns what its calibration's inputs are not like.

Each function takes an input ``(1, C, H, W)`` in ``[0, 1]`` and a generator, and returns what a
program or a device may make of it, rounded to 8 bits. None of them is meant to be complete: the
guard needs one example of each kind of trace.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad, unfold

from musigma.functional.blur import blur, gaussian_kernels, motion_kernels
from musigma.functional.color import quantise
from musigma.functional.jpeg import jpeg

_SIMILAR = 24 / 255
"""`denoised` averages values that differ by less than this."""

_HALO_STD, _HALO_AMOUNT, _HALO_RADIUS = 2.0, 2.5, 6
_FOCUS_RADIUS = 1.4
_WAY, _WAY_RADIUS = 5.0, 3
_ENLARGED_BY = 1.5
_GRAIN_STD, _GRAIN_SIZE, _GRAIN_RADIUS = 10 / 255, 0.9, 3
_COLOUR_STD, _COLOUR_SIZE, _COLOUR_RADIUS = 9 / 255, 1.5, 5


def smoothed(image: Tensor, _: torch.Generator) -> Tensor:
    """Take the median of 3 x 3 pixels: weak texture goes, edges stay."""
    return _around(image, 3).median(2).values


def denoised(image: Tensor, _: torch.Generator) -> Tensor:
    """Average over those of 5 x 5 pixels that are similar, as noise reduction does."""
    around = _around(image, 5)
    similar = ((around - image[:, :, None]).abs().amax(1, keepdim=True) < _SIMILAR).to(image)
    return quantise((around * similar).sum(2) / similar.sum(2))


def processed(image: Tensor, generator: torch.Generator) -> Tensor:
    """Reduce noise, sharpen and save as JPEG, as small cameras do."""
    calm = denoised(image, generator)
    kernels = gaussian_kernels(torch.ones(1), radius=3)
    return jpeg(quantise(calm + 1.5 * (calm - blur(calm, kernels))), quality=85)


def sharpened(image: Tensor, _: torch.Generator) -> Tensor:
    """Sharpen so much that edges have halos."""
    kernels = gaussian_kernels(torch.tensor([_HALO_STD]), radius=_HALO_RADIUS)
    return quantise(image + _HALO_AMOUNT * (image - blur(image, kernels)))


def enlarged(image: Tensor, _: torch.Generator) -> Tensor:
    """Return what is left of a picture that was smaller before."""
    size = [round(side / _ENLARGED_BY) for side in image.shape[2:]]
    small = quantise(interpolate(image, size, mode="bicubic", antialias=True))
    return quantise(interpolate(small, list(image.shape[2:]), mode="bicubic"))


def defocused(image: Tensor, _: torch.Generator) -> Tensor:
    """Blur by a disk, as a lens out of focus does."""
    line = torch.arange(-2.0, 3.0)
    disk = (_FOCUS_RADIUS + 0.5 - torch.hypot(line[:, None], line)).clamp(0, 1)
    return quantise(blur(image, (disk / disk.sum())[None]))


def moved(image: Tensor, generator: torch.Generator) -> Tensor:
    """Blur along a line, as a moving camera does."""
    angle = 180 * torch.rand(1, generator=generator)
    kernels = motion_kernels(torch.tensor([_WAY]), angle=angle, radius=_WAY_RADIUS)
    return quantise(blur(image, kernels))


def grainy(image: Tensor, generator: torch.Generator) -> Tensor:
    """Add the coarse grain of a film, the same in all colours."""
    noise = _coarse_noise(image[:, :1], _GRAIN_SIZE, _GRAIN_RADIUS, generator)
    return quantise(image + _GRAIN_STD * noise)


def colour_noise(image: Tensor, generator: torch.Generator) -> Tensor:
    """Add coarse noise of the colours alone, as cameras leave it in the dark."""
    noise = _coarse_noise(image, _COLOUR_SIZE, _COLOUR_RADIUS, generator)
    return quantise(image + _COLOUR_STD * (noise - noise.mean(1, keepdim=True)))


SPOILERS: Mapping[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "smoothed": smoothed,
    "denoised": denoised,
    "processed": processed,
    "sharpened": sharpened,
    "enlarged": enlarged,
    "defocused": defocused,
    "moved": moved,
    "grainy": grainy,
    "colour_noise": colour_noise,
}
"""By the names that `musigma.uncertainty.guard` has words for."""


def _coarse_noise(image: Tensor, size: float, radius: int, generator: torch.Generator) -> Tensor:
    """Return noise of a standard deviation of 1 whose grains have a size in pixels."""
    noise = torch.randn(image.shape, generator=generator)
    coarse = blur(noise, gaussian_kernels(torch.tensor([size]), radius=radius))
    return coarse / coarse.std()


def _around(image: Tensor, side: int) -> Tensor:
    """Return the pixels around each pixel, ``(1, C, side * side, H, W)``."""
    height, width = image.shape[2:]
    wide = pad(image, [side // 2] * 4, mode="replicate")
    return unfold(wide, side).view(1, image.shape[1], side**2, height, width)
