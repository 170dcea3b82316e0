"""Stages that smooth areas and keep edges, as the noise reduction of cameras does."""

import math
from abc import abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor

from musigma.degradations.stage import Parameter, Stage
from musigma.degradations.values import Amount
from musigma.functional import noise_reduction

_STD = Parameter("std", 0, 5, default=1)
_AMOUNT = Parameter("amount", 0, 1, default=1)


class _SmoothingStage(Stage):
    @property
    def window_radius(self) -> int:
        """Half the side of the widest window, rounded down."""
        return math.ceil(noise_reduction.STDS_IN_WINDOW * self.values["std"].high)

    @abstractmethod
    def smoothed(self, target: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        """Return the images without their noise and their weak texture."""

    def apply(
        self,
        target: Tensor,
        drawn: Mapping[str, Tensor],
        generator: torch.Generator | None,  # noqa: ARG002
    ) -> Tensor:
        """Move each image by its amount towards the smoothed one."""
        amount = drawn["amount"].to(target).view(-1, 1, 1, 1)
        return target + amount * (self.smoothed(target, drawn) - target)


class Bilateral(_SmoothingStage):
    """The bilateral filter: it averages pixels that are near and alike.

    Args:
        difference: How unlike they may be, in 8-bit levels: a standard deviation.
        std: How near, in pixels: a standard deviation.
        amount: How much of the filtered image is taken; the rest is the image as it came.

    Example:
        >>> str(Bilateral((4, 40), std=1.5, amount=(0.5, 1)))
        'bilateral(4..40, std=1.5, amount=0.5..1)'
    """

    name = "bilateral"
    parameters = (Parameter("difference", 0, 255, required=True), _STD, _AMOUNT)

    def __init__(self, difference: Amount, *, std: Amount = 1, amount: Amount = 1) -> None:
        super().__init__(difference=difference, std=std, amount=amount)
        self.filter_radius = self.window_radius

    def smoothed(self, target: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        """Filter each image."""
        return noise_reduction.bilateral(
            target, difference=drawn["difference"], std=drawn["std"], radius=self.window_radius
        )


class Wiener(_SmoothingStage):
    """The local Wiener filter: where an area varies no more than noise would, its mean is left.

    Args:
        noise: Standard deviation of the noise that is expected, in 8-bit levels.
        std: Standard deviation of the Gaussian window, in pixels.
        amount: As that of `Bilateral`.

    Example:
        >>> str(Wiener((2, 12), std=(0.7, 2)))
        'wiener(2..12, std=0.7..2)'
    """

    name = "wiener"
    parameters = (Parameter("noise", 0, 255, required=True), _STD, _AMOUNT)

    def __init__(self, noise: Amount, *, std: Amount = 1, amount: Amount = 1) -> None:
        super().__init__(noise=noise, std=std, amount=amount)
        # The variance is that of what the mean leaves, so that two windows follow each other.
        self.filter_radius = 2 * self.window_radius

    def smoothed(self, target: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        """Filter each image."""
        return noise_reduction.wiener(
            target, noise_std=drawn["noise"], std=drawn["std"], radius=self.window_radius
        )
