"""HAN: RCAN's trunk, whose groups are weighed against each other and each value by itself."""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.layers import MeanShift, autocast_device, conv3x3, pixel_shuffle_upsampler
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
    tensor,
    upsampler_scale,
    without_mean_shift,
)

INITIAL_GAMMA = 0.01
"""Initial weight of each attention; with the official 0 no gradient reaches its kernel."""


class ChannelAttention(nn.Module):
    """Weights each channel by a small network of the means of all channels."""

    def __init__(self, width: int, reduction: int) -> None:
        super().__init__()
        inner = max(width // reduction, 1)
        self.conv_du = nn.Sequential(
            nn.Conv2d(width, inner, kernel_size=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(inner, width, kernel_size=1),
            nn.Sigmoid(),
        )

    def forward(self, features: Tensor) -> Tensor:
        """Rescale the channels."""
        return features * self.conv_du(features.mean((-2, -1), keepdim=True))


class ResidualBlock(nn.Module):
    """Conv, ReLU, Conv, channel attention, added to the input."""

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
    """Residual blocks and a convolution, added to the input."""

    def __init__(self, width: int, num_blocks: int, reduction: int) -> None:
        super().__init__()
        blocks = (ResidualBlock(width, reduction) for _ in range(num_blocks))
        self.body = nn.Sequential(*blocks, conv3x3(width, width))

    def forward(self, features: Tensor) -> Tensor:
        """Refine the features."""
        return features + self.body(features)


class LayerAttention(nn.Module):
    """Adds to each layer a mix of all layers, in which the least similar ones weigh most."""

    def __init__(self) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.tensor([INITIAL_GAMMA]))

    def forward(self, layers: Tensor) -> Tensor:
        """Mix ``(N, L, C, H, W)`` along the layers and stack them as channels."""
        flat = layers.flatten(2)
        # Similarities are sums over the whole image: half precision would overflow.
        with torch.autocast(autocast_device(layers), enabled=False):
            similarity = flat.float() @ flat.float().mT
        identity = torch.eye(flat.shape[1], device=layers.device)
        mix = (identity + self.gamma * (-similarity).softmax(-1)).to(flat.dtype)
        return (mix @ flat).reshape(layers.shape).flatten(1, 2)


class ChannelSpatialAttention(nn.Module):
    """Weights every value by a convolution over its neighbors in channel and space."""

    def __init__(self) -> None:
        super().__init__()
        # A 3x3x3 convolution over channels and space, written with the channel offset as input
        # channel, because a module with 5-D weights cannot be moved to channels_last.
        self.conv = conv3x3(3, 1)
        self.gamma = nn.Parameter(torch.tensor([INITIAL_GAMMA]))

    def forward(self, features: Tensor) -> Tensor:
        """Rescale the values."""
        padded = pad(features, (0, 0, 0, 0, 1, 1))
        triples = torch.stack([padded[:, :-2], features, padded[:, 2:]], dim=2)
        weight = torch.sigmoid(self.conv(triples.flatten(0, 1))).reshape(features.shape)
        return features + features * weight * self.gamma


@recogniser
def recognise(state: State) -> Recognised:
    """Tell whether a state dict is a HAN; official ones work in 0..255."""
    for key in ("csa.gamma", "la.gamma"):
        tensor(state, key)
    inner, width = shape(state, "body.0.body.0.body.3.conv_du.0.weight", 4)[:2]
    num_layers = quotient(shape(state, "last_conv.weight", 4)[1], width)
    settings = {
        "num_groups": num_layers - 1,
        "num_blocks": count(state, r"body\.0\..*\.conv_du\.0\.weight"),
        "width": width,
        "reduction": quotient(width, inner),
        "value_range": stored_range(state) or RELEASED_RANGE,
    }
    return "han", upsampler_scale(state, "tail.0", width), settings


def adapt(state: State) -> dict[str, Tensor]:
    """Leave out the mean shift and turn the one 3-D kernel into a 2-D one."""
    kernel = tensor(state, "csa.conv.weight")
    require(kernel.numel() == 27)
    return {**without_mean_shift(state), "csa.conv.weight": kernel.reshape(1, 3, 3, 3)}


@register(
    "han",
    scales=(2, 3, 4),
    summary="10 groups of 20 blocks of 64 channels.",
    paper="Niu et al., Single Image Super-Resolution via a Holistic Attention Network, ECCV 2020",
    year=2020,
    recognise=recognise,
    adapt=adapt,
)
class HAN(Network):
    """Holistic attention network; parameter names are those of the official release.

    Args:
        scale: 2, 3 or 4.
        num_groups: Residual groups.
        num_blocks: Residual blocks of each group.
        width: Channels.
        reduction: Width divided by the channels inside the channel attention.
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
            # All layers several times: as they are, stacked, mixed, and as input of a convolution.
            activation_floats_per_pixel=(5 * (num_groups + 1) + 5) * width,
        )
        self.shift = MeanShift(value_range=value_range)
        self.head = nn.Sequential(conv3x3(3, width))
        groups = (ResidualGroup(width, num_blocks, reduction) for _ in range(num_groups))
        self.body = nn.Sequential(*groups, conv3x3(width, width))
        self.csa = ChannelSpatialAttention()
        self.la = LayerAttention()
        self.last_conv = conv3x3(width * (num_groups + 1), width)
        self.last = conv3x3(2 * width, width)
        self.tail = nn.Sequential(pixel_shuffle_upsampler(width, scale), conv3x3(width, 3))

    def features(self, degraded: Tensor) -> Tensor:
        """Return the first features plus those that both attentions make from the trunk."""
        first = self.head(self.shift(degraded))
        layers = [first]
        for group in self.body:
            layers.append(group(layers[-1]))
        # The official weights expect the last layer first.
        stacked = torch.stack(layers[:0:-1], dim=1)
        attended = [self.csa(layers[-1]), self.last_conv(self.la(stacked))]
        return first + self.last(torch.cat(attended, dim=1))

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:  # noqa: ARG002
        """Enlarge the features and turn them into an image."""
        return self.shift.inverse(self.tail(features))
