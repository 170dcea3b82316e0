"""The mean of a box of a picture, and what can be said about its error."""

from typing import NamedTuple

from torch import Tensor

from musigma.types import ConfigError
from musigma.uncertainty.quantities import Box


class BoxStatistics(NamedTuple):
    """The mean of a box per channel, and two half-widths of an interval.

    Attributes:
        mean: Mean of the values.
        independent: Half-width if the errors of all pixels were independent; the smallest.
        correlated: Half-width if the errors of all pixels were the same; the largest.
    """

    mean: list[float]
    independent: list[float]
    correlated: list[float]


def box_statistics(
    mean: Tensor, half_width: Tensor, box: Box, *, levels: float = 255
) -> BoxStatistics:
    r"""Return the mean of a box with the range in which the half-width of its interval lies.

    With half-widths :math:`h_i` of n pixels, the half-width of the mean is
    :math:`\sqrt{\sum h_i^2} / n` for independent errors and :math:`\sum h_i / n` for equal errors.
    A model with one sigma per pixel does not say which; errors of neighbors are alike, so that the
    truth lies between the two.

    Args:
        mean: The result, ``(1, C, H, W)``.
        half_width: Half the width of each interval, of the same shape.
        box: Pixels inside the result.
        levels: By which all values are multiplied; 1 for values in units of their own.

    Example:
        >>> import torch
        >>> values = torch.full((1, 1, 4, 4), 0.2)
        >>> statistics = box_statistics(values, values / 10, Box(0, 0, 2, 2))
        >>> [round(part[0], 2) for part in statistics]
        [51.0, 2.55, 5.1]
    """
    x, y, width, height = box
    if width < 1 or height < 1 or x + width > mean.shape[-1] or y + height > mean.shape[-2]:
        raise ConfigError(
            f"the box {x},{y},{width},{height} does not lie inside the result of "
            f"{mean.shape[-1]} x {mean.shape[-2]} pixels"
        )
    inside = (slice(None), slice(y, y + height), slice(x, x + width))
    values, errors = (levels * image[0][inside].double().flatten(1) for image in (mean, half_width))
    return BoxStatistics(
        mean=values.mean(1).tolist(),
        independent=(errors.square().sum(1).sqrt() / errors.shape[1]).tolist(),
        correlated=errors.mean(1).tolist(),
    )


def in_words(statistics: BoxStatistics, number: str = ".1f") -> str:
    """Say the mean and its interval in words, without more than is known.

    Args:
        statistics: Of a box.
        number: How a number is written, as for `format`.

    Example:
        >>> in_words(BoxStatistics([51.0], [2.5], [5.1]))  # doctest: +NORMALIZE_WHITESPACE
        'Mean 51.0. Its error is between ± 2.5 (if the errors of the pixels were independent) and
        ± 5.1 (if they were all the same). Errors of neighbors are alike, so it is more than the
        first; the model does not say how much more.'
    """
    mean, independent, correlated = (
        ", ".join(format(value, number) for value in part) for part in statistics
    )
    return (
        f"Mean {mean}. Its error is between ± {independent} (if the errors of the pixels were "
        f"independent) and ± {correlated} (if they were all the same). Errors of neighbors are "
        "alike, so it is more than the first; the model does not say how much more."
    )
