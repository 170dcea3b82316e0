"""Copies of networks with weights in half precision, to be run under autocast."""

import copy
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


def half_copy(
    network: Module,
    half: torch.dtype,
    *,
    share_buffers: bool = False,
    keep: Callable[[nn.Module], bool] = lambda _: False,
) -> Module:
    """Return a copy of a network with weights in half precision.

    Batch norm keeps its weights: it is the one layer that autocast does not look after.

    Args:
        network: The network in float32.
        half: ``torch.bfloat16`` or ``torch.float16``.
        share_buffers: Whether the copy uses the buffers of the network itself, so that running
            statistics that the copy updates reach the network.
        keep: Whether a layer keeps its float32 weights.
    """
    shared = {id(buffer): buffer for buffer in network.buffers()} if share_buffers else {}
    worker = copy.deepcopy(network, shared)
    for module in worker.modules():
        if not isinstance(module, nn.modules.batchnorm._BatchNorm) and not keep(module):
            for parameter in module.parameters(recurse=False):
                parameter.data = parameter.data.to(half)
    return worker


class Float32Layer(nn.Module):
    """A layer that computes in float32 inside autocast.

    Args:
        layer: The layer, with float32 weights.
        result: Type of the result.
    """

    def __init__(self, layer: nn.Module, result: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.layer, self.result = layer, result

    def forward(self, values: Tensor) -> Tensor:
        """Compute the layer in float32."""
        with torch.autocast(values.device.type, enabled=False):
            return self.layer(values.float()).to(self.result)
