"""The half-width of intervals by operations that every ONNX runtime has."""

from itertools import pairwise

import torch
from torch import Tensor

from musigma.functional.constants import SIGMA_FLOOR
from musigma.uncertainty.calibration import Calibration


def half_width_by_ramps(calibration: Calibration, sigma: Tensor) -> Tensor:
    """Compute `Calibration.half_width` by operations that every ONNX runtime has.

    The map of the calibration is continuous and linear between its knots, so it is a sum of ramps
    that begin at the knots.
    """
    knots, values = calibration.knots, calibration.values
    slopes = [values[0] / knots[0]]
    points = list(zip(knots, values, strict=True))
    slopes += [(v - u) / (b - a) for (a, u), (b, v) in pairwise(points)]
    slopes.append(values[-1] / knots[-1])
    sigma = sigma.clamp_min(SIGMA_FLOOR)
    std = slopes[0] * sigma
    for knot, (before, after) in zip(knots, pairwise(slopes), strict=True):
        if before != after:
            std = std + (after - before) * torch.relu(sigma - knot)
    return calibration.factor * std
