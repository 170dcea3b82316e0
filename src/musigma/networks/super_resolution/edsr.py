"""EDSR and EDSR-baseline: plain residual blocks without normalisation, then pixel shuffle."""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from musigma.networks.base import MeanShift, Network, Settings, conv3x3
from musigma.networks.dropout import ChannelDropout
from musigma.networks.registry import Recognised, register


class ResidualBlock(nn.Module):
    """Conv, ReLU, Conv, added to the input after scaling by `res_scale`."""

    def __init__(self, width: int, res_scale: float, dropout: float = 0.0) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv3x3(width, width), nn.ReLU(inplace=True), conv3x3(width, width)
        )
        if dropout:
            self.body.append(ChannelDropout(width, dropout))
        self.res_scale = res_scale

    def forward(self, features: Tensor) -> Tensor:
        """Refine the features."""
        change = self.body(features)
        # Multiplying by 1 would cost a pass over memory in training.
        return features + (change if self.res_scale == 1 else change * self.res_scale)


def pixel_shuffle_upsampler(width: int, scale: int) -> nn.Sequential:
    """Convolutions and pixel shuffles that enlarge features by 2, 3 or 4; none for a scale of 1."""
    steps = {1: (), 2: (2,), 3: (3,), 4: (2, 2)}[scale]
    layers: list[nn.Module] = []
    for step in steps:
        layers += [conv3x3(width, width * step**2), nn.PixelShuffle(step)]
    return nn.Sequential(*layers)


class EDSR(Network):
    """Enhanced deep residual network; parameter names are those of the official release.

    Args:
        scale: 2, 3 or 4; or 1, for pairs of pictures of one size, such as those of two lenses.
        num_blocks: Residual blocks.
        width: Channels of every block.
        res_scale: Factor on each residual; 0.1 keeps the wide form stable.
        value_range: Range the layers work in. Official weights expect 255.
        dropout: Share of the channels that each residual loses in training. No paper has it; it
            is what Monte-Carlo dropout needs.
    """

    def __init__(
        self,
        *,
        scale: int,
        num_blocks: int = 16,
        width: int = 64,
        res_scale: float = 1.0,
        value_range: float = 1.0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.scale = self.feature_scale = scale
        self.feature_channels = width
        self.feature_receptive_radius = 2 + 2 * num_blocks
        # Each further convolution sees a pixel of its own grid: 1, then 1 / 2 (one of x4's two
        # steps), then 1 / scale input pixels, together never more than two. At a scale of 1 there
        # is one convolution alone.
        self.receptive_radius = self.feature_receptive_radius + (1 if scale == 1 else 2)
        self.shift = MeanShift(value_range=value_range)
        self.head = nn.Sequential(conv3x3(3, width))
        blocks = [ResidualBlock(width, res_scale, dropout) for _ in range(num_blocks)]
        self.body = nn.Sequential(*blocks, conv3x3(width, width))
        self.tail = nn.Sequential(pixel_shuffle_upsampler(width, scale), conv3x3(width, 3))

    def features(self, degraded: Tensor) -> Tensor:
        """Return the sum of the first and the last features of the trunk."""
        first = self.head(self.shift(degraded))
        return first + self.body(first)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:  # noqa: ARG002
        """Enlarge the features and turn them into an image."""
        return self.shift.inverse(self.tail(features))


def adapt(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Turn the names of BasicSR into the official ones and leave the mean shift out."""
    num_blocks = len({key.split(".")[1] for key in state if key.endswith(".conv1.weight")})
    renamed = {
        "conv_first.": "head.0.",
        "conv_after_body.": f"body.{num_blocks}.",
        "upsample.": "tail.0.",
        "conv_last.": "tail.1.",
        ".conv1.": ".body.0.",
        ".conv2.": ".body.2.",
    }
    adapted = {}
    for key, value in state.items():
        if key.startswith(("sub_mean.", "add_mean.")):
            continue
        name = key
        for theirs, ours in renamed.items():
            name = name.replace(theirs, ours)
        adapted[name] = value
    return adapted


def recognise(state: Mapping[str, Tensor]) -> Recognised | None:
    """Tell from its keys whether a state dict is an EDSR; released ones work in 0..255."""
    state = adapt(state)
    distinctive = {"head.0.weight", "body.0.body.0.weight", "tail.1.weight"}
    if not distinctive <= state.keys() or any("conv_du" in k or "conv4" in k for k in state):
        return None
    width = state["head.0.weight"].shape[0]
    num_blocks = sum(key.endswith(".body.0.weight") for key in state)
    upsampler = state.get("tail.0.0.weight")
    step = 1 if upsampler is None else math.isqrt(upsampler.shape[0] // width)
    scale = 4 if "tail.0.2.weight" in state else step
    name = "edsr" if width == 256 else "edsr-baseline"
    return name, scale, {"num_blocks": num_blocks, "width": width, "value_range": 255.0}


PAPER = "Lim et al., Enhanced Deep Residual Networks for Single Image Super-Resolution, CVPRW 2017"


FACTS: dict[str, Any] = {"scales": (2, 3, 4), "paper": PAPER, "year": 2017, "adapt": adapt}


@register("edsr-baseline", recognise=recognise, **{**FACTS, "scales": (1, 2, 3, 4)})
def edsr_baseline(*, scale: int, **settings: Any) -> EDSR:
    """16 blocks of 64 channels."""
    return EDSR(scale=scale, **settings)


@register("edsr", **FACTS)
def edsr(*, scale: int, **settings: Any) -> EDSR:
    """32 blocks of 256 channels."""
    defaults: Settings = {"num_blocks": 32, "width": 256, "res_scale": 0.1}
    return EDSR(scale=scale, **{**defaults, **settings})
