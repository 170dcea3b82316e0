"""A 3x3 convolution, or the gradient of its input, fused with the operations that follow it.

On a GPU there are two ways: a kernel of our own that does all of it, and cuDNN followed by
pointwise operations, which a compiler fuses into one pass over memory. Which is faster depends on
the sizes and the card, so each case is timed once.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, conv_transpose2d, prelu

log = logging.getLogger(__name__)

TOLERANCE = 0.02
"""How far, relative to the largest value, our kernel may be off cuDNN; bfloat16 has 8 bits."""


class TileConfig(NamedTuple):
    """How our kernel divides its work.

    Attributes:
        pixels: Pixels of one program: 128 make more programs, 256 read the weights less often.
        stages: Loads that are under way at once; fewer leave room for more programs.
    """

    pixels: int
    stages: int


TILE_CONFIGS = (TileConfig(128, 2), TileConfig(128, 3), TileConfig(256, 3))
"""The configurations that are timed."""

TRIED_SIDE = 512
"""Larger images are timed on a part of this side: it fills a card and takes little memory."""


class ConvTiming(NamedTuple):
    """What timing a case showed.

    Attributes:
        config: The fastest configuration of our kernel, or `None` where cuDNN is faster.
        best_ms: Milliseconds that `convolve` takes.
        compiled_ms: Milliseconds of what a compiler would make of it: cuDNN and one more pass.
    """

    config: TileConfig | None
    best_ms: float
    compiled_ms: float


_timings: dict[tuple[Any, ...], ConvTiming] = {}


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
    """Return a 3x3 convolution that keeps the size, followed by operations in this order.

    Args:
        image: ``(N, IN, H, W)``, best in channels-last order.
        weight: ``(OUT, IN, 3, 3)``; with `backwards` the weight of the convolution whose input
            gradient is computed, ``(IN, OUT, 3, 3)``.
        bias: ``(OUT,)``, added.
        add: ``(N, OUT, H, W)``, added. It cannot be combined with `mask`.
        mask: ``(N, OUT, H, W)``; where it is not above 0, the result is 0.
        slope: One number, by which negative results are multiplied.
        rectify: Whether negative results become 0.
        backwards: Whether to compute the gradient of the input from that of the output.
    """
    refuse_add_and_mask(add, mask)
    case: dict[str, Any] = {
        "image": image,
        "weight": weight,
        "bias": bias,
        "add": add,
        "mask": mask,
        "slope": slope,
        "rectify": rectify,
        "backwards": backwards,
    }
    timing = _timing_of(case)
    if timing and timing.config:
        return _convolve_with_kernel(timing.config, **case)
    return _convolve_with_torch(**case)


@convolve.register_fake
def _(
    image: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,  # noqa: ARG001
    add: Tensor | None = None,
    mask: Tensor | None = None,
    slope: Tensor | None = None,  # noqa: ARG001
    rectify: bool = False,  # noqa: ARG001
    backwards: bool = False,
) -> Tensor:
    refuse_add_and_mask(add, mask)
    channels = weight.shape[1 if backwards else 0]
    shape = (image.shape[0], channels, *image.shape[2:])
    return image.new_empty(shape).contiguous(memory_format=torch.channels_last)


def refuse_add_and_mask(add: Tensor | None, mask: Tensor | None) -> None:
    """Refuse `add` together with `mask`: our kernel reads one further tensor only."""
    if add is not None and mask is not None:
        raise ValueError("a fused convolution takes add or mask, not both")


def _convolve_with_torch(
    *,
    image: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    add: Tensor | None = None,
    mask: Tensor | None = None,
    slope: Tensor | None = None,
    rectify: bool = False,
    backwards: bool = False,
) -> Tensor:
    result: Tensor
    if rectify and image.is_cuda and not backwards and add is mask is slope is None:
        ones = (1, 1)  # stride, padding and dilation
        result = torch.cudnn_convolution_relu(image, weight, bias, ones, ones, ones, 1)
    else:
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


def _convolve_with_kernel(config: TileConfig, **case: Any) -> Tensor:
    from musigma.kernels import triton_conv

    return triton_conv.convolve(**case, **config._asdict())


def is_plain_conv3x3(layer: nn.Module) -> TypeGuard[nn.Conv2d]:
    """Whether a layer is a 3x3 convolution that keeps the size, as `convolve` computes it."""
    if type(layer) is not nn.Conv2d or layer.padding_mode != "zeros":
        return False
    geometry = (layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.groups)
    return geometry == ((3, 3), (1, 1), (1, 1), (1, 1), 1)


def is_faster_than_compiled(cases: Iterable[dict[str, Any]]) -> bool:
    """Whether `convolve` takes less time for all cases together than compiled PyTorch code.

    Args:
        cases: Arguments of `convolve`, each with tensors of the sizes that will come.
    """
    timings = [_timing_of(case) for case in cases]
    known = [timing for timing in timings if timing]
    if len(known) < len(timings):
        return False
    return sum(timing.best_ms for timing in known) < sum(timing.compiled_ms for timing in known)


def _timing_of(case: dict[str, Any]) -> ConvTiming | None:
    """Return the timing of a case, measured the first time; `None` where our kernel cannot run."""
    image, weight = case["image"], case["weight"]
    if not image.is_cuda or image.dtype not in (torch.bfloat16, torch.float16):
        return None
    last = torch.channels_last
    images = [part for part in case.values() if isinstance(part, Tensor) and part.ndim == 4]
    if image.shape[1] % 32 or not all(part.is_contiguous(memory_format=last) for part in images):
        return None
    used = frozenset(name for name, part in case.items() if part is not None and part is not False)
    timed_shape = image[..., :TRIED_SIDE, :TRIED_SIDE].shape
    key = (image.device, image.dtype, timed_shape, weight.shape, used)
    if key not in _timings:
        if torch.cuda.is_current_stream_capturing():
            return None
        _timings[key] = _time_case({name: _crop_for_timing(part) for name, part in case.items()})
    return _timings[key]


def _crop_for_timing(value: Any) -> Any:
    if not isinstance(value, Tensor) or value.ndim < 4:
        return value
    part = value[..., :TRIED_SIDE, :TRIED_SIDE]
    return part.contiguous(memory_format=torch.channels_last)


@torch.no_grad()
def _time_case(case: dict[str, Any]) -> ConvTiming:
    expected = _convolve_with_torch(**case).float()
    times: dict[TileConfig | None, float] = {None: _milliseconds(_convolve_with_torch, case)}
    compiled = _milliseconds(_like_compiled, case)
    for config in TILE_CONFIGS:
        kernel = partial(_convolve_with_kernel, config)
        try:
            off = (kernel(**case).float() - expected).abs().max() / expected.abs().max()
            if off < TOLERANCE:
                times[config] = _milliseconds(kernel, case)
            else:
                log.warning("our convolution is off by %.1e here; cuDNN is used", float(off))
        except Exception as error:  # noqa: BLE001  an older Triton, or none: cuDNN always works
            log.debug("our convolution cannot be used here: %s", error)
    best = min(times, key=lambda config: times[config])
    return ConvTiming(best, times[best], min(compiled, times[None]))


def _like_compiled(*, image: Tensor, weight: Tensor, **rest: Any) -> Tensor:
    """Do as much work as compiled code would: cuDNN and one pass. The result is not the same.

    A bias costs nothing: compiled code adds it in a pass that it makes anyway.
    """
    function: Callable[..., Tensor] = conv_transpose2d if rest.get("backwards") else conv2d
    result = function(image, weight, padding=1)
    for other in (rest.get("add"), rest.get("mask")):
        if other is not None:
            return result.add_(other)
    return result.relu_() if rest.get("rectify") or rest.get("slope") is not None else result


def _milliseconds(function: Callable[..., Tensor], case: dict[str, Any]) -> float:
    """Time ten runs in a CUDA graph, in which training and inference run them, too."""
    for _ in range(3):
        function(**case)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(10):
            function(**case)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    graph.replay()
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))
