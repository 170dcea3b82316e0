"""The number of a data set as super-resolution reports it: the mean over its images."""

from collections.abc import Callable

import torch
from torch import Tensor

from musigma.types import DataError
from musigma.uncertainty.metrics.blocks import blocks, images


class ImageMean:
    """The mean over images of ``finish(mean over values of a per-value function)``.

    The state is two numbers, whatever the number of pixels.

    Args:
        function: Takes flat ``mean, target, sigma`` and returns one number per value.
        finish: Turns the mean of one image into its metric, such as a PSNR.

    Example:
        >>> from musigma.functional.scores import log_likelihood
        >>> metric, image = ImageMean(log_likelihood), torch.zeros(1, 3, 4, 4)
        >>> metric.update(image, image + 0.02, torch.full_like(image, 0.01))
        >>> round(metric.compute(), 4)
        1.6862
    """

    def __init__(
        self,
        function: Callable[[Tensor, Tensor, Tensor], Tensor],
        finish: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.function = function
        self.finish = finish
        self.total = 0.0
        self.num_images = 0

    def update(self, mean: Tensor, target: Tensor, sigma: Tensor) -> None:
        """Add the images of one batch."""
        for image in images(mean, target, sigma):
            total = torch.zeros((), dtype=torch.float64)
            for block in blocks(*image):
                total += self.function(*block).sum()
            value = total / image[0].numel()
            self.total += (value if self.finish is None else self.finish(value)).item()
            self.num_images += 1

    def compute(self) -> float:
        """Return the mean over the images seen."""
        if not self.num_images:
            raise DataError("a metric over no images has no value; call update first")
        return self.total / self.num_images
