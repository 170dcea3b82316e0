"""A 3x3 convolution, or the way back through one, with what comes after it made part of it.

On a GPU there are two ways: a kernel of our own that does all of it, and cuDNN with passes over
memory behind it. Which is faster depends on sizes and card, so each case is tried once.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import conv2d, conv_transpose2d, prelu

log = logging.getLogger(__name__)

TOLERANCE = 0.02
"""How far, relative to the largest value, our kernel may be off cuDNN; bfloat16 has 8 bits."""

ROWS = (8, 16)
"""Sizes in which our kernel is tried."""

_chosen: dict[tuple[Any, ...], int] = {}
# For each case the size in which our kernel is faster than cuDNN, or nought.


@torch.library.custom_op("musigma::convolve", mutates_args=())
def convolve(
    image: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    add: Tensor | None = None,
    mask: Tensor | None = None,
    slope: Tensor | None = None,
    rectify: bool = False,
    backwards: bool = False,
) -> Tensor:
    """Return a 3x3 convolution that keeps the size, and what is done with it, in this order.

    Args:
        image: ``(N, IN, H, W)``, best in channels-last order.
        weight: ``(OUT, IN, 3, 3)``; for the way back that of the convolution that is gone back
            through, ``(IN, OUT, 3, 3)``.
        bias: ``(OUT,)``, added.
        add: ``(N, OUT, H, W)``, added.
        mask: ``(N, OUT, H, W)``; where it is not above 0, the result is 0.
        slope: One number, by which negative results are multiplied.
        rectify: Whether negative results become 0.
        backwards: Whether to compute the gradient of the input from that of the output.
    """
    given = (image, weight, bias, add, mask, slope, rectify, backwards)
    rows = _choose(*given)
    return _by_kernel(*given, rows=rows) if rows else _by_torch(*given)


@convolve.register_fake
def _(
    image: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,  # noqa: ARG001
    add: Tensor | None = None,  # noqa: ARG001
    mask: Tensor | None = None,  # noqa: ARG001
    slope: Tensor | None = None,  # noqa: ARG001
    rectify: bool = False,  # noqa: ARG001
    backwards: bool = False,
) -> Tensor:
    channels = weight.shape[1 if backwards else 0]
    shape = (image.shape[0], channels, *image.shape[2:])
    return image.new_empty(shape).contiguous(memory_format=torch.channels_last)


def _by_torch(
    image: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    add: Tensor | None,
    mask: Tensor | None,
    slope: Tensor | None,
    rectify: bool,
    backwards: bool,
) -> Tensor:
    if rectify and image.is_cuda and add is None and not backwards:
        one = (1, 1)
        return torch.cudnn_convolution_relu(image, weight, bias, one, one, one, 1)
    function: Callable[..., Tensor] = conv_transpose2d if backwards else conv2d
    result = function(image, weight, bias, padding=1)
    if add is not None:
        result = result + add
    if mask is not None:
        result = torch.where(mask > 0, result, 0)
    if slope is not None:
        result = prelu(result, slope)
    if rectify:
        result = result.relu()
    return result.contiguous(memory_format=torch.channels_last)


def _by_kernel(*given: Any, rows: int = ROWS[0]) -> Tensor:
    from musigma.functional import kernels

    return kernels.convolve(*given, rows=rows)


def _choose(image: Tensor, weight: Tensor, *given: Any) -> int:
    """Return in which size our kernel serves, or nought; what is not known yet is tried."""
    if not image.is_cuda or image.dtype not in (torch.bfloat16, torch.float16):
        return 0
    last = torch.channels_last
    in_order = all(part.is_contiguous(memory_format=last) for part in (image, weight))
    if image.shape[1] % 32 or not in_order:
        return 0
    kind = tuple(part if isinstance(part, bool) else part is not None for part in given)
    case = (image.device, image.dtype, image.shape, weight.shape, kind)
    if case not in _chosen:
        if torch.cuda.is_current_stream_capturing():
            return 0
        _chosen[case] = _try(image, weight, *given)
    return _chosen[case]


def _try(*given: Any) -> int:
    """Return the fastest size of our kernel that agrees with cuDNN, or nought if that is faster."""
    if torch.cuda.get_device_capability(given[0].device) < (9, 0):
        return 0  # it is written for the units of Hopper and later cards
    expected = _by_torch(*given).float()
    times = {0: _milliseconds(_by_torch, given)}
    for rows in ROWS:
        kernel = partial(_by_kernel, rows=rows)
        try:
            off = (kernel(*given).float() - expected).abs().max() / expected.abs().max()
            if off < TOLERANCE:
                times[rows] = _milliseconds(kernel, given)
            else:
                log.warning("our convolution is off by %.1e here; cuDNN is used", float(off))
        except Exception as error:  # noqa: BLE001  an older Triton, or none: cuDNN always works
            log.debug("our convolution cannot be used here: %s", error)
    return min(times, key=lambda rows: times[rows])


def _milliseconds(function: Callable[..., Tensor], given: tuple[Any, ...]) -> float:
    """Time ten runs as a graph, as training and inference run them: launching costs nothing."""
    for _ in range(3):
        function(*given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(10):
            function(*given)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    graph.replay()
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))
