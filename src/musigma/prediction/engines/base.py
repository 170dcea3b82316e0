"""What every engine is: a way to run a network on a batch of equal tiles."""

import copy
from itertools import chain
from typing import Protocol

import torch
from torch import Tensor

from musigma.networks import Network
from musigma.types import Prediction


class Engine(Protocol):
    """Runs a network; `predict` cuts the image into tiles and puts the results together.

    Several threads may call one engine at the same time; each gets the result of its own tiles.

    Attributes:
        name: What users type, and what messages say.
        device: Where it computes.
        batches: Whether several tiles at once are faster than one after the other. They are on a
            GPU. One tile keeps a CPU busy, and alone it is rounded more nearly as the whole image.
    """

    name: str
    device: torch.device
    batches: bool

    def __call__(self, tiles: Tensor) -> Prediction:
        """Map ``(N, C, h, w)`` float32 in host memory to a float32 prediction in host memory."""
        ...


def device_of(network: Network) -> torch.device:
    """Return where the weights of a network are; a network without weights runs on the CPU."""
    return next((parameter.device for parameter in network.parameters()), torch.device("cpu"))


def in_evaluation_mode(network: Network) -> Network:
    """Return a network in evaluation mode: itself, or a copy that shares its weights and buffers.

    The network that was given keeps its mode, so that a training loop can go on.
    """
    if not network.training:
        return network
    shared = chain(network.parameters(), network.buffers())
    return copy.deepcopy(network, {id(tensor): tensor for tensor in shared}).eval()
