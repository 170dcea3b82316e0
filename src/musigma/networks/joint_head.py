"""The joint head: says for every pixel of the result which kinds of errors are mixed there.

The error of a value is its standard deviation times a mixture of stationary Gaussian fields:

    e(x, c) = std(x, c) * sum_k w_k(x) * (h_k * noise_k)(x, c)

Each field is white noise, filtered by `h_k` and mixed between the channels, with a variance of one.
The head predicts the weights `w_k(x)`, whose squares add up to one, so that the variance of every
value stays what the sigma branch and the calibration say. Weights may be negative: a field that is
smooth across an edge then changes its sign there. Filters and mixing of the channels are learned
constants.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from musigma.networks.base import Network
from musigma.networks.bounded_build import check_size
from musigma.networks.layers import conv3x3
from musigma.networks.sigma_branch import WithSigma
from musigma.types import ConfigError, Prediction

NUGGET = 0.003
"""Least share of the variance that independent errors have: rounding to 8 bits alone makes some.

It keeps the covariance of a block far from singular.
"""

NOISE_STD = 1 / 255
"""Standard deviation of the noise that every true picture is taken to have, in each value.

The input hardly shows such noise, and no network can predict it.
"""

MAX_FIELDS = 64
MAX_REACH = 16


class FieldBank(NamedTuple):
    """The stationary fields of a mixture, each with a variance of one in every channel.

    Attributes:
        filters: ``(K, S, S)`` with S odd; the squares of each add up to one.
        mixing: ``(K, C, C)``, from C planes of filtered noise to the channels; the squares of each
            row add up to one.
    """

    filters: Tensor
    mixing: Tensor

    @property
    def colours(self) -> Tensor:
        """Correlation of the channels of each field, ``(K, C, C)``."""
        return self.mixing @ self.mixing.transpose(1, 2)

    def correlations(self) -> Tensor:
        """Return the correlation of each field at every offset, ``(K, 2 S - 1, 2 S - 1)``."""
        side = 2 * self.filters.shape[-1] - 1
        power = torch.fft.rfft2(self.filters, s=(side, side)).abs().square()
        return torch.fft.irfft2(power, s=(side, side)).roll((side // 2,) * 2, (-2, -1))


class JointHead(nn.Module):
    """Predicts the weights of the fields from the features of the trunk and of the sigma branch.

    Args:
        in_channels: Channels of both kinds of features together.
        out_channels: Channels of the picture.
        scale: Size of the result divided by the size of the features.
        fields: Number of fields; the first two are white.
        width: Channels of the hidden layer.
        reach: Radius of the filters, in pixels of the result.

    Example:
        >>> head = JointHead(16, 3, scale=2, fields=8, width=4)
        >>> weights = head(torch.rand(1, 16, 5, 6))
        >>> weights.shape, bool((weights.square().sum(1) - 1).abs().max() < 1e-5)
        (torch.Size([1, 8, 10, 12]), True)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        scale: int,
        fields: int = 24,
        width: int = 96,
        reach: int = 8,
    ) -> None:
        super().__init__()
        check_size("width of the joint head", width, 1)
        for name, value, low, high in (
            ("number of fields", fields, 2, MAX_FIELDS),
            ("reach of the filters", reach, 1, MAX_REACH),
        ):
            check_size(name, value, low)
            if value > high:
                raise ConfigError(f"the {name} is at most {high}, got {value}")
        self.fields, self.width, self.reach = fields, width, reach
        self.body = nn.Sequential(conv3x3(in_channels, width), nn.PReLU())
        last = nn.Conv2d(width, fields * scale**2, kernel_size=1)
        assert last.bias is not None
        if not last.weight.is_meta:  # PyTorch takes seconds to draw numbers without values
            nn.init.normal_(last.weight, std=0.3 / math.sqrt(width))
            nn.init.constant_(last.bias, 1.0)
        self.upsampler = nn.Sequential(last, nn.PixelShuffle(scale))
        filters, mixing = initial_fields(fields, out_channels, reach)
        self.raw_filters = nn.Parameter(filters)
        self.raw_mixing = nn.Parameter(mixing)

    @property
    def settings(self) -> dict[str, int]:
        """What a weights file says about the head."""
        return {"fields": self.fields, "width": self.width, "reach": self.reach}

    def forward(self, features: Tensor) -> Tensor:
        """Map features to weights, ``(N, fields, H, W)``, in float32 at least."""
        return normalised(self.upsampler(self.body(features)).float())

    def bank(self) -> FieldBank:
        """Return the fields."""
        filters, mixing = self.raw_filters.float(), self.raw_mixing.float()
        # The two white fields stay white: their filters are constants.
        white = torch.zeros_like(filters[:2])
        white[:, self.reach, self.reach] = 1
        independent = torch.eye(mixing.shape[-1], device=mixing.device)[None]
        filters = torch.cat([white, filters[2:]])
        mixing = torch.cat([independent, mixing[1:]])
        return FieldBank(
            filters / filters.flatten(1).norm(dim=1).clamp_min(1e-6)[:, None, None],
            mixing / mixing.norm(dim=2, keepdim=True).clamp_min(1e-6),
        )


def normalised(values: Tensor) -> Tensor:
    """Scale the weights of each pixel so that their squares add up to one.

    The first field is independent in all pixels and channels; its share is at least `NUGGET`.
    """
    squares = values.square()
    total = squares.sum(1, keepdim=True) + 1e-12
    shares = (1 - NUGGET) * squares[:, :1] / total + NUGGET
    others = values[:, 1:] * ((1 - NUGGET) / total).sqrt()
    return torch.cat([shares.sqrt(), others], 1)


def with_noise(weights: Tensor, std: Tensor, noise_std: float = NOISE_STD) -> Tensor:
    """Let a part of the errors be noise in the truth, which is independent everywhere.

    Where an error bar is hardly larger than such noise, as in the sky, errors are nearly
    independent. The squares of the weights still add up to one.

    Args:
        weights: Of the fields, ``(N, K, H, W)``; the first field is independent in all values.
        std: Standard deviation of each value, ``(N, C, H, W)``.
        noise_std: Of the noise.

    Example:
        >>> weights = normalised(torch.randn(1, 4, 2, 2))
        >>> noisy = with_noise(weights, torch.full((1, 3, 2, 2), 2 / 255))
        >>> bool((noisy[:, 0].square() >= 0.25).all())
        True
    """
    share = (noise_std**2 / std.square().mean(1, keepdim=True).clamp_min(1e-12)).clamp_max(1)
    first = (share + (1 - share) * weights[:, :1].square()).sqrt()
    return torch.cat([first, (1 - share).sqrt() * weights[:, 1:]], 1)


def initial_fields(count: int, channels: int, reach: int) -> tuple[Tensor, Tensor]:
    """Return filters ``(count, S, S)`` and mixing ``(count, C, C)`` that training starts from.

    White noise; blobs and lines of several widths; stripes in four directions, finer than the
    pixels of the input; and differences of blobs, whose sum is zero. Channels are nearly alike in
    most of them, and their sum is nearly zero in a few.
    """
    axis = torch.arange(-reach, reach + 1).float()
    if axis.is_meta:  # without values; PyTorch takes seconds for sums of such tensors
        side = len(axis)
        return torch.empty(count, side, side), torch.empty(count, channels, channels)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    shapes = list(_shapes(y, x))
    filters = torch.stack([shapes[number % len(shapes)] for number in range(count)])
    alike = torch.zeros(channels, channels)
    alike[:, 0] = 1
    apart = torch.eye(channels) - 1 / channels
    weak = 0.2 * torch.eye(channels)
    mixing = torch.stack(
        [apart if number in _APART and channels > 1 else alike + weak for number in range(count)]
    )
    mixing[0] = torch.eye(channels)
    return filters, mixing


_APART = (3, 9, 14, 20)
"""Which fields start as differences of the channels."""


def _shapes(y: Tensor, x: Tensor) -> Iterator[Tensor]:
    def blob(std: float, across: float | None = None, angle: float = 0.0) -> Tensor:
        along, side = (
            x * math.cos(angle) + y * math.sin(angle),
            y * math.cos(angle) - x * math.sin(angle),
        )
        values = torch.exp(-(along / std).square() / 2 - (side / (across or std)).square() / 2)
        return values / values.sum()

    def stripes(angle: float, period: float) -> Tensor:
        phase = 2 * math.pi * (x * math.cos(angle) + y * math.sin(angle)) / period
        return blob(2.0) * torch.cos(phase)

    delta = ((x == 0) & (y == 0)).float()
    quarter = math.pi / 4
    yield from (delta, delta, blob(0.7), blob(0.7), blob(1.2), blob(2.0), blob(3.5))
    yield from (blob(0.7) - blob(1.5), blob(1.2) - blob(2.4), blob(1.4))
    yield from (blob(3.0, 0.7, quarter * n) for n in range(4))
    yield blob(3.5)
    yield from (stripes(quarter * n, 4.0) for n in range(4))
    yield from (delta - blob(0.8), blob(0.7) - blob(1.5), blob(2.0) - blob(3.5))
    yield from (stripes(quarter * n, 2.6) for n in range(4))
    for angle in (quarter * (n + 0.5) for n in range(4)):
        yield blob(3.0, 0.7, angle) - blob(3.0, 1.8, angle)


def joint_head(network: Network, **settings: Any) -> JointHead:
    """Return an untrained head for a network with a sigma branch."""
    if not isinstance(network, WithSigma):
        raise ConfigError("a joint head needs a network with a sigma branch")
    info = network.info
    channels = info.feature_channels + (network.width if network.depth else 0)
    return JointHead(channels, info.out_channels, scale=info.feature_scale, **settings)


def head_features(network: WithSigma, features: Tensor) -> tuple[Tensor, Tensor]:
    """Return sigma, and what the head reads: features of the trunk and of the sigma branch."""
    hidden = network.branch.body(features)
    together = torch.cat([features, hidden], 1) if network.depth else features
    return network.branch.predict(hidden), together


class JointNetwork(Network):
    """A network and its joint head in one pass; mean, sigma and weights are channels of one image.

    So everything that runs a network in tiles runs this one, too. `split` takes the result apart.
    """

    def __init__(self, network: WithSigma, head: JointHead) -> None:
        super().__init__()
        info = network.info
        radius = info.feature_receptive_radius
        if radius is not None and info.receptive_radius is not None:
            reads = (network.depth + 1) * info.feature_scale / info.scale
            radius = max(info.receptive_radius, radius + math.ceil(reads))
        channels = 2 * info.out_channels + head.fields
        floats = max(info.activation_floats_per_pixel, 6 * channels * info.scale**2)
        self.info = replace(
            info,
            out_channels=channels,
            receptive_radius=radius,
            activation_floats_per_pixel=floats,
        )
        self.network, self.head = network, head

    def features(self, degraded: Tensor) -> Tensor:
        """Return the features of the trunk."""
        return self.network.features(degraded)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Return mean, sigma and weights, one after the other."""
        mean = self.network.reconstruct(features, degraded)
        sigma, together = head_features(self.network, features)
        rows, columns = mean.shape[-2:]
        parts = (mean, sigma, self.head(together))
        return torch.cat([part[..., :rows, :columns] for part in parts], 1)

    def split(self, image: Tensor) -> tuple[Prediction, Tensor]:
        """Return the prediction of the network, and the weights of the head."""
        channels = self.network.info.out_channels
        mean, sigma = image[:, :channels], image[:, channels : 2 * channels]
        return Prediction(mean, sigma), image[:, 2 * channels :]
