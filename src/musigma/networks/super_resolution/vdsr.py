"""VDSR: a deep plain stack of convolutions that corrects the bicubically enlarged image."""

from collections.abc import Iterable

from torch import Tensor, nn

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.bicubic_layer import enlarge, radius_before_enlarging
from musigma.networks.layers import MeanShift, conv3x3
from musigma.networks.registry import Variant, register_variants
from musigma.networks.state_dict import (
    RELEASED_RANGE,
    Recognised,
    State,
    count,
    recogniser,
    rename,
    require,
    shape,
    stored_range,
    without_mean_shift,
)
from musigma.networks.super_resolution.on_luma import OnLuma

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
    """A convolution and its activation."""

    def __init__(self, width: int, *, bias: bool) -> None:
        super().__init__()
        self.conv = conv3x3(width, width, bias=bias)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, features: Tensor) -> Tensor:
        """Refine the features."""
        return self.relu(self.conv(features))


class OneChannelVDSR(Network):
    """VDSR on one channel, with the names of the released file for PyTorch.

    Args:
        scale: 2, 3 or 4; the weights are the same for all of them.
        num_layers: Convolutions, the first and the last included.
        width: Channels of every layer between.
        bias: Whether the convolutions have biases.
    """

    def __init__(
        self, *, scale: int, num_layers: int = NUM_LAYERS, width: int = 64, bias: bool = False
    ) -> None:
        super().__init__()
        self.info = NetworkInfo(
            scale=scale,
            task="super-resolution",
            in_channels=1,
            out_channels=1,
            feature_channels=width,
            feature_scale=1,
            feature_receptive_radius=radius_before_enlarging(num_layers - 1, scale),
            receptive_radius=radius_before_enlarging(num_layers, scale),
        )
        between = [ConvReLU(width, bias=bias) for _ in range(num_layers - 2)]
        self.input = conv3x3(1, width, bias=bias)
        self.relu = nn.ReLU(inplace=True)
        self.residual_layer = nn.Sequential(*between)
        self.output = conv3x3(width, 1, bias=bias)
        init_plain([self.input, *self.residual_layer])

    def features(self, degraded: Tensor) -> Tensor:
        """Return the input of the last convolution."""
        return self.residual_layer(self.relu(self.input(enlarge(degraded, self.scale))))

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Add the residual to the enlarged image."""
        return enlarge(degraded, self.scale) + self.output(features)


class VDSRY(OnLuma, OneChannelVDSR):
    """VDSR as published: it corrects the luma, the chroma stays bicubic.

    Args:
        scale: 2, 3 or 4; the weights are the same for all of them.
        num_layers: Convolutions, the first and the last included.
        width: Channels of every layer between.
        bias: Whether the convolutions have biases, as those of the authors have.
    """

    def __init__(
        self, *, scale: int, num_layers: int = NUM_LAYERS, width: int = 64, bias: bool = False
    ) -> None:
        super().__init__(scale=scale, num_layers=num_layers, width=width, bias=bias)
        self._take_rgb()


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


def adapt_luma(state: State) -> dict[str, Tensor]:
    """Give the layers of a VDSR on luma our names.

    Lornatang/VDSR-PyTorch calls them ``conv1.0``, ``trunk.N.conv`` and ``conv2``. The names of the
    form on RGB, ``body.N.0``, occur with one channel, too.
    """
    last = count(state, r"body\.\d+\.0\.weight") - 1
    names = {"conv1.0": "input", "conv2": "output", "body.0.0": "input", f"body.{last}.0": "output"}
    for number in range(max(last, count(state, r"trunk\.\d+\.conv\.weight"))):
        names[f"trunk.{number}.conv"] = f"residual_layer.{number}.conv"
        if 0 < number < last:
            names[f"body.{number}.0"] = f"residual_layer.{number - 1}.conv"
    return rename(without_mean_shift(state), names)


@recogniser
def recognise_luma(state: State) -> Recognised:
    """Tell whether a state dict is a VDSR on luma."""
    is_named = count(state, r"input\.weight|conv1\.0\.weight") == 1
    state = adapt_luma(state)
    width, *rest = shape(state, "input.weight", 4)
    require(rest == [1, 3, 3] and shape(state, "output.weight", 4) == (1, width, 3, 3))
    num_layers = 2 + count(state, r"residual_layer\.\d+\.conv\.weight")
    require(count(state, r".*weight") == num_layers)
    # Any stack of convolutions could be called body.
    require(num_layers > 2 if is_named else num_layers == NUM_LAYERS)
    for number in range(num_layers - 2):
        sides = shape(state, f"residual_layer.{number}.conv.weight", 4)
        require(sides == (width, width, 3, 3))
    settings = {"num_layers": num_layers, "width": width, "bias": "input.bias" in state}
    return "vdsr-y", None, settings


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
    adapt=adapt_luma,
)
