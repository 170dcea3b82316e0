"""Generators of noise that follow from an image's name, and estimates of the noise level."""

import hashlib
import math
from typing import NamedTuple

import torch
from torch import Tensor

from musigma.functional.picture_statistics import LUMA_NORM, PictureStatistics
from musigma.types import ConfigError, ImageError, short_repr

PATCH = 7
MANY_PATCHES = 20_000
"""About as many as are looked at: more make the estimate slower, hardly better."""

FLAT_PER_VALUE = 16
"""Flat patches for each value of one: enough for sound variances, found in nearly every picture."""

CORRECTIONS = 4
"""Rounds in which what clipping took is put back; each begins from a better level."""


MIN_BLOCK_EDGES = 0.2
"""A picture with less has no visible JPEG grid."""

_MAX_RATIO, _MAX_EXCESS = 1.5, 6.0
"""Noise is white where coarse details have no more than ``1.5 std + 6`` levels of it."""

_GRAY_SHARE = 0.25
_MAX_LINES, _MAX_IMPULSES = 4.0, 6.2
"""Above all clean pictures and white noise that were measured."""

MAX_SEED = 2**63


class NoiseEstimate(NamedTuple):
    """The noise of a picture.

    Attributes:
        std: Its standard deviation in 8-bit levels. Of noise in a JPEG file it is about the level
            before the file was saved.
        is_white: Whether neighboring pixels and the three colors have independent noise, as
            denoisers that are told a level expect. JPEG, demosaicing and shrinking end that.
        growth: How its variance grows with the signal, as
            `musigma.functional.poisson_gaussian.growth_of` says it; empty where that is not known.
        has_blocks: Whether the picture has JPEG blocks. JPEG removes weak noise together with fine
            details, so that the level may be too low.
        left_out: Noise that was seen and is not in the level, in words; empty where there is none.
    """

    std: float
    is_white: bool
    growth: str = ""
    has_blocks: bool = False
    left_out: str = ""

    def __str__(self) -> str:
        """The level as it is shown to users.

        Example:
            >>> print(NoiseEstimate(24.71, is_white=False))
            24.7 of 255, not white
        """
        growth = f", {self.growth}" if self.growth else ""
        return f"{self.level}{'' if self.is_white else ', not white'}{growth}"

    @property
    def level(self) -> str:
        """The standard deviation in words.

        Example:
            >>> NoiseEstimate(5.9e-08, is_white=True).level
            'below 0.01 of 255'
        """
        least = 0.01
        return f"{self.std:.3g} of 255" if self.std >= least else f"below {least} of 255"


def noise_of(statistics: PictureStatistics, *, white_std: float | None = None) -> NoiseEstimate:
    """Return the noise of a picture from its statistics.

    White noise is as strong in coarse details as in fine ones. JPEG and smoothing remove the fine
    ones, so that noise which is much stronger in coarse details than in fine ones is not white.

    Args:
        statistics: What `musigma.functional.picture_statistics.measure` found.
        white_std: A better estimate of white noise, such as that of `estimate_noise_std`.

    Example:
        >>> from musigma.functional.picture_statistics import measure
        >>> from musigma.functional.sensor_noise import sensor_noise
        >>> gray, generator = torch.full((1, 3, 128, 128), 0.5), image_generator("a", 0)
        >>> noise_of(measure(sensor_noise(gray, std=25, generator=generator))).is_white
        True
    """
    fine, coarse = statistics.noise_std, statistics.coarse_noise_std
    has_blocks = statistics.block_edges >= MIN_BLOCK_EDGES
    is_white = coarse <= _MAX_RATIO * fine + _MAX_EXCESS
    if is_white:
        std = fine if white_std is None else white_std
        return NoiseEstimate(std, is_white, has_blocks=has_blocks, left_out=_left_out(statistics))
    # Without JPEG, noise that colors do not have is the same in all of them: film, or a scan.
    is_gray = fine < _GRAY_SHARE * coarse and not has_blocks
    std = coarse * (LUMA_NORM if is_gray else 1.0)
    return NoiseEstimate(std, is_white, has_blocks=has_blocks, left_out=_left_out(statistics))


def _left_out(statistics: PictureStatistics) -> str:
    if statistics.lines > _MAX_LINES:
        return "whole rows or columns"
    return "single pixels" if statistics.impulses > _MAX_IMPULSES else ""


def check_seed(seed: int) -> None:
    """Refuse a seed that generators of random numbers do not take."""
    if not 0 <= seed < MAX_SEED:
        raise ConfigError(f"a seed must lie from 0 to {MAX_SEED - 1}, got {short_repr(seed)}")


def image_generator(name: str | int, seed: int) -> torch.Generator:
    """Return a CPU generator that depends on the image's name (or index) and the seed alone.

    Example:
        >>> first, again = image_generator("baby", 0), image_generator("baby", 0)
        >>> torch.equal(torch.randn(4, generator=first), torch.randn(4, generator=again))
        True
    """
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    generator = torch.Generator()
    # The CPU generator is a 32-bit Mersenne twister: more bits of seed would be dropped.
    return generator.manual_seed(int.from_bytes(digest[:4], "big"))


def estimate_noise_std(image: Tensor) -> float:
    """Estimate the standard deviation of white Gaussian noise in an image, in 8-bit levels.

    Patches of a clean image vary mostly along a few principal directions. Those that vary least
    along the upper half of them are flat; along the lowest they hold noise alone, which their
    choice has not touched, because white noise is independent along different directions. Of the
    variances there, the largest are left out until the mean is no longer above the median, as by
    Chen, Zhu and Heng (ICCV 2015); the level is the root of that mean.

    A file clips the noise of dark and bright patches, so that it looks weaker. How much of its
    variance is left follows from the level and the mean of a patch: it is put back, and patches
    that lost more than half are left out where others are enough.

    Args:
        image: ``(1, C, H, W)`` in ``[0, 1]``; values beyond say that nothing was clipped.

    Example:
        >>> from musigma.functional.sensor_noise import sensor_noise
        >>> gray = torch.full((1, 1, 128, 128), 0.5)
        >>> noisy = sensor_noise(gray, std=25, generator=image_generator("a", 0))
        >>> 22.5 < estimate_noise_std(noisy) < 27.5
        True
    """
    if image.ndim != 4 or image.shape[0] != 1 or not image.is_floating_point():
        raise ImageError(
            f"expected one float image (1, C, H, W) in [0, 1], got {tuple(image.shape)} "
            f"{image.dtype}"
        )
    num_channels, height, width = image.shape[1:]
    values = _patches(image)
    num_flat = FLAT_PER_VALUE * len(values)
    if values.shape[1] < num_flat:
        raise ImageError(
            f"{width} x {height} pixels are too few to estimate the noise level from; say what it "
            "is, in 8-bit levels"
        )
    means = values.view(num_channels, PATCH**2, -1).mean(1)
    level = _level(values, torch.ones_like(means))
    if image.amin() < 0 or image.amax() > 1:
        return 255 * level
    for _ in range(CORRECTIONS):
        left = unclipped_share(means, level)
        share = left.mean(0)
        enough = share.topk(min(2 * num_flat, len(share))).values[-1]
        kept = share >= enough.clamp(max=0.5)
        level = _level(values[:, kept], left[:, kept])
    return 255 * level


def unclipped_share(means: Tensor, noise_std: float) -> Tensor:
    """Return the share of the noise's variance that clipping to ``[0, 1]`` leaves in flat areas.

    Args:
        means: Of the clipped values of each area; the result has the same shape.
        noise_std: Standard deviation before clipping, on the scale of the image.

    Example:
        >>> share = unclipped_share(torch.tensor([0.5, 0.0], dtype=torch.float64), 0.1)
        >>> [round(value, 3) for value in share.tolist()]  # at 0 it is 1 / 2 - 1 / (2 pi)
        [1.0, 0.341]
    """
    # Below a tenth of a level hardly anything is clipped, and 0 would be divided by 0.
    noise_std = max(noise_std, 0.1 / 255)
    clean = torch.linspace(0, 1, 2049, dtype=means.dtype, device=means.device)
    mean, variance = clipped_moments(clean, torch.full_like(clean, noise_std))
    share = variance / noise_std**2
    return share[torch.searchsorted(mean, means.contiguous()).clamp(max=len(clean) - 1)]


def clipped_moments(clean: Tensor, noise_std: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance of normal variables that are clipped to ``[0, 1]``.

    Args:
        clean: Their means before.
        noise_std: Their standard deviations before, of the same shape; above 0.

    Example:
        >>> mean, variance = clipped_moments(torch.tensor([0.5]), torch.tensor([0.05]))
        >>> round(float(mean), 3), round(float(variance.sqrt()), 3)
        (0.5, 0.05)
    """
    low, high = -clean / noise_std, (1 - clean) / noise_std
    inside = torch.special.ndtr(high) - torch.special.ndtr(low)
    above = 1 - torch.special.ndtr(high)
    at_low, at_high = (
        noise_std * torch.exp(-(x**2) / 2) / math.sqrt(2 * math.pi) for x in (low, high)
    )
    # The first two moments of a normal variable with both tails moved onto the limits.
    mean = clean * inside + at_low - at_high + above
    square = (clean**2 + noise_std**2) * inside + clean * at_low - (1 + clean) * at_high + above
    return mean, square - mean**2


def _level(values: Tensor, left: Tensor) -> float:
    """Return the level on the scale of the image.

    Args:
        values: Patches as columns.
        left: Share of the variance that clipping left, ``(channels, patches)``.
    """
    num_channels, half = len(left), len(values) // 2
    values = values - values.mean(1, keepdim=True)
    _, directions = torch.linalg.eigh(values @ values.T)  # from the least to the greatest
    energies = (directions.T @ values).square()
    # The few greatest directions hold the brightness of a patch, not its texture.
    texture = energies[half:-num_channels].sum(0) / left.mean(0)
    flat = texture.topk(FLAT_PER_VALUE * len(values), largest=False).indices
    # Texture reaches further down in gray: colors share it, so that more directions are free.
    lowest = half if num_channels > 1 else len(values) // 3
    weights = directions[:, :lowest].square().view(num_channels, PATCH**2, lowest).sum(1)
    expected = (weights.T @ left[:, flat]).sum(1)
    return math.sqrt(_evenly_scattered(energies[:lowest, flat].sum(1) / expected))


def _patches(image: Tensor) -> Tensor:
    """Return patches from all over an image as columns, ``(values of a patch, N)``, in double."""
    num_channels, height, width = image.shape[1:]
    num_values = num_channels * PATCH**2
    if min(height, width) < PATCH:
        return image.new_zeros(num_values, 0).double()
    step = max(1, math.isqrt((height - PATCH + 1) * (width - PATCH + 1) // MANY_PATCHES))
    patches = image[0].unfold(1, PATCH, step).unfold(2, PATCH, step)
    return patches.permute(0, 3, 4, 1, 2).reshape(num_values, -1).double()


def _evenly_scattered(variances: Tensor) -> float:
    """Return the mean of the most variances, from the least on, that is not above their median."""
    ordered = variances.sort().values
    index = torch.arange(len(ordered), device=ordered.device)
    means = ordered.cumsum(0) / (index + 1)
    return float(means[means <= ordered[index // 2]][-1])
