"""Errors of a picture whose input is known: what the input shows cannot be wrong by much.

A picture that was shrunk by bicubic says exactly, up to rounding, what the truth gives when it is
shrunk. So the shrunk error is known: it is the input less the shrunk mean. What is left open is the
part of the error that shrinking does not show.
"""

import torch
from torch import Tensor

from musigma.uncertainty.consistency import (
    enlarge,
    shrink,
    spread_of_input,
    without_visible_part,
)
from musigma.uncertainty.joint import JointErrors, support

MARGIN = 4
"""Input pixels around a region that count in what the input says about the region.

Beyond them lie less than 0.002 % of the squares of the weights.
"""

ROUNDING_VARIANCE = 1 / 12 / 255**2
"""Variance of the values of the input: they are rounded to 8 bits."""


class ErrorsGivenInput:
    """The errors of a joint model, given that the picture shrinks to its input.

    Args:
        errors: The joint model without the input.
        mean: The restored picture, ``(C, H, W)``.
        degraded: Its input.
        scale: Zoom factor.
    """

    def __init__(self, errors: JointErrors, mean: Tensor, degraded: Tensor, scale: int) -> None:
        device = errors.std.device
        self.errors, self.scale, self.std = errors, scale, errors.std
        self.mean, self.degraded = mean.to(device), degraded.to(device)
        seen = self.degraded - shrink(self.mean[None], scale)[0]
        self.shift = enlarge(seen[None], scale)[0]

    def to(self, device: torch.device) -> "ErrorsGivenInput":
        """Return the same on a device."""
        return ErrorsGivenInput(self.errors.to(device), self.mean, self.degraded, self.scale)

    def variance_of(self, weights: Tensor) -> float:
        """Return the variance of the weighted sum of all errors."""
        rows, columns = (
            _widened(part, length, self.scale)
            for part, length in zip(support(weights), weights.shape[1:], strict=True)
        )
        window = weights[:, rows, columns]
        hidden = torch.zeros_like(weights)
        hidden[:, rows, columns] = without_visible_part(window[None], self.scale)[0]
        rounding = spread_of_input(window[None], self.scale).double().square().sum()
        return self.errors.variance_of(hidden) + ROUNDING_VARIANCE * float(rounding)

    def sample(self, num_samples: int, generator: torch.Generator) -> Tensor:
        """Draw errors, ``(num_samples, C, H, W)``; means and samples then give the input back.

        What shrinking hides is scaled to the size that the bars state. Restored pictures nearly
        agree with their input, so that the bars are those of the hidden errors.
        """
        drawn = self.errors.sample(num_samples, generator)
        hidden = without_visible_part(drawn, self.scale)
        missing = (drawn / self.std).square().mean() / (hidden / self.std).square().mean()
        return self.shift + missing.sqrt() * hidden

    def log_likelihood(self, residual: Tensor) -> float:
        """Return the log density of a residual by the model without the input."""
        return self.errors.log_likelihood(residual)


def _widened(part: slice, length: int, scale: int) -> slice:
    """Add a margin to rows or columns and round to whole input pixels."""
    first = max(0, part.start // scale - MARGIN) * scale
    last = min(length, (-(-part.stop // scale) + MARGIN) * scale)
    return slice(first, last)
