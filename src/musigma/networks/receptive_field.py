"""How far a network sees, measured by gradients.

Whoever adds a network states two numbers in its `NetworkInfo`: `receptive_radius` and
`feature_receptive_radius`. Instead of deriving them by hand, set both to 0, measure, and write the
results down; the shared test of all networks compares them with the measurement.

Example:
    >>> from musigma.networks import create
    >>> network = create("espcn", scale=2)
    >>> measure_receptive_radius(network), measure_receptive_radius(network, of="features")
    (4, 3)
"""

import copy
import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Literal

import torch
from torch import Tensor

from musigma.networks.base import Network
from musigma.types import ConfigError

Output = Literal["mean", "sigma", "features"]
Step = int | Literal["halve", "double"]


def measure_receptive_radius(
    network: Network, *, of: Output = "mean", limit: int = 1024
) -> int | None:
    """Measure how many pixels away an input pixel can be and still change the output there.

    The gradient of an output pixel is taken with respect to a strip of random values, for every
    position within a cell of ``size_multiple`` pixels. Some seconds for a large network; settings
    that make it narrower do not change the radius, and make it much faster.

    Args:
        network: With any weights but zeros; random ones are best.
        of: Which output to measure.
        limit: Radius from which the network is taken to see the whole image.

    Returns:
        The radius, or `None` for the whole image.
    """
    working = copy.deepcopy(network).double().eval()
    run, values_per_pixel = _output(working, of)
    radius = working.receptive_radius or 0
    step = working.size_multiple
    while radius < limit:
        margin = step * math.ceil((radius + 2) / step)
        measured = _measure(working, run, values_per_pixel, margin)
        if measured < margin:
            return measured
        radius = 2 * margin
    return None


def _output(network: Network, of: Output) -> tuple[Callable[[Tensor], Tensor], Fraction]:
    if of == "features":
        return network.features, Fraction(network.scale, network.feature_scale)
    if of == "sigma" and not network.has_sigma:
        raise ConfigError("the network has no sigma to measure; with_sigma(network) adds one")
    return lambda degraded: getattr(network(degraded), of), Fraction(network.scale)


def _measure(
    network: Network, run: Callable[[Tensor], Tensor], values_per_pixel: Fraction, margin: int
) -> int:
    step, radius = network.size_multiple, 0
    for dim, phase in itertools.product((2, 3), range(step)):
        # A strip is enough: what a network sees, it sees along each axis.
        size = [2 * step, 2 * step]
        size[dim - 2] = 2 * margin + step
        pixel = margin + phase
        degraded = _random((1, network.in_channels, *size)).requires_grad_()
        first = math.floor(pixel * values_per_pixel)
        end = math.ceil((pixel + 1) * values_per_pixel)
        values = run(degraded).narrow(dim, first, end - first)
        (gradient,) = torch.autograd.grad((values * _random(values.shape)).sum(), degraded)
        seen = gradient.abs().sum(dim=[d for d in range(4) if d != dim]).nonzero()
        radius = max(radius, int((seen - pixel).abs().max()))
    return radius


def _random(size: Sequence[int]) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(tuple(size), generator=generator, dtype=torch.float64)


def radius_through(steps: Sequence[Step], *, cell: int) -> int:
    """Return the radius of a stack that works at several resolutions, such as a U-Net.

    Args:
        steps: From the input to the output: a number is the sum of the radii of convolutions in a
            row; ``"halve"`` and ``"double"`` change the resolution.
        cell: Input pixels per side that become one at the coarsest resolution.

    Example:
        >>> radius_through([1, "halve", 1, "double", 1], cell=2)
        5
    """
    furthest = 0
    for pixel in range(cell):
        # The last pixel that is seen, followed from the output back to the input. The radius in the
        # other direction is the same, because a cell is its own mirror image.
        last = pixel
        for step in reversed(steps):
            if step == "double":
                last = last // 2
            elif step == "halve":
                last = 2 * last + 1
            else:
                last += step
        furthest = max(furthest, last - pixel)
    return furthest
