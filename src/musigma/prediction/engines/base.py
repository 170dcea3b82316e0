"""What every engine is: a way to run a network on a batch of equal tiles."""

from typing import Protocol

import torch
from torch import Tensor

from musigma.networks import Network
from musigma.types import Prediction


class Engine(Protocol):
    """Runs a network; `predict` cuts the image up, feeds it and puts the results together.

    Attributes:
        name: What users type, and what messages say.
        device: Where it computes.
        batches: Whether several tiles at once are quicker than one after the other. They are on a
            GPU; a CPU is busy with one, and alone each tile is rounded as the whole image is.
    """

    name: str
    device: torch.device
    batches: bool

    def __call__(self, tiles: Tensor) -> Prediction:
        """Map ``(N, C, h, w)`` float32 in host memory to a float32 prediction in host memory."""
        ...


def device_of(network: Network) -> torch.device:
    """Return where a network lies; one without weights is at home on the CPU."""
    return next((parameter.device for parameter in network.parameters()), torch.device("cpu"))
