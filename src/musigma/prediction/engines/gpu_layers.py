"""The layers of a network as a GPU likes them in half precision; what they compute is the same."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from musigma.kernels import conv3x3 as convolution
from musigma.kernels.conv3x3 import convolve, serves
from musigma.networks import Network
from musigma.networks.super_resolution.edsr import ResidualBlock

TENSOR_CORE = 8
"""Of which the number of channels should be a multiple."""

Pays = Callable[[list[dict[str, Any]]], bool]


def suit_gpu(worker: Network, tiles: Tensor, *, pays: Pays = convolution.pays) -> None:
    """Change a network in place.

    Args:
        worker: The network, in half precision.
        tiles: What it will be given, by the size of which it is decided what is faster.
        pays: Whether a convolution of our own is.
    """
    widen(worker)
    fuse(worker, _what_layers_read(worker, tiles), pays)


def widen(worker: Network) -> None:
    """Give convolutions as many outputs as tensor cores ask for; the further ones are cut off.

    Neither cuDNN nor our own convolution has a fast routine for others.
    """
    for name, module in list(worker.named_modules()):
        if type(module) is nn.Conv2d and module.out_channels % TENSOR_CORE and module.groups == 1:
            parent, _, child = name.rpartition(".")
            setattr(worker.get_submodule(parent), child, _Widened(module))


class _Widened(nn.Module):
    """A convolution with further outputs, which are cut off."""

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


def fuse(worker: Network, read: dict[nn.Module, torch.Size], pays: Pays) -> None:
    """Take our own convolution, with the activation or the residual behind it, where that pays."""
    whole: set[nn.Module] = set()
    for block in worker.modules():
        if _is_plain(block) and block.body[0] in read:
            first, last = _case(block.body[0], read), _case(block.body[2], read)
            if pays([first | {"rectify": True}, last | {"add": first["image"]}]):
                block.__class__ = _FusedBlock
                whole |= {block.body, *block.body}
    for chain in [part for part in worker.modules() if isinstance(part, nn.Sequential)]:
        for number, (layer, follower) in enumerate(pairwise(list(chain))):
            if chain not in whole and layer in read and _is_activation(follower):
                assert isinstance(layer, nn.Conv2d)
                fused = _OwnConv(layer, follower)
                if pays([_case(layer, read) | fused.activation]):
                    chain[number], chain[number + 1] = fused, nn.Identity()
                    whole.add(layer)
    for name, layer in list(worker.named_modules()):
        if layer in read and layer not in whole and pays([_case(layer, read)]):
            parent, _, child = name.rpartition(".")
            setattr(worker.get_submodule(parent), child, _OwnConv(layer, None))


class _FusedBlock(ResidualBlock):
    """A residual block in two kernels."""

    def forward(self, features: Tensor) -> Tensor:
        first, last = self.body[0], self.body[2]
        assert isinstance(first, nn.Conv2d)
        assert isinstance(last, nn.Conv2d)
        features = features.to(first.weight.dtype)
        between = convolve(features, first.weight, first.bias, rectify=True)
        return convolve(between, last.weight, last.bias, add=features)


class _OwnConv(nn.Module):
    """A convolution and, where there is one, the ReLU or PReLU behind it."""

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


def _what_layers_read(worker: Network, tiles: Tensor) -> dict[nn.Module, torch.Size]:
    """Return the size of what each convolution that our own could replace is given."""
    read: dict[nn.Module, torch.Size] = {}

    def note(layer: nn.Module, given: tuple[Tensor, ...]) -> None:
        read[layer] = given[0].shape

    layers = [layer for layer in worker.modules() if _fits(layer)]
    hooks = [layer.register_forward_pre_hook(note) for layer in layers]
    try:
        worker(tiles)
    finally:
        for hook in hooks:
            hook.remove()
    return read


def _case(layer: nn.Module, read: dict[nn.Module, torch.Size]) -> dict[str, Any]:
    assert isinstance(layer, nn.Conv2d)
    side = convolution.TRIED_SIDE
    number, channels, height, width = read[layer]
    image = layer.weight.new_empty((number, channels, min(height, side), min(width, side)))
    image = image.normal_().contiguous(memory_format=torch.channels_last)
    return {"image": image, "weight": layer.weight, "bias": layer.bias}


def _is_plain(block: nn.Module) -> TypeGuard[ResidualBlock]:
    if type(block) is not ResidualBlock or block.res_scale != 1 or len(block.body) != 3:
        return False
    return _fits(block.body[0]) and _fits(block.body[2])


def _is_activation(module: nn.Module) -> bool:
    one_slope = isinstance(module, nn.PReLU) and module.num_parameters == 1
    return type(module) is nn.ReLU or one_slope


def _fits(layer: nn.Module) -> TypeGuard[nn.Conv2d]:
    if not serves(layer):
        return False
    return layer.in_channels % 32 == 0 and layer.out_channels % TENSOR_CORE == 0
