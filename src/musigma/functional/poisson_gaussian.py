"""Poisson-Gaussian noise, that of microscopes and of raw pictures, and its estimate from a picture.

`musigma.functional.noisy_pairs` estimates it from two pictures of each scene.

The variance of a pixel is ``gain * (signal - black) + std^2``: the first part is that of counted
light, the second that of reading out the sensor. All numbers are in 8-bit levels.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, conv2d

from musigma.functional.noise import CORRECTIONS, clipped_moments
from musigma.types import ImageError

BLOCK = 8
"""Side of the squares of which mean and variance are compared."""

MIN_BLOCKS = 100
"""Fewer squares do not show how the variance grows."""

MAX_SIDE = 2048
"""Most rows and columns of a picture that are looked at, to save memory."""

_BINS = 16
_ROUNDS = 12  # in which the squares are chosen that fit the line
_MAX_CLIPPED = 0.9  # share of the variance that clipping may take before a square is left out
_SIGNIFICANT = 5  # standard errors by which the gain lies above 0
_FLAT_QUANTILE = 0.3
_NORMAL_BELOW = 0.1587  # share of a normal distribution that is more than one deviation below
_KEPT_DEVIATIONS = 2.5
_TWO_LEVELS = torch.tensor([0.1, 0.9])  # quantiles of a picture, dark and bright
_MIN_GROWTH = 1.5  # of the variance from one to the other, below which growth is not worth a word
_MAX_OVER_FLAT = 3  # times the level of flat parts, beyond which the rest is rather texture
_MAX_SCATTER = 0.15  # of cube roots of variances over their middle; of noise alone it is 0.115
_LEAST_VARIANCE = (0.2 / 255) ** 2  # of rounding to 8 bits, about
_KERNEL = ((1.0, -2.0, 1.0), (-2.0, 4.0, -2.0), (1.0, -2.0, 1.0))


class PoissonGaussian(NamedTuple):
    """Noise whose variance grows with the signal.

    Attributes:
        gain: Variance over signal, in 8-bit levels.
        std: Standard deviation where there is no signal, in 8-bit levels.
        black: The level of no signal. One picture tells only ``std^2 - gain * black``; so one of
            the two is 0.
        gain_error: Standard error of the gain, as far as the scatter of the picture's parts shows.
    """

    gain: float
    std: float
    black: float
    gain_error: float = 0.0

    @property
    def grows(self) -> bool:
        """Whether the variance surely grows with the signal."""
        return self.gain > _SIGNIFICANT * self.gain_error

    def variance(self, signal: Tensor) -> Tensor:
        """Return the variance of pixels, both in ``[0, 1]``.

        Example:
            >>> noise = PoissonGaussian(gain=4.0, std=3.0, black=0.0)
            >>> round(float(noise.variance(torch.tensor(0.0)).sqrt() * 255), 3)
            3.0
        """
        light = (signal - self.black / 255).clamp(min=0)
        return self.gain / 255 * light + (self.std / 255) ** 2

    def __str__(self) -> str:
        """The model as it is shown to users.

        Example:
            >>> print(PoissonGaussian(gain=6.91, std=0.0, black=3.8, gain_error=0.1))
            variance 6.91 (signal - 3.8)
            >>> print(PoissonGaussian(gain=0.5, std=2.0, black=0.0, gain_error=0.01))
            variance 0.5 signal + 2^2
        """
        if self.black:
            return f"variance {self.gain:.3g} (signal - {self.black:.3g})"
        return f"variance {self.gain:.3g} signal + {self.std:.3g}^2"


def fit_law(signals: Tensor, variances: Tensor, weights: Tensor) -> PoissonGaussian:
    """Fit the law to variances that were measured at several signals, all in ``[0, 1]``.

    Black is 0 here, so that where the line would cut the axis above 0 the noise is that of counted
    light alone.

    Args:
        signals: ``(N,)``; not all of them 0.
        variances: Of the noise there.
        weights: How much each of them counts: one over the square of its error.

    Example:
        >>> signals = torch.tensor([0.2, 0.4, 0.8], dtype=torch.float64)
        >>> law = fit_law(signals, 0.02 * signals + 0.01, torch.ones(3))
        >>> round(law.gain / 255, 4), round(law.std / 255, 4)
        (0.02, 0.1)
    """
    slope, intercept, error = _line(signals, variances, weights)
    if slope <= 0:
        slope, intercept = 0.0, float((weights * variances).sum() / weights.sum())
    elif intercept < 0:
        slope, intercept = float((weights * variances / signals).sum() / weights.sum()), 0.0
    return _model(slope, intercept, error)


def level_of(image: Tensor, flat_std: float) -> float:
    """Return the level of white noise to tell a denoiser, in 8-bit levels.

    Noise that grows with the signal is weak in the dark, where pictures are flat, so that an
    estimate from flat parts is too low for the rest. Where the noise surely grows, the level is its
    root mean square over the picture.

    Args:
        image: ``(1, C, H, W)`` in ``[0, 1]``.
        flat_std: The level in flat parts, from `musigma.functional.noise.estimate_noise_std`.

    Example:
        >>> level_of(torch.full((1, 3, 96, 96), 0.5), flat_std=3.0)
        3.0
    """
    image = _middle(image)
    try:
        noise = estimate_poisson_gaussian(image)
    except ImageError:
        return flat_std  # it is too small to tell
    level = 255 * math.sqrt(float(noise.variance(image).mean()))
    is_bounded = flat_std < level <= _MAX_OVER_FLAT * flat_std
    is_sure = is_bounded and noise.grows and _is_steep(noise, image)
    return level if is_sure and _scatters_as_noise(noise, image) else flat_std


def _middle(image: Tensor) -> Tensor:
    """Return at most `MAX_SIDE` rows and columns from the middle of an image."""
    starts = [max(0, length - MAX_SIDE) // 2 for length in image.shape[2:]]
    return image[..., starts[0] : starts[0] + MAX_SIDE, starts[1] : starts[1] + MAX_SIDE]


def _is_steep(noise: PoissonGaussian, image: Tensor) -> bool:
    """Return whether the variance differs much between the dark and the bright parts."""
    values = image.flatten().float()
    # A sample is enough, and `quantile` takes no more than 16 million values.
    values = values[:: max(1, len(values) // 1_000_000)]
    dark, bright = noise.variance(values.quantile(_TWO_LEVELS.to(image.device)))
    return bool(bright > _MIN_GROWTH * dark and bright > (1 / 255) ** 2)


def _scatters_as_noise(noise: PoissonGaussian, image: Tensor) -> bool:
    """Return whether the variances of the squares scatter around the law as those of noise do.

    Those of texture scatter far more.
    """
    means, variances, clipped = _blocks_of(image)
    whole = clipped == 0
    if int(whole.sum()) < MIN_BLOCKS:
        return False
    ratio = variances[whole] / noise.variance(means[whole]).clamp(min=_LEAST_VARIANCE)
    root = ratio ** (1 / 3)
    middle = root.median()
    return bool(middle - root.quantile(_NORMAL_BELOW) < _MAX_SCATTER * middle)


def growth_of(image: Tensor) -> str:
    """Say how the variance of a gray picture's noise grows with the signal; empty if it does not.

    Color pictures have been developed by a camera, which bends this relation.

    Example:
        >>> growth_of(torch.rand(1, 3, 64, 64))
        ''
    """
    if image.shape[1] != 1:
        return ""
    image = _middle(image)
    try:
        noise = estimate_poisson_gaussian(image)
    except ImageError:
        return ""  # it is too small to tell
    return str(noise) if noise.grows and _is_steep(noise, image) else ""


def estimate_poisson_gaussian(image: Tensor) -> PoissonGaussian:
    """Estimate how the variance of white noise depends on the signal, from one picture.

    A filter that takes away whatever is even, or a slope, leaves noise; its mean square in a square
    of 8x8 pixels is the variance there. A line is fitted to these variances over the means of the
    squares. Squares with texture have more variance than the line says and are left out, together
    with as many on the other side. What clipping to ``[0, 1]`` took is put back.

    Args:
        image: ``(1, C, H, W)`` in ``[0, 1]``; values beyond say that nothing was clipped.

    Example:
        >>> from musigma.functional.sensor_noise import sensor_noise
        >>> ramp = torch.linspace(0.2, 0.8, 256).expand(1, 1, 256, 256)
        >>> generator = torch.Generator().manual_seed(0)
        >>> noisy = sensor_noise(ramp, gain=2, std=5, generator=generator)
        >>> noise = estimate_poisson_gaussian(noisy)
        >>> 1.7 < noise.gain < 2.3, noise.grows
        (True, True)
    """
    if image.ndim != 4 or image.shape[0] != 1 or not image.is_floating_point():
        raise ImageError(
            f"expected one float image (1, C, H, W) in [0, 1], got {tuple(image.shape)} "
            f"{image.dtype}"
        )
    blocks = _blocks_of(image)
    if len(blocks.means) < MIN_BLOCKS:
        height, width = image.shape[2:]
        raise ImageError(
            f"{width} x {height} pixels are too few to see how the noise grows with the signal; "
            f"at least {MIN_BLOCKS} squares of {BLOCK} x {BLOCK} pixels are needed"
        )
    if image.amin() < 0 or image.amax() > 1:
        return _model(*_fitted_line(blocks.means, blocks.variances))
    return _model(*_unclipped_line(blocks))


class _Blocks(NamedTuple):
    """The mean, the variance of the noise and the share of clipped values of each square."""

    means: Tensor
    variances: Tensor
    clipped: Tensor


def _blocks_of(image: Tensor) -> _Blocks:
    if min(image.shape[2:]) < BLOCK + 2:
        return _Blocks(*image.new_zeros(3, 0).double())
    parts = [_blocks_of_plane(plane[None, None].double()) for plane in image[0]]
    return _Blocks(*(torch.cat(part) for part in zip(*parts, strict=True)))


def _blocks_of_plane(plane: Tensor) -> _Blocks:
    kernel = plane.new_tensor(_KERNEL)
    residual = conv2d(plane, kernel.view(1, 1, 3, 3)).square() / kernel.square().sum()
    inside = plane[..., 1:-1, 1:-1]
    at_limit = ((inside <= 0) | (inside >= 1)).double()
    return _Blocks(*(avg_pool2d(part, BLOCK).flatten() for part in (inside, residual, at_limit)))


def _unclipped_line(blocks: _Blocks) -> tuple[float, float, float]:
    """Fit the line again and again, with what clipping took of the variances put back.

    What it took follows from normal noise. Counts of few photons are skewed, so that fewer of them
    are clipped; then as much less is put back.
    """
    means, variances, clipped = blocks
    line = _fitted_line(means, variances)
    clean = torch.linspace(-0.25, 1.25, 3001, dtype=means.dtype, device=means.device)
    for _ in range(CORRECTIONS):
        true = (line[0] * clean + line[1]).clamp(min=_LEAST_VARIANCE)
        clipped_mean, clipped_variance = clipped_moments(clean, true.sqrt())
        beyond = torch.special.ndtr(-clean / true.sqrt()) + torch.special.ndtr(
            (clean - 1) / true.sqrt()
        )
        index = torch.searchsorted(clipped_mean, means.contiguous()).clamp(max=len(clean) - 1)
        part = (clipped.sum() / beyond[index].sum().clamp(min=1e-9)).clamp(max=1)
        share = 1 - part * (1 - (clipped_variance / true)[index])
        kept = share > 1 - _MAX_CLIPPED
        if int(kept.sum()) < MIN_BLOCKS:
            return line
        shifted = means + part * (clean[index] - means)
        line = _fitted_line(shifted[kept], (variances / share)[kept])
    return line


def _fitted_line(means: Tensor, variances: Tensor) -> tuple[float, float, float]:
    """Return slope, intercept and standard error of the slope of the variance over the mean."""
    slope, intercept = _start(means, variances)
    error = math.inf
    for _ in range(_ROUNDS):
        expected = (slope * means + intercept).clamp(min=_LEAST_VARIANCE)
        ratio = variances / expected
        kept, factor = _usual(ratio)
        line = _line(means[kept], variances[kept], expected[kept] ** -2)
        slope, intercept, error = (factor * number for number in line)
    return slope, intercept, error


def _start(means: Tensor, variances: Tensor) -> tuple[float, float]:
    """Return a line through the flatter squares of each range of means."""
    order = means.argsort()
    parts = [part for part in order.tensor_split(_BINS) if len(part)]
    center = torch.stack([means[part].mean() for part in parts])
    flat = torch.stack([variances[part].quantile(_FLAT_QUANTILE) for part in parts])
    slope, intercept, _ = _line(center, flat, flat.clamp(min=_LEAST_VARIANCE) ** -2)
    return slope, intercept


def _usual(ratio: Tensor) -> tuple[Tensor, float]:
    """Return which ratios lie around the middle, and what the mean of all is over that of these.

    Cube roots of variances are nearly normal (Wilson and Hilferty, 1931), so that as many are left
    out on both sides, and the mean without texture follows from the middle and from the scatter of
    those below it.
    """
    root = ratio.clamp(min=0) ** (1 / 3)
    middle = root.median()
    scatter = (middle - root.quantile(_NORMAL_BELOW)).clamp(min=1e-9)
    kept = (root - middle).abs() <= _KEPT_DEVIATIONS * scatter
    mean = middle**3 + 3 * middle * scatter**2
    return kept, float(mean / ratio[kept].mean().clamp(min=1e-12))


def _line(means: Tensor, variances: Tensor, weights: Tensor) -> tuple[float, float, float]:
    """Return slope, intercept and standard error of the slope of a line by least squares."""
    total = weights.sum()
    center = (weights * means).sum() / total
    height = (weights * variances).sum() / total
    spread = (weights * (means - center).square()).sum()
    # Where all means are equal there is no slope to be seen.
    if float(spread / total) < 1e-9:
        return 0.0, float(height), math.inf
    slope = (weights * (means - center) * (variances - height)).sum() / spread
    misfit = variances - height - slope * (means - center)
    error = ((weights * misfit.square()).mean() / spread).sqrt()
    return float(slope), float(height - slope * center), float(error)


def _model(slope: float, intercept: float, error: float) -> PoissonGaussian:
    gain = max(slope, 0.0)
    if gain > 0 and intercept < 0:
        return PoissonGaussian(255 * gain, 0.0, -255 * intercept / gain, 255 * error)
    return PoissonGaussian(255 * gain, 255 * math.sqrt(max(intercept, 0.0)), 0.0, 255 * error)
