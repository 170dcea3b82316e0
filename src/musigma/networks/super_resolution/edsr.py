"""EDSR and EDSR-baseline: plain residual blocks without normalization, then pixel shuffle."""

from torch import Tensor, nn

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.dropout import ChannelDropout
from musigma.networks.layers import (
    RGB_MEAN,
    MeanShift,
    conv3x3,
    pixel_shuffle_upsampler,
    set_to_zero,
    upsampler_radius,
)
from musigma.networks.registry import register
from musigma.networks.state_dict import (
    RELEASED_RANGE,
    Recognised,
    State,
    count,
    recogniser,
    require,
    shape,
    stored_range,
    upsampler_scale,
    without_mean_shift,
)
from musigma.types import ConfigError


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
        residual = self.body(features)
        # Multiplying by 1 would cost a pass over memory in training.
        return features + (residual if self.res_scale == 1 else residual * self.res_scale)


PAPER = "Lim et al., Enhanced Deep Residual Networks for Single Image Super-Resolution, CVPRW 2017"


def adapt(state: State) -> dict[str, Tensor]:
    """Rename BasicSR's keys to the official ones and leave the mean shift out."""
    num_blocks = count(state, r"body\.\d+\.conv1\.weight")
    renamed = {
        "conv_first.": "head.0.",
        "conv_after_body.": f"body.{num_blocks}.",
        "upsample.": "tail.0.",
        "conv_last.": "tail.1.",
        ".conv1.": ".body.0.",
        ".conv2.": ".body.2.",
    }
    adapted = {}
    for key, value in without_mean_shift(state).items():
        name = key
        for theirs, ours in renamed.items():
            name = name.replace(theirs, ours)
        adapted[name] = value
    return adapted


@recogniser
def recognise(state: State) -> Recognised:
    """Tell whether a state dict is an EDSR; released ones work in 0..255."""
    ours = adapt(state)
    require(all(key.startswith(("head.", "body.", "tail.")) for key in ours))
    require(not any("conv_du" in key or "conv4" in key for key in ours))
    width, channels = shape(ours, "head.0.weight", 4)[:2]
    require(channels == shape(ours, "tail.1.weight", 4)[0] == 3)
    shape(ours, "body.0.body.0.weight", 4)
    settings = {
        "num_blocks": count(ours, r"body\.\d+\.body\.0\.weight"),
        "width": width,
        "value_range": stored_range(state) or RELEASED_RANGE,
    }
    name = "edsr" if width == 256 else "edsr-baseline"
    return name, upsampler_scale(ours, "tail.0", width), settings


@register(
    "edsr",
    scales=(2, 3, 4),
    settings={"num_blocks": 32, "width": 256, "res_scale": 0.1},
    summary="32 blocks of 256 channels.",
    paper=PAPER,
    year=2017,
    recognise=recognise,
    adapt=adapt,
)
@register(
    "edsr-baseline",
    scales=(1, 2, 3, 4),
    summary="16 blocks of 64 channels.",
    paper=PAPER,
    year=2017,
    recognise=recognise,
    adapt=adapt,
)
class EDSR(Network):
    """Enhanced deep residual network; parameter names are those of the official release.

    Args:
        scale: 2, 3 or 4; or 1 for image pairs of equal size, such as those of two lenses.
        num_blocks: Residual blocks.
        width: Channels of every block.
        res_scale: Factor on each residual; 0.1 keeps the wide network stable.
        value_range: Range the layers work in. Official weights expect 255.
        dropout: Share of the channels of each residual that is dropped in training, for
            Monte-Carlo dropout. The paper has none.
        channels: Of the image: 3 for color, any number for bands that are measured together. The
            mean color of photographs is subtracted from colors alone; other bands have 0.5.
        residual: At scale 1, whether the network predicts a change of the image, which is zero
            before training.
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
        channels: int = 3,
        residual: bool = False,
    ) -> None:
        super().__init__()
        if residual and scale > 1:
            raise ConfigError(f"residual is for scale 1, where sizes are equal, not for {scale}")
        self.residual = residual
        trunk_radius = 2 + 2 * num_blocks
        self.info = NetworkInfo(
            scale=scale,
            task="restoration" if scale == 1 else "super-resolution",
            feature_channels=width,
            feature_scale=scale,
            feature_receptive_radius=trunk_radius,
            receptive_radius=trunk_radius + upsampler_radius(scale),
            in_channels=channels,
            out_channels=channels,
        )
        self.shift = MeanShift(
            value_range=value_range, mean=RGB_MEAN if channels == 3 else (0.5,) * channels
        )
        self.head = nn.Sequential(conv3x3(channels, width))
        blocks = [ResidualBlock(width, res_scale, dropout) for _ in range(num_blocks)]
        self.body = nn.Sequential(*blocks, conv3x3(width, width))
        self.tail = nn.Sequential(pixel_shuffle_upsampler(width, scale), conv3x3(width, channels))
        if residual:
            set_to_zero(self.tail[-1])

    def features(self, degraded: Tensor) -> Tensor:
        """Return the sum of the first and the last features of the trunk."""
        first = self.head(self.shift(degraded))
        return first + self.body(first)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Enlarge the features and turn them into an image."""
        if self.residual:
            return degraded + self.tail(features)
        return self.shift.inverse(self.tail(features))
