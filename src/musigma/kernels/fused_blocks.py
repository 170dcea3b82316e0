"""Residual blocks computed by our own convolution, for inference and for training.

A block is ``features + conv(relu(conv(features)))``. Our convolution adds the residual and applies
the ReLU before it writes, so that neither is a pass over memory of its own.
"""

from collections.abc import Callable
from typing import TypeGuard, TypeVar

from torch import Tensor, nn

from musigma.kernels.conv3x3 import convolve

Block = TypeVar("Block", bound=nn.Module)


def is_fusible(
    block: nn.Module, block_class: type[Block], accepts: Callable[[nn.Module], bool]
) -> TypeGuard[Block]:
    """Whether a module is a residual block that the functions of this module can compute.

    Args:
        block: The module.
        block_class: Class of residual blocks with ``body`` and ``res_scale``.
        accepts: Whether a layer is a convolution that may be fused.
    """
    if type(block) is not block_class or block.res_scale != 1:
        return False
    layers = list(block.get_submodule("body").children())
    return len(layers) == 3 and accepts(layers[0]) and accepts(layers[2])


def block_forward(
    features: Tensor,
    first_weight: Tensor,
    first_bias: Tensor | None,
    last_weight: Tensor,
    last_bias: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return what a residual block writes, and the activations between its convolutions."""
    between = convolve(features, first_weight, first_bias, rectify=True)
    return convolve(between, last_weight, last_bias, add=features), between


def block_backward(
    gradient: Tensor, between: Tensor, first_weight: Tensor, last_weight: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of what a block reads and of what its first convolution writes.

    Args:
        gradient: Of what the block writes, in channels-last order.
        between: The activations between the convolutions.
        first_weight: Of the first convolution.
        last_weight: Of the last convolution.
    """
    inner = convolve(gradient, last_weight, mask=between, backwards=True)
    return convolve(inner, first_weight, add=gradient, backwards=True), inner


class FusedResidualBlock(nn.Module):
    """A residual block in two kernels; assigned as the class of a block that `is_fusible`."""

    body: nn.Sequential

    def forward(self, features: Tensor) -> Tensor:
        """Refine the features."""
        first, last = self.body[0], self.body[2]
        assert isinstance(first, nn.Conv2d)
        assert isinstance(last, nn.Conv2d)
        features = features.to(first.weight.dtype)
        return block_forward(features, first.weight, first.bias, last.weight, last.bias)[0]
