"""Stages that blur or sharpen."""

import math
from abc import abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor

from musigma.degradations.stage import STDS_IN_RADIUS, Parameter, Stage
from musigma.degradations.values import Amount
from musigma.functional import blur as blurs
from musigma.types import ConfigError


class _BlurStage(Stage):
    @abstractmethod
    def kernels_of(self, drawn: Mapping[str, Tensor]) -> Tensor:
        """Return a kernel per image."""

    def kernels(self, draws: Tensor) -> Tensor:
        """Return a kernel per image."""
        return self.kernels_of(self.drawn(draws))

    def apply(
        self,
        target: Tensor,
        drawn: Mapping[str, Tensor],
        generator: torch.Generator | None,  # noqa: ARG002
    ) -> Tensor:
        """Blur each image with its kernel."""
        return blurs.blur(target, self.kernels_of(drawn))


class Blur(_BlurStage):
    """Convolution with a Gaussian, of one width or of two at an angle.

    Args:
        std: Standard deviation in pixels of where the stage stands: those of the target before
            shrinking, those of the input after it.
        across: Standard deviation at a right angle to the first; the same where left out.
        angle: Of the first, in degrees.

    Example:
        >>> str(Blur((0.5, 2), across=0.6, angle=(0, 180)))
        'blur(0.5..2, across=0.6, angle=0..180)'
        >>> Blur(1.2)(torch.rand(1, 3, 12, 10), torch.rand(1, 0)).shape
        torch.Size([1, 3, 12, 10])
    """

    name = "blur"
    parameters = (
        Parameter("std", 0, 100, required=True),
        Parameter("across", 0, 100),
        Parameter("angle", -360, 360),
    )

    def __init__(
        self, std: Amount, *, across: Amount | None = None, angle: Amount | None = None
    ) -> None:
        if (across is None) != (angle is None):
            raise ConfigError("a blur of two widths needs both across and angle")
        super().__init__(std=std, across=across, angle=angle)
        widest = max(self.values[name].high for name in ("std", "across") if name in self.values)
        self.filter_radius = math.ceil(STDS_IN_RADIUS * widest)

    def kernels_of(self, drawn: Mapping[str, Tensor]) -> Tensor:
        """Return a kernel per image."""
        return blurs.gaussian_kernels(
            drawn["std"],
            across=drawn.get("across"),
            angle=drawn.get("angle"),
            radius=self.filter_radius,
        )


class MotionBlur(_BlurStage):
    """Blur by a camera that moved straight during the exposure.

    Args:
        length: Of the way, in pixels.
        angle: Of the way, in degrees.

    Example:
        >>> str(MotionBlur((1, 5), angle=(0, 180)))
        'motion(1..5, angle=0..180)'
    """

    name = "motion"
    parameters = (
        Parameter("length", 0, 100, required=True),
        Parameter("angle", -360, 360, default=0),
    )

    def __init__(self, length: Amount, *, angle: Amount = 0) -> None:
        super().__init__(length=length, angle=angle)
        self.filter_radius = math.ceil(self.values["length"].high / 2)

    def kernels_of(self, drawn: Mapping[str, Tensor]) -> Tensor:
        """Return a kernel per image."""
        return blurs.motion_kernels(
            drawn["length"], angle=drawn["angle"], radius=self.filter_radius
        )


class Sharpen(Stage):
    """Unsharp masking, as cameras and programs do it: the image plus a part of what blur takes.

    Args:
        amount: How much of the difference to the blurred image is added; 1 is strong.
        std: Standard deviation of the Gaussian blur, in pixels.

    Example:
        >>> str(Sharpen((0.2, 1.5), std=0.8))
        'sharpen(0.2..1.5, std=0.8)'
    """

    name = "sharpen"
    parameters = (
        Parameter("amount", 0, 10, required=True),
        Parameter("std", 0, 10, default=1),
    )

    def __init__(self, amount: Amount, *, std: Amount = 1) -> None:
        super().__init__(amount=amount, std=std)
        self.filter_radius = math.ceil(STDS_IN_RADIUS * self.values["std"].high)

    def apply(
        self,
        target: Tensor,
        drawn: Mapping[str, Tensor],
        generator: torch.Generator | None,  # noqa: ARG002
    ) -> Tensor:
        """Sharpen each image by its amount."""
        kernels = blurs.gaussian_kernels(drawn["std"], radius=self.filter_radius)
        detail = target - blurs.blur(target, kernels)
        return target + drawn["amount"].to(target).view(-1, 1, 1, 1) * detail
