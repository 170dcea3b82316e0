"""OISR: EDSR whose residual blocks are steps of an ODE solver, leapfrog or Runge-Kutta."""

import torch
from torch import Tensor, nn

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.layers import MeanShift, conv3x3, pixel_shuffle_upsampler, upsampler_radius
from musigma.networks.registry import Variant, register_variants
from musigma.networks.state_dict import (
    RELEASED_RANGE,
    Recognised,
    State,
    count,
    recogniser,
    shape,
    stored_range,
    tensor,
    upsampler_scale,
    without_mean_shift,
)


class SolverBlock(nn.Module):
    """Four PReLUs and convolutions, which a subclass combines into a step of a solver."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.conv2, self.conv3, self.conv4 = (conv3x3(width, width) for _ in range(4))
        self.relu1, self.relu2, self.relu3, self.relu4 = (nn.PReLU(width) for _ in range(4))


class LeapfrogBlock(SolverBlock):
    """Four steps of y[n+1] = y[n-1] + 2 G(y[n]) from y[-1] = 0, with learned factors for the 2."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.scale1, self.scale2, self.scale3, self.scale4 = (
            nn.Parameter(torch.tensor([2.0])) for _ in range(4)
        )

    def forward(self, y0: Tensor) -> Tensor:
        """Return y[4]."""
        y1 = self.conv1(self.relu1(y0)) * self.scale1
        y2 = self.conv2(self.relu2(y1)) * self.scale2 + y0
        y3 = self.conv3(self.relu3(y2)) * self.scale3 + y1
        return self.conv4(self.relu4(y3)) * self.scale4 + y2


class RungeKuttaBlock(SolverBlock):
    """One step of Heun's method, y + (G1(y) + G2(y + G1(y))) / 2, with a learned factor for 1/2."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.scale1 = nn.Parameter(torch.tensor([0.5]))

    def forward(self, features: Tensor) -> Tensor:
        """Return the next state."""
        slope1 = self.conv3(self.relu3(self.conv1(self.relu1(features))))
        slope2 = self.conv4(self.relu4(self.conv2(self.relu2(features + slope1))))
        return features + (slope1 + slope2) * self.scale1


class OISR(Network):
    """ODE-inspired network; parameter names are those of the official release.

    Args:
        scale: 2, 3 or 4.
        num_blocks: Steps of the solver, of four convolutions each.
        width: Channels of every block; 64 in the small network, 122 in the medium one.
        value_range: Range the layers work in. Official weights expect 255.
    """

    block: type[LeapfrogBlock] | type[RungeKuttaBlock]

    def __init__(
        self, *, scale: int, num_blocks: int = 8, width: int = 64, value_range: float = 1.0
    ) -> None:
        super().__init__()
        trunk_radius = 2 + 4 * num_blocks
        self.info = NetworkInfo(
            scale=scale,
            task="super-resolution",
            feature_channels=width,
            feature_scale=scale,
            feature_receptive_radius=trunk_radius,
            receptive_radius=trunk_radius + upsampler_radius(scale),
        )
        self.shift = MeanShift(value_range=value_range)
        self.head = nn.Sequential(conv3x3(3, width))
        blocks = [self.block(width) for _ in range(num_blocks)]
        self.body = nn.Sequential(*blocks, conv3x3(width, width))
        self.tail = nn.Sequential(pixel_shuffle_upsampler(width, scale), conv3x3(width, 3))

    def features(self, degraded: Tensor) -> Tensor:
        """Return the sum of the first and the last features of the trunk."""
        first = self.head(self.shift(degraded))
        return first + self.body(first)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:  # noqa: ARG002
        """Enlarge the features and turn them into an image."""
        return self.shift.inverse(self.tail(features))


class LeapfrogOISR(OISR):
    """OISR-LF."""

    block = LeapfrogBlock


class RungeKuttaOISR(OISR):
    """OISR-RK2."""

    block = RungeKuttaBlock


@recogniser
def recognise(state: State) -> Recognised:
    """Tell whether a state dict is an OISR; official ones work in 0..255."""
    for key in ("body.0.conv4.weight", "tail.1.weight"):
        shape(state, key, 4)
    tensor(state, "body.0.scale1")
    width = shape(state, "head.0.weight", 4)[0]
    settings = {
        "num_blocks": count(state, r"body\.\d+\.conv4\.weight"),
        "width": width,
        "value_range": stored_range(state) or RELEASED_RANGE,
    }
    name = "oisr-lf-s" if "body.0.scale4" in state else "oisr-rk2-s"
    return name, upsampler_scale(state, "tail.0", width), settings


PAPER = "He et al., ODE-Inspired Network Design for Single Image Super-Resolution, CVPR 2019"

register_variants(
    LeapfrogOISR,
    {"oisr-lf-s": Variant("8 leapfrog blocks of 64 channels: the OISR of the paper's tables.")},
    scales=(2, 3, 4),
    paper=PAPER,
    year=2019,
    recognise=recognise,
    adapt=without_mean_shift,
)
register_variants(
    RungeKuttaOISR,
    {"oisr-rk2-s": Variant("8 blocks of Heun's method, of 64 channels.")},
    scales=(2, 3, 4),
    paper=PAPER,
    year=2019,
    recognise=recognise,
    adapt=without_mean_shift,
)
