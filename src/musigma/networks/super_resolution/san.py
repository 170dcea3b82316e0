"""SAN: groups of residual blocks whose channels are weighted by second-order statistics."""

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.layers import MeanShift, autocast_device, conv3x3, pixel_shuffle_upsampler
from musigma.networks.registry import register
from musigma.networks.state_dict import (
    MEAN_SHIFT,
    RELEASED_RANGE,
    Recognised,
    State,
    count,
    quotient,
    recogniser,
    shape,
    stored_range,
    upsampler_scale,
    without,
)

SMALLEST_TRACE = 1e-12
"""Keeps the root of a flat image's covariance at 0 instead of 0 / 0."""


def covariance_root(features: Tensor, *, num_iterations: int = 5) -> Tensor:
    """Return the square root of the covariance of the channels by Newton-Schulz iterations.

    The covariance is divided by its trace, where the iterations converge, and multiplied by the
    root of the trace afterwards. ``(N, C, H, W)`` gives ``(N, C, C)`` in float32.
    """
    # In half precision squares of 0..255 overflow, and the iterations amplify rounding errors.
    with torch.autocast(autocast_device(features), enabled=False):
        samples = features.flatten(2).float()
        samples = samples - samples.mean(-1, keepdim=True)
        covariance = samples @ samples.mT / samples.shape[-1]
        trace = covariance.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
        trace = trace.clamp_min(SMALLEST_TRACE)
        identity = torch.eye(covariance.shape[-1], device=features.device)
        root, inverse = covariance / trace, identity
        for _ in range(num_iterations):
            step = 1.5 * identity - 0.5 * inverse @ root
            root, inverse = root @ step, step @ inverse
        return root * trace.sqrt()


class SecondOrderAttention(nn.Module):
    """Weights each channel by the mean of its row in the root of the covariance.

    The official code uses the central 1000x1000 pixels alone; the paper and this code use all.
    """

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
        statistics = covariance_root(features).mean(1)[..., None, None]
        return features * self.conv_du(statistics.to(features.dtype))


class ResidualBlock(nn.Module):
    """Conv, ReLU, Conv, added to the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv_first = nn.Sequential(
            conv3x3(width, width), nn.ReLU(inplace=True), conv3x3(width, width)
        )

    def forward(self, features: Tensor) -> Tensor:
        """Refine the features."""
        return features + self.conv_first(features)


class ResidualAttentionGroup(nn.Module):
    """Residual blocks, second-order attention and a convolution, added to the input."""

    def __init__(self, width: int, num_blocks: int, reduction: int) -> None:
        super().__init__()
        self.rcab = nn.Sequential(*(ResidualBlock(width) for _ in range(num_blocks)))
        self.soca = SecondOrderAttention(width, reduction)
        self.conv_last = conv3x3(width, width)

    def forward(self, features: Tensor) -> Tensor:
        """Refine the features."""
        return features + self.conv_last(self.soca(self.rcab(features)))


def attend(maps: Tensor) -> Tensor:
    """Replace each position by a mean of all values, weighted by the similarity of query and key.

    The maps are query, key and value, ``(3, N, 1, C, H, W)``; the result is ``(N, C, H, W)``.
    """
    # Only contiguous tensors get the fused kernel, which never holds the matrix of all pairs.
    query, key, value = maps.flatten(4).mT.contiguous()
    mixed = scaled_dot_product_attention(query, key, value, scale=1.0)
    return mixed.mT.reshape(maps.shape[1], *maps.shape[3:])


class NonLocal(nn.Module):
    """Adds to each position an attention over its quarter of the image."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = max(width // 8, 1)
        self.theta = nn.Conv2d(width, inner, kernel_size=1)
        self.phi = nn.Conv2d(width, inner, kernel_size=1)
        self.g = nn.Conv2d(width, inner, kernel_size=1)
        self.W = nn.Conv2d(inner, width, kernel_size=1)
        # The official code starts from 0, where no gradient passes in the first step.
        nn.init.normal_(self.W.weight, std=0.01)

    def forward(self, features: Tensor) -> Tensor:
        """Mix the positions of each quarter."""
        layers = (self.theta, self.phi, self.g)
        maps = torch.stack([layer(features).unsqueeze(1) for layer in layers])
        rows = [
            torch.cat([attend(quarter) for quarter in _halves(row, dim=-1)], dim=-1)
            for row in _halves(maps, dim=-2)
        ]
        return features + self.W(torch.cat(rows, dim=-2))


def _halves(image: Tensor, *, dim: int) -> Sequence[Tensor]:
    size = image.shape[dim]
    return (image,) if size == 1 else image.tensor_split([size // 2], dim=dim)


@recogniser
def recognise(state: State) -> Recognised:
    """Tell whether a state dict is a SAN; official ones work in 0..255."""
    shape(state, "non_local.non_local.g.weight", 4)
    inner, width = shape(state, "RG.0.soca.conv_du.0.weight", 4)[:2]
    settings = {
        "num_groups": count(state, r"RG\.\d+\.soca\.conv_du\.0\.weight"),
        "num_blocks": count(state, r"RG\.0\..*\.conv_first\.0\.weight"),
        "width": width,
        "reduction": quotient(width, inner),
        "value_range": stored_range(state) or RELEASED_RANGE,
    }
    return "san", upsampler_scale(state, "tail.0", width), settings


def adapt(state: State) -> dict[str, Tensor]:
    """Leave out the mean shift and the layers that the official network never calls."""
    kept = without(state, *MEAN_SHIFT, "conv_last.", "non_local.soca.")
    return {key: value for key, value in kept.items() if not key.endswith(".gamma")}


@register(
    "san",
    scales=(2, 3, 4),
    summary="20 groups of 10 blocks of 64 channels.",
    paper="Dai et al., Second-order Attention Network for Single Image Super-Resolution, CVPR 2019",
    year=2019,
    recognise=recognise,
    adapt=adapt,
)
class SAN(Network):
    """Second-order attention network; parameter names are those of the official release.

    Args:
        scale: 2, 3 or 4.
        num_groups: Residual attention groups.
        num_blocks: Residual blocks of each group.
        width: Channels.
        reduction: Width divided by the channels inside the attention.
        value_range: Range the layers work in. Official weights expect 255.
    """

    def __init__(
        self,
        *,
        scale: int,
        num_groups: int = 20,
        num_blocks: int = 10,
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
            activation_floats_per_pixel=18 * width,
        )
        self.shift = MeanShift(value_range=value_range)
        self.head = nn.Sequential(conv3x3(3, width))
        self.non_local = nn.Sequential(OrderedDict(non_local=NonLocal(width)))
        groups = (ResidualAttentionGroup(width, num_blocks, reduction) for _ in range(num_groups))
        self.RG = nn.ModuleList(groups)
        self.gamma = nn.Parameter(torch.zeros(1))
        self.tail = nn.Sequential(pixel_shuffle_upsampler(width, scale), conv3x3(width, 3))

    def features(self, degraded: Tensor) -> Tensor:
        """Return the sum of the first and the last features of the trunk."""
        first = self.head(self.shift(degraded))
        source = features = self.non_local(first)
        for group in self.RG:
            features = group(features) + self.gamma * source
        return first + self.non_local(features)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:  # noqa: ARG002
        """Enlarge the features and turn them into an image."""
        return self.shift.inverse(self.tail(features))
