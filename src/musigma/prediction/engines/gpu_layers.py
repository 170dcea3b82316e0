"""Layers of a network changed for a GPU in half precision; they compute the same, but faster."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from musigma.kernels.conv3x3 import (
    TRIED_SIDE,
    convolve,
    is_faster_than_compiled,
    is_plain_conv3x3,
)
from musigma.kernels.fused_blocks import FusedResidualBlock, is_fusible
from musigma.networks import Network
from musigma.networks.super_resolution.edsr import ResidualBlock

TENSOR_CORE = 8
"""Tensor cores want the number of channels to be a multiple of this."""

IsFaster = Callable[[list[dict[str, Any]]], bool]


def adapt_to_gpu(
    worker: Network, tiles: Tensor, *, is_faster: IsFaster = is_faster_than_compiled
) -> None:
    """Change the layers of a network in place to those that are fastest on a GPU.

    Args:
        worker: The network, in half precision.
        tiles: An input; the fastest layers depend on its size.
        is_faster: Whether our own convolution is faster than cuDNN's for some cases.
    """
    widen(worker)
    fuse(worker, _input_shapes(worker, tiles), is_faster)


def widen(worker: Network) -> None:
    """Pad the outputs of convolutions to a multiple of `TENSOR_CORE`; the padding is cut off.

    Neither cuDNN nor our own convolution has a fast routine for other numbers of channels.
    """
    for name, module in list(worker.named_modules()):
        if type(module) is nn.Conv2d and module.out_channels % TENSOR_CORE and module.groups == 1:
            parent, _, child = name.rpartition(".")
            setattr(worker.get_submodule(parent), child, _Widened(module))


class _Widened(nn.Module):
    """A convolution with padded outputs; the padding is cut off."""

    def __init__(self, layer: nn.Conv2d) -> None:
        super().__init__()
        self.num_kept = layer.out_channels
        self.layer = layer
        more = -layer.out_channels % TENSOR_CORE
        layer.out_channels += more
        weight = nn.functional.pad(layer.weight.data, (0, 0, 0, 0, 0, 0, 0, more))
        layer.weight.data = weight.contiguous(memory_format=torch.channels_last)
        if layer.bias is not None:
            layer.bias.data = nn.functional.pad(layer.bias.data, (0, more))

    def forward(self, values: Tensor) -> Tensor:
        return self.layer(values)[:, : self.num_kept]


def fuse(worker: Network, shapes: dict[nn.Module, torch.Size], is_faster: IsFaster) -> None:
    """Use our own convolution, fused with the activation or residual after it, where it is faster.

    Args:
        worker: The network; its layers are changed in place.
        shapes: Shape of what each convolution reads.
        is_faster: Whether our own convolution is faster for some cases.
    """
    fused: set[nn.Module] = set()
    for block in worker.modules():
        if is_fusible(block, ResidualBlock, _can_be_replaced) and block.body[0] in shapes:
            first, last = _case(block.body[0], shapes), _case(block.body[2], shapes)
            if is_faster([first | {"rectify": True}, last | {"add": first["image"]}]):
                fused |= {block.body, *block.body}
                block.__class__ = FusedResidualBlock  # type: ignore[assignment]
    for chain in [part for part in worker.modules() if isinstance(part, nn.Sequential)]:
        for index, (layer, follower) in enumerate(pairwise(list(chain))):
            if chain not in fused and layer in shapes and _is_activation(follower):
                assert isinstance(layer, nn.Conv2d)
                own = _OwnConv(layer, follower)
                if is_faster([_case(layer, shapes) | own.activation]):
                    chain[index], chain[index + 1] = own, nn.Identity()
                    fused.add(layer)
    for name, layer in list(worker.named_modules()):
        if layer in shapes and layer not in fused and is_faster([_case(layer, shapes)]):
            parent, _, child = name.rpartition(".")
            setattr(worker.get_submodule(parent), child, _OwnConv(layer, None))


class _OwnConv(nn.Module):
    """Our own convolution and, where there is one, the ReLU or PReLU after it."""

    def __init__(self, layer: nn.Conv2d, activation: nn.Module | None) -> None:
        super().__init__()
        self.layer = layer
        self.slope = activation.weight if isinstance(activation, nn.PReLU) else None
        self.rectify = type(activation) is nn.ReLU

    @property
    def activation(self) -> dict[str, Any]:
        return {"slope": self.slope, "rectify": self.rectify}

    def forward(self, values: Tensor) -> Tensor:
        weight, bias = self.layer.weight, self.layer.bias
        return convolve(values.to(weight.dtype), weight, bias, **self.activation)


def _input_shapes(worker: Network, tiles: Tensor) -> dict[nn.Module, torch.Size]:
    """Return the input shape of each convolution that our own could replace."""
    shapes: dict[nn.Module, torch.Size] = {}

    def note(layer: nn.Module, given: tuple[Tensor, ...]) -> None:
        shapes[layer] = given[0].shape

    layers = [layer for layer in worker.modules() if _can_be_replaced(layer)]
    hooks = [layer.register_forward_pre_hook(note) for layer in layers]
    try:
        worker(tiles)
    finally:
        for hook in hooks:
            hook.remove()
    return shapes


def _case(layer: nn.Module, shapes: dict[nn.Module, torch.Size]) -> dict[str, Any]:
    assert isinstance(layer, nn.Conv2d)
    num_images, channels, *size = shapes[layer]
    height, width = (min(length, TRIED_SIDE) for length in size)
    image = layer.weight.new_empty((num_images, channels, height, width))
    image = image.normal_().contiguous(memory_format=torch.channels_last)
    return {"image": image, "weight": layer.weight, "bias": layer.bias}


def _is_activation(module: nn.Module) -> bool:
    one_slope = isinstance(module, nn.PReLU) and module.num_parameters == 1
    return type(module) is nn.ReLU or one_slope


def _can_be_replaced(layer: nn.Module) -> TypeGuard[nn.Conv2d]:
    if not is_plain_conv3x3(layer):
        return False
    return layer.in_channels % 32 == 0 and layer.out_channels % TENSOR_CORE == 0
