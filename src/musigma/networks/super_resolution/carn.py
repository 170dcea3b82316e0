"""CARN: blocks that cascade, each seeing all before it through a 1x1 convolution; and CARN-M."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.layers import MeanShift, conv3x3, enlarging_steps, upsampler_radius
from musigma.networks.registry import Variant, register_variants
from musigma.networks.state_dict import (
    Recognised,
    State,
    count,
    pixel_shuffle_factor,
    quotient,
    recogniser,
    shape,
    without_mean_shift,
)

SCALES = (2, 3, 4)


class ResidualBlock(nn.Module):
    """Conv, ReLU, Conv, added to the input, then ReLU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv3x3(width, width), nn.ReLU(inplace=True), conv3x3(width, width)
        )

    def forward(self, features: Tensor) -> Tensor:
        """Refine the features."""
        return torch.relu(features + self.body(features))


class EfficientBlock(nn.Module):
    """The same with two grouped convolutions and a 1x1 one that mixes the groups."""

    def __init__(self, width: int, num_groups: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _grouped(width, width, num_groups),
            nn.ReLU(inplace=True),
            _grouped(width, width, num_groups),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, kernel_size=1),
        )

    def forward(self, features: Tensor) -> Tensor:
        """Refine the features."""
        return torch.relu(features + self.body(features))


class Fusion(nn.Module):
    """A 1x1 convolution with ReLU that brings gathered features back to one width."""

    def __init__(self, width: int, num_inputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width * num_inputs, width, kernel_size=1), nn.ReLU(inplace=True)
        )

    def forward(self, gathered: Tensor) -> Tensor:
        """Fuse the features."""
        return self.body(gathered)


def cascade(features: Tensor, blocks: Sequence[nn.Module], fusions: Sequence[nn.Module]) -> Tensor:
    """Run blocks in turn, each on the fusion of the input and the results of all before it."""
    gathered = features
    for block, fusion in zip(blocks, fusions, strict=True):
        gathered = torch.cat([gathered, block(features)], dim=1)
        features = fusion(gathered)
    return features


class CascadingBlock(nn.Module):
    """A cascade of three residual blocks; with groups, of one efficient block used three times."""

    def __init__(self, width: int, num_groups: int) -> None:
        super().__init__()
        self.is_recursive = num_groups > 1
        if self.is_recursive:
            self.b1: nn.Module = EfficientBlock(width, num_groups)
        else:
            self.b1, self.b2, self.b3 = (ResidualBlock(width) for _ in range(3))
        self.c1, self.c2, self.c3 = (Fusion(width, count) for count in (2, 3, 4))

    def forward(self, features: Tensor) -> Tensor:
        """Refine the features."""
        blocks = (self.b1,) * 3 if self.is_recursive else (self.b1, self.b2, self.b3)
        return cascade(features, blocks, (self.c1, self.c2, self.c3))


class Upsampler(nn.Module):
    """Pixel shuffle as in EDSR, but with a ReLU before each shuffle."""

    def __init__(self, width: int, scale: int, num_groups: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for step in enlarging_steps(scale):
            layers += [
                _grouped(width, width * step**2, num_groups),
                nn.ReLU(inplace=True),
                nn.PixelShuffle(step),
            ]
        self.body = nn.Sequential(*layers)

    def forward(self, features: Tensor) -> Tensor:
        """Enlarge the features."""
        return self.body(features)


class CARN(Network):
    """Cascading residual network; parameter names are those of the official release.

    Args:
        scale: 2, 3 or 4.
        width: Channels of every block.
        num_groups: Groups of the convolutions. More than one makes the recursive blocks of CARN-M.
        multi_scale: Whether to hold the upsamplers of all three scales, as the official files do.
            Those of the other scales are frozen.
        value_range: Range the layers work in. Official weights expect 1.
    """

    def __init__(
        self,
        *,
        scale: int,
        width: int = 64,
        num_groups: int = 1,
        multi_scale: bool = False,
        value_range: float = 1.0,
    ) -> None:
        super().__init__()
        trunk_radius = 1 + 3 * 3 * 2
        self.info = NetworkInfo(
            scale=scale,
            task="super-resolution",
            feature_channels=width,
            feature_scale=scale,
            feature_receptive_radius=trunk_radius,
            receptive_radius=trunk_radius + upsampler_radius(scale),
            activation_floats_per_pixel=24 * width,
        )
        self.shift = MeanShift(value_range=value_range)
        self.entry = conv3x3(3, width)
        self.b1, self.b2, self.b3 = (CascadingBlock(width, num_groups) for _ in range(3))
        self.c1, self.c2, self.c3 = (Fusion(width, count) for count in (2, 3, 4))
        upsamplers = {f"up{factor}": factor for factor in SCALES} if multi_scale else {"up": scale}
        self.upsample = nn.ModuleDict(
            {
                key: Upsampler(width, factor, num_groups).requires_grad_(factor == scale)
                for key, factor in upsamplers.items()
            }
        )
        self.upsampler_key = f"up{scale}" if multi_scale else "up"
        self.exit = conv3x3(width, 3)

    def features(self, degraded: Tensor) -> Tensor:
        """Return the last fusion of the cascade."""
        first = self.entry(self.shift(degraded))
        return cascade(first, (self.b1, self.b2, self.b3), (self.c1, self.c2, self.c3))

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:  # noqa: ARG002
        """Enlarge the features and turn them into an image."""
        return self.shift.inverse(self.exit(self.upsample[self.upsampler_key](features)))


def _grouped(in_channels: int, out_channels: int, num_groups: int) -> nn.Conv2d:
    return nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, groups=num_groups)


@recogniser
def recognise(state: State) -> Recognised:
    """Tell whether a state dict is a CARN; official ones work in 0..1."""
    for key in ("b1.c1.body.0.weight", "exit.weight"):
        shape(state, key, 4)
    width = shape(state, "entry.weight", 4)[0]
    num_groups = quotient(width, shape(state, "b1.b1.body.0.weight", 4)[1])
    multi_scale = "upsample.up2.body.0.weight" in state
    name = "carn-multi" if multi_scale else "carn"
    if num_groups > 1:
        name = "carn-m"
    settings = {"width": width, "num_groups": num_groups, "multi_scale": multi_scale}
    return name, None if multi_scale else _single_scale(state, width), settings


def _single_scale(state: State, width: int) -> int:
    num_steps = count(state, r"upsample\.up\.body\.\d+\.weight")
    return pixel_shuffle_factor(shape(state, "upsample.up.body.0.weight", 4)[0], width) ** num_steps


register_variants(
    CARN,
    {
        "carn": Variant("One upsampler: the form whose parameters papers count."),
        "carn-multi": Variant(
            "The upsamplers of all scales: the form of the official file.", {"multi_scale": True}
        ),
        "carn-m": Variant(
            "Recursive blocks of grouped convolutions and all upsamplers, as in the official file.",
            {"num_groups": 4, "multi_scale": True},
        ),
    },
    scales=SCALES,
    paper="Ahn et al., Fast, Accurate, and Lightweight Super-Resolution with Cascading Residual "
    "Network, ECCV 2018",
    year=2018,
    recognise=recognise,
    adapt=without_mean_shift,
)
