"""The sigma branch of the paper: four Conv + PReLU on the trunk's features, then an upsampler."""

import math
from dataclasses import replace
from typing import Self

import torch
from torch import Tensor, nn

from musigma.networks.base import BuildSpec, Network, NetworkInfo
from musigma.networks.bounded_build import check_size
from musigma.networks.layers import conv3x3
from musigma.types import ConfigError, Prediction

INITIAL_SIGMA = 0.02
"""Sigma of an untrained branch: about the mean error of x2, so that training starts near it.

The paper does not say how it starts; a sigmoid left at 0.5 spends thousands of steps coming down.
"""


class SigmaBranch(nn.Module):
    """Predicts the absolute error of the mean, in ``(0, 1)``, from the trunk's last features."""

    def __init__(
        self, feature_channels: int, out_channels: int, *, scale: int, width: int, depth: int
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for index in range(depth):
            layers += [conv3x3(feature_channels if index == 0 else width, width), nn.PReLU()]
        last = conv3x3(width, out_channels * scale**2)
        assert last.bias is not None
        nn.init.constant_(last.bias, math.log(INITIAL_SIGMA / (1 - INITIAL_SIGMA)))
        self.body = nn.Sequential(*layers)
        self.upsampler = nn.Sequential(last, nn.PixelShuffle(scale))

    def forward(self, features: Tensor) -> Tensor:
        """Map features to sigma, in float32 at least."""
        return self.predict(self.body(features))

    def predict(self, hidden: Tensor) -> Tensor:
        """Map what the body made of the features to sigma."""
        logits = self.upsampler(hidden)
        if _rounds_by_position(logits) and not self.training:
            return torch.sigmoid(logits.double()).float()
        # Half precision would put small errors on a coarse grid.
        return torch.sigmoid(logits.float())


def _rounds_by_position(logits: Tensor) -> bool:
    """Say whether the sigmoid of float32 depends on where in memory a value lies.

    PyTorch on a CPU uses vector instructions for most of a tensor and a scalar routine for the
    rest, and the two round differently, so that tiles would differ from the whole image. The
    detour through float64 hides the difference. Graphs that are compiled or exported run elsewhere,
    often where there is no float64 at all.
    """
    return logits.device.type == "cpu" and not torch.compiler.is_compiling()


class WithSigma(Network):
    """A network and the branch beside it; the mean is computed exactly as without the branch."""

    has_sigma = True

    def __init__(self, base: Network, *, width: int = 160, depth: int = 4) -> None:
        super().__init__()
        self.info = replace(base.info, receptive_radius=_radius(base.info, depth))
        self.width, self.depth = width, depth
        self.base = base
        self.branch = SigmaBranch(
            base.info.feature_channels,
            base.info.out_channels,
            scale=base.info.feature_scale,
            width=width,
            depth=depth,
        )

    @property
    def build_spec(self) -> BuildSpec:
        """How to build the base network again."""
        return self.base.build_spec

    def train(self, mode: bool = True) -> Self:
        """Set the mode of both parts; a base whose weights are all frozen stays in `eval` mode."""
        super().train(mode)
        if not any(weight.requires_grad for weight in self.base.parameters()):
            self.base.eval()
        return self

    def features(self, degraded: Tensor) -> Tensor:
        """Return the features of the base network."""
        return self.base.features(degraded)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Return the mean of the base network."""
        return self.base.reconstruct(features, degraded)

    def forward(self, degraded: Tensor) -> Prediction:
        """Restore a batch of images and predict the error of each value."""
        features = self.features(degraded)
        mean = self.reconstruct(features, degraded)
        sigma = self.branch(features)
        # A trunk that pads its input has features beyond the image; the mean is cropped already.
        return Prediction(mean, sigma[..., : mean.shape[-2], : mean.shape[-1]])


def with_sigma(network: Network, *, width: int = 160, depth: int = 4) -> WithSigma:
    """Attach a sigma branch to a network.

    Args:
        network: Any `musigma.Network`, one of your own included.
        width: Channels of the branch.
        depth: Convolutions of the branch before its upsampler.

    Example:
        >>> from musigma.networks import create
        >>> network = with_sigma(create("edsr-baseline", scale=2, num_blocks=1), width=8)
        >>> prediction = network(torch.zeros(1, 3, 7, 5))
        >>> tuple(prediction.mean.shape) == tuple(prediction.sigma.shape) == (1, 3, 14, 10)
        True
    """
    if not isinstance(network, Network):
        raise ConfigError(
            f"with_sigma takes a musigma.Network, got {type(network).__name__}; the docs say how a "
            "network of your own becomes one ('Add a network'), and musigma.wrap learns error bars "
            "for any network as it is"
        )
    if isinstance(network, WithSigma):
        raise ConfigError("the network has a sigma branch already; mean_only(network) removes it")
    check_size("width of the sigma branch", width, 1)
    check_size("depth of the sigma branch", depth, 0)
    return WithSigma(network, width=width, depth=depth)


def mean_only(network: Network) -> Network:
    """Return the network without its sigma branch; its mean is the same to the bit.

    Example:
        >>> from musigma.networks import create
        >>> network = create("bicubic", scale=2)
        >>> mean_only(with_sigma(network, width=8)) is network
        True
    """
    return network.base if isinstance(network, WithSigma) else network


def _radius(base: NetworkInfo, depth: int) -> int | None:
    if base.receptive_radius is None or base.feature_receptive_radius is None:
        return None
    # One feature is as wide as feature_scale / scale input pixels.
    branch = math.ceil((depth + 1) * base.feature_scale / base.scale)
    return max(base.receptive_radius, base.feature_receptive_radius + branch)
