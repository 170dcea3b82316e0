"""VDSR: a deep plain stack of convolutions that corrects the bicubically enlarged image."""

from collections.abc import Iterable

from torch import Tensor, nn

from musigma.functional.color import rgb_to_y
from musigma.networks.base import Network, NetworkInfo
from musigma.networks.bicubic_layer import enlarge, enlarge_8_bit, radius_before_enlarging
from musigma.networks.layers import MeanShift, conv3x3
from musigma.networks.registry import Variant, register_variants
from musigma.networks.state_dict import (
    RELEASED_RANGE,
    Recognised,
    State,
    count,
    recogniser,
    require,
    shape,
    stored_range,
    without_mean_shift,
)

NUM_LAYERS = 20
"""Convolutions of the published network."""


class VDSR(Network):
    """Very deep super-resolution network on RGB, the form whose costs are in published tables.

    Args:
        scale: 2, 3 or 4.
        num_layers: Convolutions, the first and the last included.
        width: Channels of every layer between.
        bias: Whether the convolutions have biases.
        value_range: Range the layers work in.
    """

    def __init__(
        self,
        *,
        scale: int,
        num_layers: int = NUM_LAYERS,
        width: int = 64,
        bias: bool = True,
        value_range: float = 1.0,
    ) -> None:
        super().__init__()
        self.info = NetworkInfo(
            scale=scale,
            task="super-resolution",
            feature_channels=width,
            feature_scale=1,
            feature_receptive_radius=radius_before_enlarging(num_layers - 1, scale),
            receptive_radius=radius_before_enlarging(num_layers, scale),
        )
        self.shift = MeanShift(value_range=value_range)
        layers = [
            nn.Sequential(conv3x3(width if index else 3, width, bias=bias), nn.ReLU(inplace=True))
            for index in range(num_layers - 1)
        ]
        init_plain(layers)
        self.body = nn.Sequential(*layers, nn.Sequential(conv3x3(width, 3, bias=bias)))

    def features(self, degraded: Tensor) -> Tensor:
        """Return the input of the last convolution."""
        return self.body[:-1](self.shift(enlarge(degraded, self.scale)))

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Add the residual to the enlarged image."""
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

    def __init__(self, *, scale: int, num_layers: int = NUM_LAYERS, width: int = 64) -> None:
        super().__init__()
        self.info = NetworkInfo(
            scale=scale,
            task="super-resolution",
            feature_channels=width,
            feature_scale=1,
            feature_receptive_radius=radius_before_enlarging(num_layers - 1, scale),
            receptive_radius=radius_before_enlarging(num_layers, scale),
            luma_only=True,
        )
        self.input = conv3x3(1, width, bias=False)
        self.relu = nn.ReLU(inplace=True)
        self.residual_layer = nn.Sequential(*[ConvReLU(width) for _ in range(num_layers - 2)])
        self.output = conv3x3(width, 1, bias=False)
        init_plain([self.input, *self.residual_layer])

    def features(self, degraded: Tensor) -> Tensor:
        """Return the input of the last convolution."""
        luma = rgb_to_y(enlarge_8_bit(degraded, self.scale))
        return self.residual_layer(self.relu(self.input(luma)))

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Add the residual to the luma of the enlarged image."""
        # With constant chroma, a change of luma changes all three colours equally; luma from black
        # to white spans 219 of 255 levels.
        return enlarge_8_bit(degraded, self.scale) + self.output(features) * (255 / 219)


def init_plain(layers: Iterable[nn.Module]) -> None:
    """Draw weights that keep the variance through a stack without shortcuts (He et al. 2015)."""
    for layer in layers:
        for part in layer.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
                if part.bias is not None:
                    nn.init.zeros_(part.bias)


@recogniser
def recognise(state: State) -> Recognised:
    """Tell whether a state dict is a VDSR on RGB, which works in 0..255.

    Any stack of convolutions could have these names, so the published number of layers is required.
    """
    num_layers = count(state, r"body\.\d+\.0\.weight")
    require(num_layers == NUM_LAYERS == count(state, r"body\..*weight"))
    width, channels = shape(state, "body.0.0.weight", 4)[:2]
    require(channels == 3)
    require(shape(state, f"body.{num_layers - 1}.0.weight", 4)[:2] == (3, width))
    settings = {
        "num_layers": num_layers,
        "width": width,
        "bias": "body.0.0.bias" in state,
        "value_range": stored_range(state) or RELEASED_RANGE,
    }
    return "vdsr", None, settings


@recogniser
def recognise_luma(state: State) -> Recognised:
    """Tell whether a state dict is a VDSR on luma."""
    width = shape(state, "input.weight", 4)[0]
    for key in ("residual_layer.0.conv.weight", "output.weight"):
        shape(state, key, 4)
    num_layers = 2 + count(state, r"residual_layer\.\d+\.conv\.weight")
    return "vdsr-y", None, {"num_layers": num_layers, "width": width}


PAPER = (
    "Kim et al., Accurate Image Super-Resolution Using Very Deep Convolutional Networks, CVPR 2016"
)

register_variants(
    VDSR,
    {"vdsr": Variant("20 layers of 64 channels on RGB.")},
    scales=(2, 3, 4),
    paper=PAPER,
    year=2016,
    recognise=recognise,
    adapt=without_mean_shift,
)
register_variants(
    VDSRY,
    {"vdsr-y": Variant("20 layers of 64 channels on luma.")},
    scales=(2, 3, 4),
    paper=PAPER,
    year=2016,
    recognise=recognise_luma,
)
