"""DnCNN: a plain stack of convolutions that predicts the noise."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from musigma.networks.base import Network, Settings
from musigma.networks.registry import Recognised, register
from musigma.networks.tile_exact_layers import WideConv2d

NAME = re.compile(r"(model|dncnn)\.\d+\.\w+")
EPSILON = 1e-4
"""What KAIR's batch norms add to the variance."""


def plain_stack(
    in_channels: int, out_channels: int, *, width: int, dilations: Sequence[int]
) -> nn.Sequential:
    """3x3 convolutions, one for each dilation, with a ReLU after each but the last."""
    layers: list[nn.Module] = []
    for dilation in dilations[:-1]:
        layer = _conv(in_channels, width, dilation)
        # Keeps the variance through a stack without shortcuts (He et al. 2015).
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        layers += [layer, nn.ReLU(inplace=True)]
        in_channels = width
    return nn.Sequential(*layers, _conv(width, out_channels, dilations[-1]))


def _conv(in_channels: int, out_channels: int, dilation: int) -> nn.Conv2d:
    if dilation > 3:
        return WideConv2d(in_channels, out_channels, kernel_size=3, dilation=dilation)
    return nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=dilation, dilation=dilation)


class StackShape(NamedTuple):
    """What the keys and shapes of a state dict tell of a `plain_stack` called ``model``."""

    num_layers: int
    width: int
    in_channels: int
    out_channels: int


def stack_shape(state: Mapping[str, Tensor]) -> StackShape | None:
    """Return the shape of the stack that a state dict holds, if it holds nothing else."""
    num_layers = len(state) // 2
    names = {f"model.{2 * n}.{kind}" for n in range(num_layers) for kind in ("weight", "bias")}
    if num_layers < 2 or names != state.keys():
        return None
    width, in_channels = state["model.0.weight"].shape[:2]
    out_channels = state[f"model.{2 * num_layers - 2}.weight"].shape[0]
    return StackShape(num_layers, width, in_channels, out_channels)


class DnCNN(Network):
    """Denoising network without a noise map; names are those of KAIR, whose batch norms are folded.

    Args:
        scale: 1.
        channels: 1 for grey images, 3 for colour.
        num_layers: Convolutions, the first and the last included.
        width: Channels of every layer between.
    """

    def __init__(
        self, *, scale: int, channels: int = 1, num_layers: int = 17, width: int = 64
    ) -> None:
        super().__init__()
        self.scale = self.feature_scale = scale
        self.in_channels = self.out_channels = channels
        self.feature_channels = width
        self.feature_receptive_radius = num_layers - 1
        self.receptive_radius = num_layers
        self.model = plain_stack(channels, channels, width=width, dilations=(1,) * num_layers)

    def features(self, degraded: Tensor) -> Tensor:
        """Return what the last convolution sees."""
        return self.model[:-1](degraded)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Take the predicted noise away from the image."""
        return degraded - self.model[-1](features)


def fold(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Fold batch norms into the convolutions before them, and number the layers as without them.

    Weights trained with KAIR keep their batch norms, which its released files have lost; other
    implementations call the stack ``dncnn`` and have no biases.
    """
    folded: dict[str, Tensor] = {}
    layers = [key for key, value in state.items() if NAME.fullmatch(key) and value.ndim == 4]
    for number, key in enumerate(layers):
        stack, index = key.split(".")[:2]
        weight = state[key]
        bias = state.get(f"{stack}.{index}.bias", weight.new_zeros(len(weight)))
        norm = f"{stack}.{int(index) + 1}."
        if norm + "running_var" in state:
            factor = state[norm + "weight"] / (state[norm + "running_var"] + EPSILON).sqrt()
            weight = weight * factor.view(-1, 1, 1, 1)
            bias = (bias - state[norm + "running_mean"]) * factor + state[norm + "bias"]
        folded |= {f"model.{2 * number}.weight": weight, f"model.{2 * number}.bias": bias}
    return folded


def recognise(state: Mapping[str, Tensor]) -> Recognised | None:
    """Tell from its keys whether a state dict is a DnCNN; IRCNN's seven layers are left to it."""
    if not all(NAME.fullmatch(key) for key in state):
        return None
    shape = stack_shape(fold(state))
    if shape is None or shape.num_layers == 7 or shape.in_channels != shape.out_channels:
        return None
    name = "dncnn" if shape.in_channels == 1 else "dncnn-colour"
    return name, 1, {"num_layers": shape.num_layers, "width": shape.width}


FACTS: dict[str, Any] = {
    "scales": (1,),
    "paper": "Zhang et al., Beyond a Gaussian Denoiser: Residual Learning of Deep CNN for Image "
    "Denoising, TIP 2017",
    "year": 2017,
    "adapt": fold,
}


@register("dncnn", recognise=recognise, **FACTS)
def dncnn(*, scale: int, **settings: Any) -> DnCNN:
    """17 layers for grey images; the released weights are for one noise level each."""
    return DnCNN(scale=scale, **settings)


@register("dncnn-colour", **FACTS)
def dncnn_colour(*, scale: int, **settings: Any) -> DnCNN:
    """20 layers for colour images; the released weights are for any noise level."""
    defaults: Settings = {"channels": 3, "num_layers": 20}
    return DnCNN(scale=scale, **{**defaults, **settings})
