"""Dropout of whole channels, and the thinned networks that one draw of it makes."""

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

from musigma.networks.base import Network
from musigma.types import ConfigError

AnyNetwork = TypeVar("AnyNetwork", bound=Network)


class ChannelDropout(nn.Dropout2d):
    """Sets whole channels to nought in training and lets all of them pass afterwards.

    A channel is the same at every pixel: a network thinned by a draw is a network like any other,
    with the same radius, and its tiles give what the whole image gives.

    Args:
        num_channels: Of the features it is given.
        probability: With which a channel is left out.
    """

    def __init__(self, num_channels: int, probability: float) -> None:
        if not 0 <= probability < 1:
            raise ConfigError(f"dropout must be nought or more and below 1, got {probability}")
        super().__init__(probability)
        self.num_channels = num_channels


class FixedChannels(nn.Module):
    """What is left of a `ChannelDropout` after its channels have been drawn."""

    factors: Tensor

    def __init__(self, dropout: ChannelDropout, generator: torch.Generator) -> None:
        super().__init__()
        kept = torch.rand(dropout.num_channels, 1, 1, generator=generator) >= dropout.p
        self.register_buffer("factors", kept / (1 - dropout.p), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """Leave out the channels that were drawn, and raise the others to make up for it."""
        return features * self.factors.to(features.dtype)


def thinned(network: AnyNetwork, generator: torch.Generator) -> AnyNetwork:
    """Return a network with one draw of its dropout, sharing the weights of the one it came from.

    Example:
        >>> from musigma.networks import create
        >>> network = create("edsr-baseline", scale=2, num_blocks=1, width=8, dropout=0.5).eval()
        >>> one = thinned(network, torch.Generator().manual_seed(0))
        >>> degraded = torch.rand(1, 3, 7, 5)
        >>> bool((one(degraded).mean != network(degraded).mean).any())
        True
    """
    found = copy.deepcopy(network, {id(weight): weight for weight in network.parameters()})
    layers = {n: m for n, m in found.named_modules() if isinstance(m, ChannelDropout)}
    if not layers:
        raise ConfigError(
            f"{network.build_spec.name} was trained without dropout; "
            "'musigma train baseline-dropout' trains one with it"
        )
    device = next(network.parameters()).device
    for name, layer in layers.items():
        parent, _, child = name.rpartition(".")
        setattr(found.get_submodule(parent), child, FixedChannels(layer, generator).to(device))
    return found
