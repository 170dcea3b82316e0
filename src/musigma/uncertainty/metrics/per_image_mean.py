"""The number of a data set as super-resolution reports it: the mean over its images."""

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor

from musigma.functional.color import rgb_to_y
from musigma.functional.scores import crps_of_ratio, log_density_of_ratio, psnr_of
from musigma.types import DataError
from musigma.uncertainty.metrics.base import Metric
from musigma.uncertainty.metrics.blocks import Block

BlockFunction = Callable[[Block], Tensor]


class ImageMean(Metric):
    """The mean over images of ``finish(mean over values of a per-value function)``.

    The state is four numbers, whatever the number of pixels.

    Args:
        function: Returns a number for each value of a block.
        higher_is_better: The direction in which a model improves.
        finish: Turns the mean of an image into its metric, such as a PSNR.

    Example:
        >>> metric, image = ImageMean(block_pll, higher_is_better=True), torch.zeros(1, 3, 4, 4)
        >>> metric.update(image, image + 0.02, torch.full_like(image, 0.01))
        >>> round(metric.compute(), 4)
        1.6862
    """

    def __init__(
        self,
        function: BlockFunction,
        *,
        higher_is_better: bool | None = None,
        finish: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.function, self.finish = function, finish
        self.higher_is_better = higher_is_better
        self.reset()

    def reset(self) -> None:
        """Forget all images."""
        self.total, self.num_images = 0.0, 0
        self._image_total, self._image_values = 0.0, 0

    def add_block(self, block: Block) -> None:
        """Add a piece of an image."""
        values = self.function(block)
        self._image_total += float(values.sum())
        self._image_values += values.numel()

    def end_image(self) -> None:
        """Take note that an image is complete."""
        value = self._image_total / self._image_values
        if self.finish is not None:
            value = float(self.finish(torch.tensor(value, dtype=torch.float64)))
        self.total += value
        self.num_images += 1
        self._image_total, self._image_values = 0.0, 0

    def merge(self, other: Self) -> None:
        """Add all that another metric of the same function has seen."""
        self.total += other.total
        self.num_images += other.num_images

    def compute(self) -> float:
        """Return the mean over the images seen."""
        if not self.num_images:
            raise DataError("a metric over no images has no value; call update first")
        return self.total / self.num_images


def block_pll(block: Block) -> Tensor:
    """Return the log-likelihood of every value."""
    return log_density_of_ratio(block.ratio, block.floored)


def block_crps(block: Block) -> Tensor:
    """Return the continuous ranked probability score of every value."""
    return crps_of_ratio(block.ratio, block.floored, level=block.level)


def block_sigma_error(block: Block) -> Tensor:
    """Return the squared difference of sigma and the absolute error of every value."""
    return (block.sigma.flatten() - block.error).square()


def block_sigma_error_y(block: Block) -> Tensor:
    """Return the same for the luma of both, of RGB images."""
    return (_luma_of_difference(block.sigma) - _luma_of_difference(block.residual).abs()).square()


def _luma_of_difference(difference: Tensor) -> Tensor:
    """Return the luma ``(n,)`` of a difference of RGB values, ``(3, n)``: that of black is zero."""
    black = rgb_to_y(difference.new_zeros(1, 3, 1, 1))
    return (rgb_to_y(difference[None, :, :, None]) - black).flatten()


def pll_metric() -> ImageMean:
    """Return the metric of the predictive log-likelihood, in nats."""
    return ImageMean(block_pll, higher_is_better=True)


def crps_metric() -> ImageMean:
    """Return the metric of the continuous ranked probability score, in image units."""
    return ImageMean(block_crps, higher_is_better=False)


def sigma_psnr_metric(*, luma: bool = False) -> ImageMean:
    """Return the metric of the PSNR between sigma and the absolute error, in dB."""
    function = block_sigma_error_y if luma else block_sigma_error
    return ImageMean(function, higher_is_better=True, finish=psnr_of)
