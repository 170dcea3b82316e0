"""RCAN: residual groups of blocks whose channels are weighted by global attention."""

import re

from torch import Tensor, nn

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.layers import MeanShift, conv3x3, pixel_shuffle_upsampler
from musigma.networks.registry import register
from musigma.networks.state_dict import (
    RELEASED_RANGE,
    Recognised,
    State,
    count,
    quotient,
    recogniser,
    require,
    shape,
    stored_range,
    upsampler_scale,
    without_mean_shift,
)


class ChannelAttention(nn.Module):
    """Weights each channel by a small network of the means of all channels."""

    def __init__(self, width: int, reduction: int) -> None:
        super().__init__()
        inner = max(width // reduction, 1)
        self.avg_pool = nn.AdaptiveAvgPool2d(1)
        self.conv_du = nn.Sequential(
            nn.Conv2d(width, inner, kernel_size=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(inner, width, kernel_size=1),
            nn.Sigmoid(),
        )

    def forward(self, features: Tensor) -> Tensor:
        """Weight the features."""
        return features * self.conv_du(self.avg_pool(features))


class AttentionBlock(nn.Module):
    """Conv, ReLU, Conv and channel attention, added to the input."""

    def __init__(self, width: int, reduction: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv3x3(width, width),
            nn.ReLU(inplace=True),
            conv3x3(width, width),
            ChannelAttention(width, reduction),
        )

    def forward(self, features: Tensor) -> Tensor:
        """Refine the features."""
        return features + self.body(features)


class ResidualGroup(nn.Module):
    """Attention blocks and a convolution, added to the input."""

    def __init__(self, width: int, num_blocks: int, reduction: int) -> None:
        super().__init__()
        blocks = [AttentionBlock(width, reduction) for _ in range(num_blocks)]
        self.body = nn.Sequential(*blocks, conv3x3(width, width))

    def forward(self, features: Tensor) -> Tensor:
        """Refine the features."""
        return features + self.body(features)


@recogniser
def recognise(state: State) -> Recognised:
    """Tell whether a state dict is an RCAN, official or BasicSR's; both work in 0..255."""
    ours = adapt(state)
    # HAN has the same names, and further ones.
    require(all(key.startswith(("head.", "body.", "tail.")) for key in ours))
    require(shape(ours, "head.0.weight", 4)[1] == shape(ours, "tail.1.weight", 4)[0] == 3)
    inner, width = shape(ours, "body.0.body.0.body.3.conv_du.0.weight", 4)[:2]
    settings = {
        "num_groups": count(ours, r"body\.\d+\.body\.0\.body\.0\.weight"),
        "num_blocks": count(ours, r"body\.0\.body\.\d+\.body\.0\.weight"),
        "width": width,
        "reduction": quotient(width, inner),
        "value_range": stored_range(state) or RELEASED_RANGE,
    }
    return "rcan", upsampler_scale(ours, "tail.0", width), settings


def adapt(state: State) -> dict[str, Tensor]:
    """Rename BasicSR's keys to the official ones and leave the mean shift out.

    Example:
        >>> list(adapt({"body.4.residual_group.2.rcab.3.attention.1.bias": Tensor()}))
        ['body.4.body.2.body.3.conv_du.0.bias']
    """
    num_groups = count(state, r"body\.\d+\.conv\.weight")
    num_blocks = count(state, r"body\.0\.residual_group\.\d+\.rcab\.0\.weight")
    renames = {
        r"^conv_first\.": "head.0.",
        r"^conv_after_body\.": f"body.{num_groups}.",
        r"^upsample\.": "tail.0.",
        r"^conv_last\.": "tail.1.",
        r"^(body\.\d+)\.conv\.": rf"\1.body.{num_blocks}.",
        r"\.residual_group\.(\d+)\.rcab\.": r".body.\1.body.",
        r"\.attention\.1\.": ".conv_du.0.",
        r"\.attention\.3\.": ".conv_du.2.",
    }
    adapted = {}
    for key, value in without_mean_shift(state).items():
        name = key
        for theirs, ours in renames.items():
            name = re.sub(theirs, ours, name)
        adapted[name] = value
    return adapted


@register(
    "rcan",
    scales=(2, 3, 4),
    summary="10 groups of 20 blocks.",
    paper="Zhang et al., Image Super-Resolution Using Very Deep Residual Channel Attention "
    "Networks, ECCV 2018",
    year=2018,
    recognise=recognise,
    adapt=adapt,
)
class RCAN(Network):
    """Residual channel attention network; parameter names are those of the official release.

    Args:
        scale: 2, 3 or 4.
        num_groups: Residual groups.
        num_blocks: Attention blocks of a group.
        width: Channels of every block.
        reduction: Width divided by the channels inside the attention.
        value_range: Range the layers work in. Official weights expect 255.
    """

    def __init__(
        self,
        *,
        scale: int,
        num_groups: int = 10,
        num_blocks: int = 20,
        width: int = 64,
        reduction: int = 16,
        value_range: float = 1.0,
    ) -> None:
        super().__init__()
        self.info = NetworkInfo(
            scale=scale,
            task="super-resolution",
            feature_channels=width,
            feature_scale=scale,
            feature_receptive_radius=None,
            receptive_radius=None,
        )
        self.shift = MeanShift(value_range=value_range)
        self.head = nn.Sequential(conv3x3(3, width))
        groups = [ResidualGroup(width, num_blocks, reduction) for _ in range(num_groups)]
        self.body = nn.Sequential(*groups, conv3x3(width, width))
        self.tail = nn.Sequential(pixel_shuffle_upsampler(width, scale), conv3x3(width, 3))

    def features(self, degraded: Tensor) -> Tensor:
        """Return the sum of the first and the last features of the trunk."""
        first = self.head(self.shift(degraded))
        return first + self.body(first)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:  # noqa: ARG002
        """Enlarge the features and turn them into an image."""
        return self.shift.inverse(self.tail(features))
