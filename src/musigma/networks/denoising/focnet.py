"""FOCNet: four resolutions that exchange features, each step remembering all before it."""

import functools
from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812 - the name that the field uses
from torch import Tensor, nn

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.layers import conv3x3, pad_to_cells
from musigma.networks.registry import Variant, register_variants

CELL = 8
"""Pixels per side that become one at the coarsest of the four resolutions."""

ORDER = 0.2
"""Order of the fractional derivative whose discrete form weighs earlier steps."""

UP, DOWN = (2, 1, 0), (1, 2, 3)
"""Resolutions that a sweep passes, the finest being 0."""


def memory_weights(count: int) -> list[float]:
    """Return the weights of `count` earlier steps, the oldest first; they sum to one.

    With the order `b`, ``w_1 = b`` and ``w_k = (1 - (1 + b) / k) w_(k - 1)``, a power law.

    Example:
        >>> [round(weight, 3) for weight in memory_weights(3)]  # of 0.2, 0.08 and 0.048
        [0.146, 0.244, 0.61]
    """
    weights = [ORDER]
    for k in range(2, count + 1):
        weights.append((1 - (1 + ORDER) / k) * weights[-1])
    return [weight / sum(weights) for weight in reversed(weights)]


def path(num_sweeps: int) -> list[tuple[int, bool]]:
    """Return each step's resolution and whether it comes from the coarser one."""
    up, down = [(level, True) for level in UP], [(level, False) for level in DOWN]
    return (up + down) * (num_sweeps - 1) + up


class Step(nn.Module):
    """Adds features of the neighboring resolution, convolves, and adds a mean of earlier steps."""

    def __init__(self, width: int, *, from_coarser: bool) -> None:
        super().__init__()
        self.change = Double(width) if from_coarser else Half()
        self.gate = nn.Parameter(torch.ones(1))
        self.conv = _conv(width, width)

    def forward(self, earlier: Sequence[Tensor], neighbor: Tensor) -> Tensor:
        """Return the next features of a resolution, given all its earlier ones."""
        features = F.relu(self.conv(earlier[-1] + self.gate * self.change(neighbor)))
        for weight, state in zip(memory_weights(len(earlier)), earlier, strict=True):
            features = features + weight * state
        return features


class Half(nn.Module):
    """Max pooling over 2x2 values."""

    def forward(self, features: Tensor) -> Tensor:
        """Halve the resolution."""
        return F.max_pool2d(features, 2)


class Double(nn.Sequential):
    """A transposed 2x2 convolution, written so that rounding does not depend on the tile."""

    def __init__(self, width: int) -> None:
        super().__init__(nn.Conv2d(width, 4 * width, 1, bias=False), nn.PixelShuffle(2))


class FOCNet(Network):
    """Fractional optimal control network, without a noise map.

    The sweeps, the pooling and the normalized memory are those of the authors' MatConvNet code,
    where the paper leaves them open. Batch normalization is folded into the convolutions. The
    layers that enlarge have no biases, because the authors' biases stay 0. Their weights are MATLAB
    files, which cannot be read here.

    Args:
        scale: 1.
        channels: 1 for gray images, 3 for color.
        width: Channels of every layer.
        num_sweeps: Passes from the coarsest resolution to the finest.
    """

    def __init__(
        self, *, scale: int, channels: int = 1, width: int = 128, num_sweeps: int = 4
    ) -> None:
        super().__init__()
        self.info = NetworkInfo(
            scale=scale,
            task="denoising",
            in_channels=channels,
            out_channels=channels,
            feature_channels=width,
            feature_scale=scale,
            feature_receptive_radius=_radius(num_sweeps, last_convs=1),
            receptive_radius=_radius(num_sweeps, last_convs=2),
            size_multiple=CELL,
        )
        self.head = nn.Sequential(_conv(channels, width), nn.ReLU(), _conv(width, width), nn.ReLU())
        self.start = nn.ModuleList(
            nn.Sequential(Half(), _conv(width, width), nn.ReLU()) for _ in DOWN
        )
        self.steps = nn.ModuleList(
            Step(width, from_coarser=from_coarser) for _, from_coarser in path(num_sweeps)
        )
        self.last = nn.Sequential(_conv(width, width), nn.ReLU())
        self.tail = conv3x3(width, channels)
        self.num_sweeps = num_sweeps

    def features(self, degraded: Tensor) -> Tensor:
        """Return the input of the last convolution; its sides are multiples of eight."""
        states = [[self.head(pad_to_cells(degraded, CELL))]]
        for layers in self.start:
            states.append([layers(states[-1][0])])
        for step, (level, from_coarser) in zip(self.steps, path(self.num_sweeps), strict=True):
            neighbor = states[level + 1 if from_coarser else level - 1][-1]
            states[level].append(step(states[level], neighbor))
        return self.last(states[0][-1])

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Add the predicted residual to the image."""
        height, width = degraded.shape[-2:]
        return degraded + self.tail(features)[..., :height, :width]


def _conv(in_channels: int, out_channels: int) -> nn.Conv2d:
    layer = conv3x3(in_channels, out_channels)
    # Keeps the variance through 26 layers (He et al. 2015).
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return layer


def _radius(num_sweeps: int, *, last_convs: int) -> int:
    """Follow the furthest pixel that is seen from the output back to the input.

    Each step sees the earlier step of its own resolution and the neighboring resolution. The
    radius is the same in both directions; the position in a cell that sees furthest counts.
    """
    steps = path(num_sweeps)

    @functools.cache
    def furthest(level: int, time: int, pixel: int) -> int:
        """Return the last input pixel that features after `time` steps depend on."""
        while time and steps[time - 1][0] != level:
            time -= 1
        if time:
            from_coarser = steps[time - 1][1]
            pixel += 1
            neighbor = pixel // 2 if from_coarser else 2 * pixel + 1
            beside = level + 1 if from_coarser else level - 1
            return max(furthest(level, time - 1, pixel), furthest(beside, time - 1, neighbor))
        if level:
            return furthest(level - 1, 0, 2 * (pixel + 1) + 1)
        return pixel + 2

    return max(furthest(0, len(steps), pixel + last_convs) - pixel for pixel in range(CELL))


register_variants(
    FOCNet,
    {
        "focnet": Variant("For gray images."),
        "focnet-colour": Variant("For color images.", {"channels": 3}),
    },
    scales=(1,),
    paper="Jia et al., FOCNet: A Fractional Optimal Control Network for Image Denoising, CVPR 2019",
    year=2019,
)
