"""The noise of a picture, as it is told to a denoiser and reported to users."""

from torch import Tensor

from musigma.functional.noise import NoiseEstimate, estimate_noise_std, noise_of
from musigma.functional.picture_statistics import PictureStatistics, Windowed
from musigma.functional.poisson_gaussian import growth_of, level_of


def measure_noise(
    image: Windowed,
    statistics: PictureStatistics,
    *,
    estimate_level: bool,
    look_for_growth: bool,
    max_side: int,
) -> NoiseEstimate:
    """Return the noise of a picture: its level, whether it is white, and how it grows.

    Args:
        image: ``(1, C, H, W)`` in ``[0, 1]``, a tensor or what is read in parts.
        statistics: What was measured in the picture.
        estimate_level: Whether a denoiser is told the level, which then takes a better estimate.
        look_for_growth: Whether to look for noise that grows with the signal, where it is white.
        max_side: Of a larger picture so many rows and columns of the middle are looked at.

    Raises:
        ImageError: The picture is too small to estimate the level from.
    """
    noise = noise_of(statistics)
    if estimate_level:
        middle = middle_of(image, max_side)
        noise = noise_of(statistics, white_std=level_of(middle, estimate_noise_std(middle)))
    if look_for_growth and noise.is_white:
        noise = noise._replace(growth=growth_of(middle_of(image, max_side)))
    return noise


def middle_of(image: Windowed, max_side: int) -> Tensor:
    """Return at most `max_side` rows and columns from the middle of an image.

    Example:
        >>> import torch
        >>> middle_of(torch.arange(5.0).view(1, 1, 1, 5), 3)
        tensor([[[[1., 2., 3.]]]])
    """
    starts = [max(0, length - max_side) // 2 for length in image.shape[2:]]
    rows, columns = (slice(start, start + max_side) for start in starts)
    return image[:, :, rows, columns]
