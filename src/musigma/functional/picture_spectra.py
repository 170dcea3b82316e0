"""Power spectra of small patches of a picture: energy by direction, and peaks.

The cosine transform cannot tell a direction from its mirror image; the Fourier transform can. The
functions take windows of a picture, as `musigma.functional.picture_statistics.measure` cuts them.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import pad

PATCH, NUM_DIRECTIONS = 32, 8

_COARSE_CYCLES, _FINE_CYCLES = (0.06, 0.16), (0.25, 0.4)
"""Bands of the directions, in cycles per pixel."""

_HALF_SECTOR = 15.25
"""Half the angle of a direction in degrees; neighboring ones overlap."""

_LEAST_RIPPLE = 0.1
"""Frequencies from which on `ripple` looks for peaks, in cycles per pixel."""

_ROUNDING = 0.05
"""Energy per coefficient that rounding to 8-bit levels leaves, in squared levels."""

_LEAST_ENERGY = 4.0
"""Patches whose coarse coefficients have less energy than this, in squared levels, are flat."""


def patch_powers(planes: Sequence[Tensor]) -> Tensor:
    """Return the power spectra of overlapping patches, ``(N, 32, 32)``; white noise has std^2.

    Args:
        planes: Windows ``(H, W)`` in 8-bit levels; those smaller than a patch have no spectra.

    Example:
        >>> noise = 3 * torch.randn(128, 128, generator=torch.Generator().manual_seed(0))
        >>> 8 < float(patch_powers([noise])[:, 1:, 1:].mean()) < 10
        True
    """
    window = torch.hann_window(PATCH, periodic=False)
    powers = [torch.zeros(0, PATCH, PATCH)]
    for plane in (plane for plane in planes if min(plane.shape) >= PATCH):
        cut = plane.unfold(0, PATCH, PATCH // 2).unfold(1, PATCH, PATCH // 2)
        patches = cut.reshape(-1, PATCH, PATCH)
        patches = (patches - patches.mean((1, 2), keepdim=True)) * window[:, None] * window
        powers.append(torch.fft.fft2(patches).abs().square() / window.square().sum() ** 2)
    return torch.cat(powers)


def directions(powers: Tensor) -> Tensor | None:
    """Return fine over coarse energy in each direction, ``log2``; `None` for a flat picture.

    Args:
        powers: What `patch_powers` returned.
    """
    if not len(powers):
        return None
    power = powers.mean(0).flatten()
    coarse, fine = (sectors @ power for sectors in _sectors())
    if float(coarse.mean()) < _LEAST_ENERGY:
        return None
    return (fine + _ROUNDING).log2() - (coarse + _ROUNDING).log2()


def softest(levels: Tensor) -> float:
    """Return the least of the directions, plus how much less it is than their mean."""
    return float(2 * levels.min() - levels.mean())


def ripple(powers: Tensor) -> float:
    """Return the height of the highest peak of the spectrum off its axes, where edges lie.

    Args:
        powers: What `patch_powers` returned.
    """
    if not len(powers):
        return 0.0
    levels = (powers + _ROUNDING).log2().mean(0)
    around = pad(levels[None, None], (2, 2, 2, 2), mode="circular")[0, 0]
    background = around.unfold(0, 5, 1).unfold(1, 5, 1).flatten(2).median(2).values
    line = torch.fft.fftfreq(PATCH)
    fine = torch.hypot(line[:, None], line) >= _LEAST_RIPPLE
    fine[0], fine[:, 0] = False, False
    return float((levels - background)[fine].max())


@lru_cache(maxsize=1)
def _sectors() -> tuple[Tensor, Tensor]:
    """Return the weights, ``(8, N)``, that average coarse and fine power over each direction."""
    line = torch.fft.fftfreq(PATCH)
    radii = torch.hypot(line[:, None], line).flatten()
    angles = torch.rad2deg(torch.atan2(*torch.meshgrid(line, line, indexing="ij"))).flatten()
    middles = torch.arange(NUM_DIRECTIONS)[:, None] * (180 / NUM_DIRECTIONS)
    inside = ((angles - middles + 90) % 180 - 90).abs() <= _HALF_SECTOR

    def weights(low: float, high: float) -> Tensor:
        chosen = (inside & (radii >= low) & (radii < high)).float()
        return chosen / chosen.sum(1, keepdim=True)

    return weights(*_COARSE_CYCLES), weights(*_FINE_CYCLES)
