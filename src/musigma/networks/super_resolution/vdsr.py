"""VDSR: a long plain stack of convolutions that corrects the bicubically enlarged image."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from musigma.functional.color import rgb_to_y
from musigma.networks.base import MeanShift, Network, conv3x3
from musigma.networks.bicubic_layer import enlarge, enlarge_8_bit, radius_of
from musigma.networks.registry import Recognised, register


class VDSR(Network):
    """Very deep super-resolution network on RGB, the form whose costs the tables print.

    Args:
        scale: 2, 3 or 4.
        num_layers: Convolutions, the first and the last included.
        width: Channels of every layer between.
        bias: Whether the convolutions have biases.
        value_range: Range the layers work in.
    """

    feature_scale = 1

    def __init__(
        self,
        *,
        scale: int,
        num_layers: int = 20,
        width: int = 64,
        bias: bool = True,
        value_range: float = 1.0,
    ) -> None:
        super().__init__()
        self.scale = scale
        self.feature_channels = width
        self.feature_receptive_radius = radius_of(num_layers - 1, scale)
        self.receptive_radius = radius_of(num_layers, scale)
        self.shift = MeanShift(value_range=value_range)
        layers = [
            nn.Sequential(conv3x3(width if index else 3, width, bias=bias), nn.ReLU(inplace=True))
            for index in range(num_layers - 1)
        ]
        init_plain(layers)
        self.body = nn.Sequential(*layers, nn.Sequential(conv3x3(width, 3, bias=bias)))

    def features(self, degraded: Tensor) -> Tensor:
        """Return what the last convolution sees."""
        return self.body[:-1](self.shift(enlarge(degraded, self.scale)))

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Add the correction to the enlarged image."""
        return enlarge(degraded, self.scale) + self.body[-1](features) / self.shift.value_range


class ConvReLU(nn.Module):
    """A convolution without bias and its activation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = conv3x3(width, width, bias=False)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, features: Tensor) -> Tensor:
        """Refine the features."""
        return self.relu(self.conv(features))


class VDSRY(Network):
    """VDSR as published: it corrects the luma, the chroma stays bicubic; no biases.

    The input and the result are RGB. The enlarged image is rounded to 8 bits before its luma is
    taken, as in the published evaluation.

    Args:
        scale: 2, 3 or 4; the weights are the same for all of them.
        num_layers: Convolutions, the first and the last included.
        width: Channels of every layer between.
    """

    feature_scale = 1
    luma_only = True

    def __init__(self, *, scale: int, num_layers: int = 20, width: int = 64) -> None:
        super().__init__()
        self.scale = scale
        self.feature_channels = width
        self.feature_receptive_radius = radius_of(num_layers - 1, scale)
        self.receptive_radius = radius_of(num_layers, scale)
        self.input = conv3x3(1, width, bias=False)
        self.relu = nn.ReLU(inplace=True)
        self.residual_layer = nn.Sequential(*[ConvReLU(width) for _ in range(num_layers - 2)])
        self.output = conv3x3(width, 1, bias=False)
        init_plain([self.input, *self.residual_layer])

    def features(self, degraded: Tensor) -> Tensor:
        """Return what the last convolution sees."""
        luma = rgb_to_y(enlarge_8_bit(degraded, self.scale))
        return self.residual_layer(self.relu(self.input(luma)))

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Add the correction to the luma of the enlarged image."""
        # With the chroma kept, luma moves all three colours alike; white spans 219 of 255 levels.
        return enlarge_8_bit(degraded, self.scale) + self.output(features) * (255 / 219)


def init_plain(layers: Iterable[nn.Module]) -> None:
    """Draw weights that keep the variance through a stack without shortcuts (He et al. 2015)."""
    for layer in layers:
        for part in layer.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
                if part.bias is not None:
                    nn.init.zeros_(part.bias)


def recognise(state: Mapping[str, Tensor]) -> Recognised | None:
    """Tell from its keys whether a state dict is a VDSR, on RGB (in 0..255) or on luma."""
    if {"input.weight", "residual_layer.0.conv.weight", "output.weight"} <= state.keys():
        num_layers = 2 + sum(key.startswith("residual_layer.") for key in state)
        width = state["input.weight"].shape[0]
        return "vdsr-y", None, {"num_layers": num_layers, "width": width}
    weights = {key for key in state if key.startswith("body.") and key.endswith(".weight")}
    num_layers = len(weights)
    if num_layers < 2 or weights != {f"body.{index}.0.weight" for index in range(num_layers)}:
        return None
    width, channels = state["body.0.0.weight"].shape[:2]
    if channels != 3 or state[f"body.{num_layers - 1}.0.weight"].shape[:2] != (3, width):
        return None
    bias = "body.0.0.bias" in state
    settings = {"num_layers": num_layers, "width": width, "bias": bias, "value_range": 255.0}
    return "vdsr", None, settings


def adapt(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Leave the mean shift out."""
    return {k: v for k, v in state.items() if not k.startswith(("sub_mean.", "add_mean."))}


FACTS: dict[str, Any] = {
    "scales": (2, 3, 4),
    "paper": "Kim et al., Accurate Image Super-Resolution Using Very Deep Convolutional Networks, "
    "CVPR 2016",
    "year": 2016,
}


@register("vdsr", recognise=recognise, adapt=adapt, **FACTS)
def vdsr(*, scale: int, **settings: Any) -> VDSR:
    """20 layers of 64 channels on RGB."""
    return VDSR(scale=scale, **settings)


@register("vdsr-y", **FACTS)
def vdsr_y(*, scale: int, **settings: Any) -> VDSRY:
    """20 layers of 64 channels on luma."""
    return VDSRY(scale=scale, **settings)
