"""Dropout of whole channels, and networks in which one draw of it is fixed."""

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

from musigma.networks.base import Network
from musigma.types import ConfigError

AnyNetwork = TypeVar("AnyNetwork", bound=Network)


class ChannelDropout(nn.Dropout2d):
    """Sets whole channels to zero in training and lets all of them pass afterwards.

    A dropped channel is dropped at every pixel. So a network with a fixed draw is a network like
    any other, with the same receptive radius, and its tiles give what the whole image gives.

    Args:
        num_channels: Channels of the features.
        probability: Probability with which a channel is dropped.
    """

    def __init__(self, num_channels: int, probability: float) -> None:
        if not 0 <= probability < 1:
            raise ConfigError(f"dropout must be 0 or more and below 1, got {probability}")
        super().__init__(probability)
        self.num_channels = num_channels


class FrozenDropout(nn.Module):
    """One draw of a `ChannelDropout`, applied to every image."""

    factors: Tensor

    def __init__(self, dropout: ChannelDropout, generator: torch.Generator) -> None:
        super().__init__()
        kept = torch.rand(dropout.num_channels, 1, 1, generator=generator) >= dropout.p
        self.register_buffer("factors", kept / (1 - dropout.p), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """Drop the drawn channels, and scale the others up to make up for it."""
        return features * self.factors.to(features.dtype)


def sample_dropout_mask(network: AnyNetwork, generator: torch.Generator) -> AnyNetwork:
    """Return a network with one fixed draw of its dropout; it shares the weights.

    Example:
        >>> from musigma.networks import create
        >>> network = create("edsr-baseline", scale=2, num_blocks=1, width=8, dropout=0.5).eval()
        >>> sample = sample_dropout_mask(network, torch.Generator().manual_seed(0))
        >>> degraded = torch.rand(1, 3, 7, 5)
        >>> bool((sample(degraded).mean != network(degraded).mean).any())
        True
    """
    sample = copy.deepcopy(network, {id(weight): weight for weight in network.parameters()})
    layers = {n: m for n, m in sample.named_modules() if isinstance(m, ChannelDropout)}
    if not layers:
        raise ConfigError(
            f"this {type(network).__name__} was trained without dropout; train it with "
            "settings = { dropout = 0.1 } in its recipe"
        )
    device = next(network.parameters()).device
    for name, layer in layers.items():
        parent, _, child = name.rpartition(".")
        setattr(sample.get_submodule(parent), child, FrozenDropout(layer, generator).to(device))
    return sample
