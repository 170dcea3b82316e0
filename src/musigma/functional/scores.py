"""How good a predicted sigma is: per value (`log_likelihood`, ...) and per image (`pll`, ...).

All take ``mean``, ``target`` and ``sigma`` of the same shape ``(N, C, H, W)`` in [0, 1]. The
likelihood and the CRPS read sigma as the standard deviation of a normal distribution around
``mean`` and floor it at `SIGMA_FLOOR`; `sigma_psnr` compares sigma as it is.
"""

import math
from statistics import NormalDist

import torch
from torch import Tensor

from musigma.functional.constants import SIGMA_FLOOR
from musigma.types import ConfigError, ImageError


def normal_factor(coverage: float) -> float:
    """Return the half-width, in sigmas, of the central normal interval that holds `coverage`.

    Example:
        >>> round(normal_factor(0.9), 4)
        1.6449
    """
    return NormalDist().inv_cdf((1 + check_share("coverage", coverage)) / 2)


def check_share(name: str, share: float) -> float:
    """Return a share that lies strictly between 0 and 1, or say which setting does not."""
    if not 0 < share < 1:
        raise ConfigError(f"{name} must lie strictly between 0 and 1, such as 0.9; got {share}")
    return share


def log_likelihood(mean: Tensor, target: Tensor, sigma: Tensor) -> Tensor:
    """Return ``log N(target; mean, sigma^2)`` of every value, in nats."""
    sigma = sigma.clamp_min(SIGMA_FLOOR)
    return log_density_of_ratio((target - mean) / sigma, sigma)


def log_density_of_ratio(ratio: Tensor, std: Tensor) -> Tensor:
    """Return the log-density of a normal variable that is `ratio` times `std` off its mean."""
    return -0.5 * ratio.square() - std.log() - 0.5 * math.log(2 * math.pi)


def crps_gaussian(mean: Tensor, target: Tensor, sigma: Tensor) -> Tensor:
    r"""Return the continuous ranked probability score of every value, in image units.

    .. math:: \sigma \left( z (2 \Phi(z) - 1) + 2 \varphi(z) - 1 / \sqrt{\pi} \right),
        \quad z = (\mathrm{target} - \mathrm{mean}) / \sigma

    Lower is better; as sigma goes to 0 it becomes ``|target - mean|``.
    """
    sigma = sigma.clamp_min(SIGMA_FLOOR)
    return crps_of_ratio((target - mean) / sigma, sigma)


def crps_of_ratio(ratio: Tensor, std: Tensor, *, level: Tensor | None = None) -> Tensor:
    """Return the score of a target that is `ratio` times `std` off the mean; see `crps_gaussian`.

    Args:
        ratio: Difference from the mean in units of `std`.
        std: Standard deviation of the normal distribution.
        level: ``erf(ratio / sqrt(2))``, where it is known already.
    """
    level = torch.erf(ratio / math.sqrt(2)) if level is None else level
    density = torch.exp(-0.5 * ratio.square()) / math.sqrt(2 * math.pi)
    return std * (ratio * level + 2 * density - 1 / math.sqrt(math.pi))


def sigma_squared_error(mean: Tensor, target: Tensor, sigma: Tensor) -> Tensor:
    """Return ``(sigma - |target - mean|)^2`` of every value."""
    return (sigma - (target - mean).abs()).square()


def pll(mean: Tensor, target: Tensor, sigma: Tensor) -> Tensor:
    """Return the predictive log-likelihood of each image, shape ``(N,)``; higher is better.

    The mean of `log_likelihood` over pixels and channels.

    Example:
        >>> image = torch.zeros(1, 3, 4, 4)
        >>> pll(image, image + 0.02, torch.full_like(image, 0.01))
        tensor([1.6862])
    """
    return _image_mean(log_likelihood(*check_same_shape(mean, target, sigma)))


def crps(mean: Tensor, target: Tensor, sigma: Tensor) -> Tensor:
    """Return the mean of `crps_gaussian` of each image, shape ``(N,)``; lower is better."""
    return _image_mean(crps_gaussian(*check_same_shape(mean, target, sigma)))


def sigma_psnr(mean: Tensor, target: Tensor, sigma: Tensor) -> Tensor:
    """Return the PSNR (dB, peak 1) between sigma and ``|target - mean|``, shape ``(N,)``."""
    return psnr_of(_image_mean(sigma_squared_error(*check_same_shape(mean, target, sigma))))


def interval_coverage(mean: Tensor, target: Tensor, half_width: Tensor) -> Tensor:
    """Return the share of each image's values within ``mean +- half_width``, shape ``(N,)``."""
    mean, target, half_width = check_same_shape(mean, target, half_width)
    return _image_mean(((target - mean).abs() <= half_width).to(half_width.dtype))


def psnr_of(squared_error: Tensor) -> Tensor:
    """Return ``-10 log10(squared_error)``, the PSNR for a peak of 1."""
    return -10 * squared_error.log10()


def check_same_shape(mean: Tensor, target: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the three maps, or say how their shapes differ; none is ever broadcast."""
    if mean.ndim != 4 or not mean.shape == target.shape == sigma.shape:
        shapes = ", ".join(str(tuple(map_.shape)) for map_ in (mean, target, sigma))
        raise ImageError(
            f"mean, target and sigma must share one shape (N, C, H, W); got {shapes}: "
            "crop the target to the prediction, or add the batch axis with image[None]"
        )
    return mean, target, sigma


def _image_mean(values: Tensor) -> Tensor:
    return values.flatten(1).mean(1)
