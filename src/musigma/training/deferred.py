"""Weight gradients put off until the backward pass is over, and then computed together.

The gradient of a layer's weights is needed by no other layer. Backward passes compute it on the way
all the same, one layer at a time. Here the way back computes gradients of activations alone; what
each layer read and the gradient of what it wrote are kept, and `musigma.training.kernels` turns
those of all equal layers into weight gradients at once.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

MIN_LAYERS = 4
"""Fewer equal layers are left to the usual way."""

WeightGradients = Callable[[list[Tensor], list[Tensor]], tuple[list[Tensor], list[Tensor]]]


class DeferringConv(nn.Conv2d):
    """A 3x3 convolution whose backward pass leaves the gradients of weight and bias out.

    Attributes:
        rectifies: Whether it is followed by a ReLU, which is then made part of it.
        probe: Stands for what the layer writes: the gradient with respect to it is that of the
            output. Its values are never read.
        seen: What the layer read last.
    """

    rectifies: bool
    probe: Tensor
    seen: Tensor

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Convolve as ever."""
        image = input.to(self.weight.dtype)
        self.seen = image.detach()
        return _Convolve.apply(image, self.weight, self.bias, self.probe, self.rectifies)  # type: ignore[no-untyped-call]


class _Convolve(torch.autograd.Function):
    @staticmethod
    def forward(ctx, image, weight, bias, probe, rectifies):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN205, ARG004
        if rectifies:
            output = convolve_and_rectify(image, weight, bias)
            ctx.save_for_backward(image, weight, output)
            return output
        ctx.save_for_backward(image, weight)
        return nn.functional.conv2d(image, weight, bias, padding=1)

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN205
        image, weight, *output = ctx.saved_tensors
        if output:
            gradient = torch.where(output[0] > 0, gradient, 0)
        one, nought = (1, 1), (0, 0)
        back, *_ = torch.ops.aten.convolution_backward(
            gradient, image, weight, None, one, one, one, False, nought, 1, (True, False, False)
        )
        return back, None, None, gradient, None


@torch.library.custom_op("musigma::convolve_and_rectify", mutates_args=())
def convolve_and_rectify(image: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Convolve, add the bias and rectify, in one kernel where there is one."""
    if image.is_cuda:
        one = (1, 1)
        return torch.cudnn_convolution_relu(image, weight, bias, one, one, one, 1)
    return nn.functional.conv2d(image, weight, bias, padding=1).relu()


@convolve_and_rectify.register_fake
def _(image: Tensor, weight: Tensor, bias: Tensor) -> Tensor:  # noqa: ARG001
    shape = (image.shape[0], weight.shape[0], *image.shape[2:])
    return image.new_empty(shape).contiguous(memory_format=torch.channels_last)


def defer(worker: nn.Module, example: Tensor, *, multiple: int = 64) -> list[list[DeferringConv]]:
    """Make the equal 3x3 convolutions of a network put their weight gradients off.

    Args:
        worker: The network; its layers are changed in place, its weights and names are not.
        example: An input of the size it will be trained with.
        multiple: Of which the numbers of channels must be multiples.

    Returns:
        The layers concerned, equal ones together.
    """
    calls: dict[nn.Module, list[tuple[torch.Size, torch.Size]]] = defaultdict(list)
    layers = [layer for layer in worker.modules() if _fits(layer, multiple)]

    def note(layer: nn.Module, read: tuple[Tensor, ...], wrote: Tensor) -> None:
        calls[layer].append((read[0].shape, wrote.shape))

    hooks = [layer.register_forward_hook(note) for layer in layers]
    with torch.no_grad():
        worker(example)
    for hook in hooks:
        hook.remove()
    kinds: dict[tuple[torch.Size, torch.Size], list[nn.Module]] = defaultdict(list)
    for layer, shapes in calls.items():
        if len(shapes) == 1:  # what one layer reads twice would have to be kept twice
            kinds[shapes[0]].append(layer)
    groups = [
        [_deferring(layer, wrote) for layer in group]
        for (_, wrote), group in kinds.items()
        if len(group) >= MIN_LAYERS
    ]
    _take_in_relus(worker)
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
        from musigma.training import kernels

        together = kernels.weight_gradients
    layers = [layer for group in groups for layer in group]
    deferred = {id(weight) for layer in layers for weight in (layer.weight, layer.bias)}
    rest = [weight for weight in weights if id(weight) not in deferred]
    probes = [layer.probe for layer in layers]
    found = torch.autograd.grad(loss, [*probes, *rest])
    of_output = dict(zip(map(id, probes), found, strict=False))
    of_weight = dict(zip(map(id, rest), found[len(probes) :], strict=True))
    for group in groups:
        read = [_channels_last(layer.seen) for layer in group]
        wrote = [_channels_last(of_output[id(layer.probe)]) for layer in group]
        for layer, weight, bias in zip(group, *together(read, wrote), strict=True):
            of_weight[id(layer.weight)] = weight
            of_weight[id(layer.bias)] = bias
    return [of_weight[id(weight)] for weight in weights]


def _deferring(layer: nn.Module, wrote: torch.Size) -> DeferringConv:
    layer.__class__ = DeferringConv
    assert isinstance(layer, DeferringConv)
    # One number stands for all of them: a probe takes no memory.
    probe = torch.zeros((), dtype=layer.weight.dtype, device=layer.weight.device)
    layer.probe = probe.expand(wrote).requires_grad_()
    layer.rectifies = False
    return layer


def _take_in_relus(worker: nn.Module) -> None:
    for chain in worker.modules():
        if isinstance(chain, nn.Sequential):
            for number, (layer, follower) in enumerate(pairwise(chain)):
                if isinstance(layer, DeferringConv) and type(follower) is nn.ReLU:
                    layer.rectifies = True
                    chain[number + 1] = nn.Identity()


def _channels_last(values: Tensor) -> Tensor:
    return values.contiguous(memory_format=torch.channels_last)


def _fits(layer: nn.Module, multiple: int) -> bool:
    if type(layer) is not nn.Conv2d or layer.bias is None:
        return False
    form = (layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.groups)
    plain = form == ((3, 3), (1, 1), (1, 1), (1, 1), 1) and layer.padding_mode == "zeros"
    return plain and layer.in_channels % multiple == 0 and layer.out_channels % multiple == 0
