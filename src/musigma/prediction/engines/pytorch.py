"""PyTorch as an engine: float32 as the network is, or half precision, which is faster."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor, nn

from musigma.kernels.cuda_graph import GraphsByShape
from musigma.kernels.half_precision import Float32Layer, half_copy
from musigma.networks import Network
from musigma.prediction.engines.base import device_of, in_evaluation_mode
from musigma.prediction.engines.gpu_layers import adapt_to_gpu
from musigma.types import ConfigError, Prediction

Precision = Literal["fp32", "tf32", "bf16", "fp16"]
HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}

_gpu_turn = threading.RLock()
"""Threads use a GPU in turns: settings of cuDNN and the memory of a CUDA graph are shared."""


class TorchEngine:
    """Runs a network on the device where it lies. Several threads may use one engine.

    ``fp32`` is the network as it is, without the TF32 that cuDNN would take by itself: the engine
    of every published number. The others are faster and round more coarsely.

    Args:
        network: On the device where it should run. In training mode it is run as it would run in
            evaluation mode.
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
        self.name = "-".join(
            ["torch", *[precision] * (precision != "fp32"), *["compiled"] * compiled]
        )
        network = in_evaluation_mode(network)
        self.device = device_of(network)
        if self.device.type == "meta":
            raise ConfigError(
                "the network has no weights in memory, as one that was loaded from an ONNX file; "
                "run it by the engine onnx or openvino"
            )
        self.batches = self.device.type == "cuda"
        self.network, self.tf32 = network, precision == "tf32"
        self.half = HALF.get(precision)
        worker = network if self.half is None else half_network(network, self.half)
        # Layers are adapted to a GPU when the first tile shows their sizes.
        self._not_adapted = worker if self.half and self.device.type == "cuda" else None
        self._worker: Any = torch.compile(worker) if compiled else worker
        self._graphs = GraphsByShape[Prediction]() if graph else None

    def __call__(self, tiles: Tensor) -> Prediction:
        """Restore tiles from host memory to host memory."""
        with _gpu_turn if self.device.type == "cuda" else nullcontext():
            prediction = _to_host(self.run(tiles.to(self.device)))
        if self.half is not torch.float16 or bool(torch.isfinite(prediction.mean).all()):
            return prediction
        # Half precision ends at 65504, and features of networks that work in 0..255 can go beyond.
        return TorchEngine(self.network)(tiles)

    @torch.inference_mode()
    def run(self, tiles: Tensor) -> Prediction:
        """Restore tiles on the device; what a graph returns holds until the next run."""
        if self.half is not None:
            tiles = tiles.contiguous(memory_format=torch.channels_last)
        if self._not_adapted is not None:
            with torch.autocast(self.device.type, self.half):
                adapt_to_gpu(self._not_adapted, tiles)
            self._not_adapted = None
        if self._graphs is None:
            return self._compute(tiles)
        return self._graphs.run(self._compute, tiles)

    def _compute(self, tiles: Tensor, *, benchmark: bool = False) -> Prediction:
        device_type = self.device.type
        with (
            _cudnn(device_type, tf32=self.tf32, benchmark=benchmark),
            torch.autocast(device_type, self.half, enabled=self.half is not None),
        ):
            return self._worker(tiles)


@contextmanager
def _cudnn(device_type: str, *, tf32: bool, benchmark: bool) -> Iterator[None]:
    if device_type != "cuda":
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
    on_host = Prediction(
        mean.float().to("cpu", non_blocking=True),
        None if sigma is None else sigma.float().to("cpu", non_blocking=True),
    )
    if mean.is_cuda:
        torch.cuda.current_stream(mean.device).synchronize()
    return on_host


def half_network(network: Network, half: torch.dtype) -> Network:
    """Return a copy in half precision for inference, to be run under autocast, channels last.

    bfloat16 has eight bits, no more than the image: with it the convolutions that read the image
    and those that write the mean or sigma compute in float32. They are one in a hundred
    multiply-adds, and without them half precision costs some 0.05 dB at 43 dB instead of 0.01.
    """

    def touches_image(module: nn.Module) -> bool:
        return half is torch.bfloat16 and (_reads(module, network) or _writes(module, network))

    worker = half_copy(network, half, keep=touches_image)
    worker.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for name, module in list(worker.named_modules()):
        if touches_image(module):
            parent, _, child = name.rpartition(".")
            result = torch.float32 if _writes(module, network) else half
            setattr(worker.get_submodule(parent), child, Float32Layer(module, result))
    return worker


def _reads(module: nn.Module, network: Network) -> bool:
    return isinstance(module, nn.Conv2d) and module.in_channels == network.in_channels


def _writes(module: nn.Module, network: Network) -> bool:
    steps = (1, network.scale, network.feature_scale)
    channels = [network.out_channels * step**2 for step in steps]  # before or after the shuffle
    return isinstance(module, nn.Conv2d) and module.out_channels in channels
