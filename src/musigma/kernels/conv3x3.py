"""A 3x3 convolution, or the way back through one, with what comes after it made part of it.

On a GPU there are two ways: a kernel of our own that does all of it, and cuDNN with passes over
memory behind it, of which a compiler makes one. Which is faster depends on sizes and card, so each
case is tried once.
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


class Form(NamedTuple):
    """How our kernel divides its work.

    Attributes:
        pixels: To a program: 128 make more programs, 256 read the weights less often.
        stages: How many loads are under way at once; fewer leave room for more programs.
    """

    pixels: int
    stages: int


FORMS = (Form(128, 2), Form(128, 3), Form(256, 3))
"""Those in which it is tried."""

TRIED_SIDE = 512
"""Of larger images a part is tried: it fills a card, and leaves the memory to the image."""


class Trial(NamedTuple):
    """What came of a trial.

    Attributes:
        form: In which our kernel is fastest, or none where cuDNN is.
        here: Milliseconds that `convolve` takes.
        compiled: Milliseconds of what a compiler would make of the same: cuDNN and one pass.
    """

    form: Form | None
    here: float
    compiled: float


_trials: dict[tuple[Any, ...], Trial] = {}


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
    trial = _trial_of(case)
    return _by_kernel(trial.form, **case) if trial and trial.form else _by_torch(**case)


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
        one = (1, 1)
        result = torch.cudnn_convolution_relu(image, weight, bias, one, one, one, 1)
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


def _by_kernel(form: Form, **case: Any) -> Tensor:
    from musigma.kernels import triton_conv

    return triton_conv.convolve(**case, **form._asdict())


def serves(layer: nn.Module) -> TypeGuard[nn.Conv2d]:
    """Whether a layer is a convolution of the form that `convolve` computes."""
    if type(layer) is not nn.Conv2d or layer.padding_mode != "zeros":
        return False
    form = (layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.groups)
    return form == ((3, 3), (1, 1), (1, 1), (1, 1), 1)


def pays(cases: Iterable[dict[str, Any]]) -> bool:
    """Whether `convolve` is faster on the whole than what a compiler makes of the same.

    Args:
        cases: Arguments of `convolve`, each on tensors of the sizes that will come.
    """
    trials = [_trial_of(case) for case in cases]
    known = [trial for trial in trials if trial]
    if len(known) < len(trials):
        return False
    return sum(trial.here for trial in known) < sum(trial.compiled for trial in known)


def _trial_of(case: dict[str, Any]) -> Trial | None:
    """Return what is known of a case, trying what is not; none where our kernel cannot serve."""
    image, weight = case["image"], case["weight"]
    if not image.is_cuda or image.dtype not in (torch.bfloat16, torch.float16):
        return None
    last = torch.channels_last
    whole = [part for part in case.values() if isinstance(part, Tensor) and part.ndim == 4]
    if image.shape[1] % 32 or not all(part.is_contiguous(memory_format=last) for part in whole):
        return None
    kind = frozenset(name for name, part in case.items() if part is not None and part is not False)
    tried = image[..., :TRIED_SIDE, :TRIED_SIDE].shape
    key = (image.device, image.dtype, tried, weight.shape, kind)
    if key not in _trials:
        if torch.cuda.is_current_stream_capturing():
            return None
        _trials[key] = _try({name: _cut(part) for name, part in case.items()})
    return _trials[key]


def _cut(value: Any) -> Any:
    if not isinstance(value, Tensor) or value.ndim < 4:
        return value
    part = value[..., :TRIED_SIDE, :TRIED_SIDE]
    return part.contiguous(memory_format=torch.channels_last)


@torch.no_grad()
def _try(case: dict[str, Any]) -> Trial:
    expected = _by_torch(**case).float()
    times: dict[Form | None, float] = {None: _milliseconds(_by_torch, case)}
    compiled = _milliseconds(_as_compiled, case)
    for form in FORMS:
        kernel = partial(_by_kernel, form)
        try:
            off = (kernel(**case).float() - expected).abs().max() / expected.abs().max()
            if off < TOLERANCE:
                times[form] = _milliseconds(kernel, case)
            else:
                log.warning("our convolution is off by %.1e here; cuDNN is used", float(off))
        except Exception as error:  # noqa: BLE001  an older Triton, or none: cuDNN always works
            log.debug("our convolution cannot be used here: %s", error)
    best = min(times, key=lambda form: times[form])
    return Trial(best, times[best], min(compiled, times[None]))


def _as_compiled(*, image: Tensor, weight: Tensor, **rest: Any) -> Tensor:
    """Take the time of a compiler's fused passes, which compute something else.

    A bias costs nothing: it goes with the pass, or with one that comes anyway.
    """
    function: Callable[..., Tensor] = conv_transpose2d if rest.get("backwards") else conv2d
    result = function(image, weight, padding=1)
    for other in (rest.get("add"), rest.get("mask")):
        if other is not None:
            return result.add_(other)
    return result.relu_() if rest.get("rectify") or rest.get("slope") is not None else result


def _milliseconds(function: Callable[..., Tensor], case: dict[str, Any]) -> float:
    """Time ten runs as a graph, as training and inference run them: launching costs nothing."""
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
