"""PyTorch itself: float32 to the bit, or half precision, which current hardware is made for."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from musigma.networks import Network
from musigma.prediction.engines.base import device_of
from musigma.prediction.engines.gpu_layers import suit_gpu
from musigma.types import Prediction

Precision = Literal["fp32", "tf32", "bf16", "fp16"]
HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}

WARM_UP = 3
"""Runs before a capture: cuDNN tries its algorithms, and Triton its kernels."""

MAX_GRAPHS = 16
"""Tile shapes that are captured: one image has nine at most."""


class TorchEngine:
    """Runs a network where it lies.

    ``fp32`` is the network as it is, without the TF32 that cuDNN would take by itself: the engine
    of every published number. The others are faster and rounded more coarsely.

    Args:
        network: In evaluation mode, on the device where it should run.
        precision: Of the convolutions. The residual stream is half-precision too, sigma and the
            mean are not.
        graph: Whether to capture tile shapes that come again in CUDA graphs.
        compiled: Whether to fuse the layers with `torch.compile`, which takes half a minute.
    """

    def __init__(
        self,
        network: Network,
        *,
        precision: Precision = "fp32",
        graph: bool = False,
        compiled: bool = False,
    ) -> None:
        kind = "compiled" if compiled else precision
        self.name = "torch" if kind == "fp32" else f"torch-{kind}"
        self.device = device_of(network)
        self.batches = self.device.type == "cuda"
        self.network, self.tf32 = network, precision == "tf32"
        self.half = HALF.get(precision)
        worker = network if self.half is None else half_copy(network, self.half)
        self._unsuited = worker if self.half and self.device.type == "cuda" else None
        self._worker: Any = torch.compile(worker) if compiled else worker
        self._graphs = _Graphs() if graph else None

    def __call__(self, tiles: Tensor) -> Prediction:
        """Restore tiles from host memory to host memory."""
        found = _to_host(self.run(tiles.to(self.device)))
        if self.half is not torch.float16 or bool(torch.isfinite(found.mean).all()):
            return found
        # Half precision ends at 65504, and features of networks that work in 0..255 can go beyond.
        return TorchEngine(self.network)(tiles)

    @torch.inference_mode()
    def run(self, tiles: Tensor) -> Prediction:
        """Restore tiles on the device; what a graph returns holds until the next run."""
        if self.half is not None:
            tiles = tiles.contiguous(memory_format=torch.channels_last)
        if self._unsuited is not None:
            with torch.autocast(self.device.type, self.half):
                suit_gpu(self._unsuited, tiles)
            self._unsuited = None
        if self._graphs is None:
            return self._compute(tiles)
        return self._graphs.run(self._compute, tiles)

    def _compute(self, tiles: Tensor, *, benchmark: bool = False) -> Prediction:
        kind = self.device.type
        with (
            _cudnn(kind, tf32=self.tf32, benchmark=benchmark),
            torch.autocast(kind, self.half, enabled=self.half is not None),
        ):
            return self._worker(tiles)


class _Captured(NamedTuple):
    graph: torch.cuda.CUDAGraph
    tiles: Tensor
    result: Prediction


class _Graphs:
    """Computations captured by the shape of their input, from the second time it comes on."""

    def __init__(self) -> None:
        self.captured: dict[torch.Size, _Captured] = {}
        self.seen: set[torch.Size] = set()

    def run(self, compute: Any, tiles: Tensor) -> Prediction:
        shape = tiles.shape
        if shape not in self.captured:
            if shape not in self.seen or len(self.captured) == MAX_GRAPHS:
                self.seen.add(shape)
                return compute(tiles)
            self.captured[shape] = self._capture(compute, tiles)
        graph, place, result = self.captured[shape]
        place.copy_(tiles)
        graph.replay()
        return result

    def _capture(self, compute: Any, tiles: Tensor) -> _Captured:
        with torch.cuda.device(tiles.device):
            place = tiles.clone()
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARM_UP):
                    compute(place, benchmark=True)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            # All graphs share one memory: no result is looked at after the next run.
            pool = next((one.graph.pool() for one in self.captured.values()), None)
            with torch.cuda.graph(graph, pool=pool):
                result = compute(place, benchmark=True)
            return _Captured(graph, place, result)


@contextmanager
def _cudnn(kind: str, *, tf32: bool, benchmark: bool) -> Iterator[None]:
    if kind != "cuda":
        yield
        return
    cudnn = torch.backends.cudnn
    before = cudnn.allow_tf32, cudnn.benchmark
    cudnn.allow_tf32, cudnn.benchmark = tf32, benchmark
    try:
        yield
    finally:
        cudnn.allow_tf32, cudnn.benchmark = before


def _to_host(prediction: Prediction) -> Prediction:
    # Without blocking, so that PyTorch takes pinned memory, to which a GPU copies ten times faster.
    mean, sigma = prediction
    found = Prediction(
        mean.float().to("cpu", non_blocking=True),
        None if sigma is None else sigma.float().to("cpu", non_blocking=True),
    )
    if mean.is_cuda:
        torch.cuda.current_stream(mean.device).synchronize()
    return found


def half_copy(network: Network, half: torch.dtype) -> Network:
    """Return a copy with weights in half precision, to be run under autocast, channels last.

    Batch norm, which autocast does not look after, stays as it is. bfloat16 has eight bits, no more
    than the image: with it the convolutions that read the image and those that write the mean or
    sigma compute in float32. They are one in a hundred multiply-adds, and without them half
    precision costs some 0.05 dB at 43 dB instead of 0.01.
    """
    worker = copy.deepcopy(network)
    worker.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for name, module in list(worker.named_modules()):
        writes, reads = _writes(module, worker), _reads(module, worker)
        if half is torch.bfloat16 and (writes or reads):
            parent, _, child = name.rpartition(".")
            setattr(worker.get_submodule(parent), child, _Float32(module, None if writes else half))
        elif not isinstance(module, nn.modules.batchnorm._BatchNorm):
            for parameter in module.parameters(recurse=False):
                parameter.data = parameter.data.to(half)
    return worker


class _Float32(nn.Module):
    """A layer that computes in float32 inside autocast."""

    def __init__(self, layer: nn.Module, result: torch.dtype | None) -> None:
        super().__init__()
        self.layer, self.result = layer, result

    def forward(self, values: Tensor) -> Tensor:
        with torch.autocast(values.device.type, enabled=False):
            return self.layer(values.float()).to(self.result or torch.float32)


def _reads(module: nn.Module, network: Network) -> bool:
    return isinstance(module, nn.Conv2d) and module.in_channels == network.in_channels


def _writes(module: nn.Module, network: Network) -> bool:
    steps = (1, network.scale, network.feature_scale)
    channels = [network.out_channels * step**2 for step in steps]  # before or after the shuffle
    return isinstance(module, nn.Conv2d) and module.out_channels in channels
