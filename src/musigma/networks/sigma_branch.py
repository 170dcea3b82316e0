"""The sigma branch of the paper: four Conv + PReLU on the trunk's features, then an upsampler."""

import math
from typing import Self

import torch
from torch import Tensor, nn

from musigma.networks.base import Network, conv3x3
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
        """Map features to sigma."""
        # In half precision small errors would fall on a coarse grid. Outside training a CPU takes
        # float64: it computes the last values of a row by another routine, and only then does the
        # rounded result not depend on where a tile ends.
        logits = self.upsampler(self.body(features))
        exact = not (self.training or logits.is_cuda)
        return torch.sigmoid(logits.to(torch.float64 if exact else torch.float32)).float()


class WithSigma(Network):
    """A network and the branch beside it; the mean is computed exactly as without the branch."""

    def __init__(self, base: Network, *, width: int = 160, depth: int = 4) -> None:
        super().__init__()
        self.take_facts(base)
        self.has_sigma = True
        self.receptive_radius = _branch_radius(base, depth)
        self.width, self.depth = width, depth
        self.base = base
        self.branch = SigmaBranch(
            base.feature_channels,
            base.out_channels,
            scale=base.feature_scale,
            width=width,
            depth=depth,
        )

    def train(self, mode: bool = True) -> Self:
        """Set the mode of both, but for a base that does not learn: it restores as ever."""
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

    Example:
        >>> from musigma.networks import create
        >>> network = with_sigma(create("edsr-baseline", scale=2, num_blocks=1), width=8)
        >>> prediction = network(torch.zeros(1, 3, 7, 5))
        >>> tuple(prediction.mean.shape) == tuple(prediction.sigma.shape) == (1, 3, 14, 10)
        True
    """
    if isinstance(network, WithSigma):
        raise ConfigError("the network has a sigma branch already; mean_only(network) removes it")
    return WithSigma(network, width=width, depth=depth)


def mean_only(network: Network) -> Network:
    """Return the network without its sigma branch; its mean is the same to the bit."""
    return network.base if isinstance(network, WithSigma) else network


def _branch_radius(base: Network, depth: int) -> int | None:
    if base.receptive_radius is None or base.feature_receptive_radius is None:
        return None
    # A step of one feature is feature_scale / scale input pixels.
    reach = math.ceil((depth + 1) * base.feature_scale / base.scale)
    return max(base.receptive_radius, base.feature_receptive_radius + reach)
