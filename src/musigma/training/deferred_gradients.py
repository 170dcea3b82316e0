"""Weight gradients computed together, after the backward pass.

No other layer needs the gradient of a layer's weights, yet the backward pass computes it layer by
layer. Here the backward pass computes gradients of activations only. The input of each layer and
the gradient of its output are kept, and `musigma.kernels.triton_conv` turns those of all equal
layers into weight gradients at once.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from musigma.kernels.conv3x3 import convolve, is_faster_than_compiled, is_plain_conv3x3
from musigma.kernels.fused_blocks import block_backward, block_forward, is_fusible
from musigma.networks.super_resolution.edsr import ResidualBlock

MIN_LAYERS = 4
"""Groups of fewer equal layers use the ordinary backward pass."""

WeightGradients = Callable[[list[Tensor], list[Tensor]], tuple[list[Tensor], list[Tensor]]]


class DeferringConv(nn.Conv2d):
    """A 3x3 convolution whose backward pass leaves out the gradients of weight and bias.

    Attributes:
        rectifies: Whether the layer also computes the ReLU that follows it.
        probe: A tensor of the shape of the output whose gradient is that of the output. Its values
            are never read.
        last_input: Input of the last forward pass.
    """

    rectifies: bool
    probe: Tensor
    last_input: Tensor

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Convolve, and apply the ReLU where there is one."""
        image = input.to(self.weight.dtype)
        self.last_input = image.detach()
        return _Convolve.apply(image, self.weight, self.bias, self.probe, self.rectifies)  # type: ignore[no-untyped-call]


class _Convolve(torch.autograd.Function):
    @staticmethod
    def forward(ctx, image, weight, bias, probe, rectifies):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN205, ARG004
        if rectifies:
            output = convolve(image, weight, bias, rectify=True)
            ctx.save_for_backward(image, weight, output)
            return output
        ctx.save_for_backward(image, weight)
        return nn.functional.conv2d(image, weight, bias, padding=1)

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN205
        image, weight, *output = ctx.saved_tensors
        if output:
            gradient = torch.where(output[0] > 0, gradient, 0)
        ones, zeros = (1, 1), (0, 0)
        back, *_ = torch.ops.aten.convolution_backward(
            gradient, image, weight, None, ones, ones, ones, False, zeros, 1, (True, False, False)
        )
        return back, None, None, gradient, None


class DeferringBlock(ResidualBlock):
    """A residual block of two such convolutions, with its sum and its ReLU fused into them."""

    def forward(self, features: Tensor) -> Tensor:
        """Refine the features."""
        first, _, last = self.body
        assert isinstance(first, DeferringConv)
        assert isinstance(last, DeferringConv)
        features = features.to(first.weight.dtype)
        weights = first.weight, first.bias, last.weight, last.bias
        output, between = _Block.apply(features, *weights, first.probe, last.probe)  # type: ignore[no-untyped-call]
        first.last_input, last.last_input = features.detach(), between
        return output


class _Block(torch.autograd.Function):
    @staticmethod
    def forward(ctx, features, weight, bias, last_weight, last_bias, probe, last_probe):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN205, ARG004
        output, between = block_forward(features, weight, bias, last_weight, last_bias)
        ctx.save_for_backward(between, weight, last_weight)
        ctx.mark_non_differentiable(between)
        return output, between

    @staticmethod
    def backward(ctx, gradient, _):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN205
        between, weight, last_weight = ctx.saved_tensors
        gradient = _channels_last(gradient)
        back, inner = block_backward(gradient, between, weight, last_weight)
        return back, None, None, None, None, inner, gradient


def _fused_block_is_faster(block: ResidualBlock) -> bool:
    """Whether a fused block is faster than its layers one by one, timed on noise."""
    layer = block.body[0]
    assert isinstance(layer, DeferringConv)
    weight, bias = layer.weight.detach(), layer.bias
    values = _channels_last(torch.randn_like(layer.probe, memory_format=torch.contiguous_format))
    forwards = {"image": values, "weight": weight, "bias": bias}
    backwards = {"image": values, "weight": weight, "backwards": True}
    return is_faster_than_compiled(
        [
            forwards | {"rectify": True},
            forwards | {"add": values},
            backwards | {"mask": values},
            backwards | {"add": values},
        ]
    )


def defer(
    worker: nn.Module,
    example: Tensor,
    *,
    multiple: int = 16,
    least: int = 48,
    is_faster: Callable[[ResidualBlock], bool] = _fused_block_is_faster,
) -> list[list[DeferringConv]]:
    """Change the equal 3x3 convolutions of a network to layers with deferred weight gradients.

    Args:
        worker: The network; its layers are changed in place, its weights and names are not.
        example: An input of the size it will be trained with.
        multiple: Layers are changed if their numbers of channels are multiples of this, as our
            kernel needs.
        least: They are also changed only if they have so many channels, in and out; fewer leave
            most of the kernel's tiles empty.
        is_faster: Whether a residual block of such layers is faster when it is fused.

    Returns:
        The changed layers, in groups of equal ones.
    """
    calls: dict[nn.Module, list[tuple[torch.Size, torch.Size]]] = defaultdict(list)
    layers = [layer for layer in worker.modules() if _can_defer(layer, multiple, least)]

    def note(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        calls[layer].append((inputs[0].shape, output.shape))

    hooks = [layer.register_forward_hook(note) for layer in layers]
    with torch.no_grad():
        worker(example)
    for hook in hooks:
        hook.remove()
    by_shape: dict[tuple[torch.Size, torch.Size], list[nn.Module]] = defaultdict(list)
    for layer, shapes in calls.items():
        if len(shapes) == 1:  # what one layer reads twice would have to be kept twice
            by_shape[shapes[0]].append(layer)
    groups = [
        [_to_deferring(layer, output_shape) for layer in group]
        for (_, output_shape), group in by_shape.items()
        if len(group) >= MIN_LAYERS
    ]
    for block in worker.modules():
        if is_fusible(block, ResidualBlock, _is_deferring) and is_faster(block):
            block.__class__ = DeferringBlock
    _fuse_relus(worker)
    return groups


def gradients_of(
    loss: Tensor,
    weights: Sequence[Tensor],
    groups: list[list[DeferringConv]],
    together: WeightGradients | None = None,
) -> Sequence[Tensor]:
    """Return the gradient of a loss with respect to each weight, deferred or not."""
    if not groups:
        return torch.autograd.grad(loss, weights)
    if together is None:
        from musigma.kernels import triton_conv

        together = triton_conv.weight_gradients
    layers = [layer for group in groups for layer in group]
    deferred = {id(weight) for layer in layers for weight in (layer.weight, layer.bias)}
    rest = [weight for weight in weights if id(weight) not in deferred]
    probes = [layer.probe for layer in layers]
    gradients = torch.autograd.grad(loss, [*probes, *rest])
    of_output = dict(zip(map(id, probes), gradients, strict=False))
    of_weight = dict(zip(map(id, rest), gradients[len(probes) :], strict=True))
    for group in groups:
        inputs = [_channels_last(layer.last_input) for layer in group]
        outputs = [_channels_last(of_output[id(layer.probe)]) for layer in group]
        for layer, weight, bias in zip(group, *together(inputs, outputs), strict=True):
            of_weight[id(layer.weight)] = weight
            of_weight[id(layer.bias)] = bias
    return [of_weight[id(weight)] for weight in weights]


def _to_deferring(layer: nn.Module, output_shape: torch.Size) -> DeferringConv:
    layer.__class__ = DeferringConv
    assert isinstance(layer, DeferringConv)
    # One number, expanded, so that a probe takes no memory.
    probe = torch.zeros((), dtype=layer.weight.dtype, device=layer.weight.device)
    layer.probe = probe.expand(output_shape).requires_grad_()
    layer.rectifies = False
    return layer


def _fuse_relus(worker: nn.Module) -> None:
    for chain in worker.modules():
        if isinstance(chain, nn.Sequential):
            for number, (layer, follower) in enumerate(pairwise(chain)):
                if isinstance(layer, DeferringConv) and type(follower) is nn.ReLU:
                    layer.rectifies = True
                    chain[number + 1] = nn.Identity()


def _is_deferring(layer: nn.Module) -> bool:
    return isinstance(layer, DeferringConv)


def _channels_last(values: Tensor) -> Tensor:
    return values.contiguous(memory_format=torch.channels_last)


def _can_defer(layer: nn.Module, multiple: int, least: int) -> bool:
    if not is_plain_conv3x3(layer) or layer.bias is None or not layer.weight.requires_grad:
        return False
    channels = (layer.in_channels, layer.out_channels)
    return all(number % multiple == 0 and number >= least for number in channels)
