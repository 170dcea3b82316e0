"""Deep networks are compiled block by block: equal blocks share one compiled graph.

To compile a network of hundreds of layers as one graph takes minutes, longer than a short training.
Such networks repeat one block many times, and a block that is compiled on its own is compiled once.
"""

from collections import defaultdict
from typing import Any

from torch import nn

DEEP = 200
"""Layers from which on a network is compiled block by block."""

MIN_BLOCKS = 8
"""How often a block must occur to be compiled on its own."""

MIN_SHARE = 0.7
"""Share of the layers that the blocks must hold together."""


def repeated_blocks(network: nn.Module) -> list[nn.Module]:
    """Return the largest equal blocks of a deep network; none for other networks.

    Blocks are equal when they have one class and weights of the same names and shapes.

    Example:
        >>> from musigma.networks import create
        >>> blocks = repeated_blocks(create("rcan", scale=2))
        >>> len(blocks), type(blocks[0]).__name__
        (10, 'ResidualGroup')
    """
    if _num_layers(network) < DEEP:
        return []
    equal: dict[object, list[nn.Module]] = defaultdict(list)
    for module in network.modules():
        shapes = tuple((name, weight.shape) for name, weight in module.named_parameters())
        equal[type(module), shapes].append(module)
    least = MIN_SHARE * _num_layers(network)
    groups = [
        group
        for group in equal.values()
        if len(group) >= MIN_BLOCKS and len(group) * _num_layers(group[0]) >= least
    ]
    return min(groups, key=len, default=[])  # the largest blocks, in which most can be fused


def compile_blocks(blocks: list[nn.Module], **options: Any) -> None:
    """Compile each block in place, for inputs of one size; options go to `torch.compile`."""
    block: Any  # some versions of torch have types for this method, others have none
    for block in blocks:
        block.compile(fullgraph=True, dynamic=False, **options)


def _num_layers(module: nn.Module) -> int:
    return sum(weight.ndim > 1 for weight in module.parameters())
