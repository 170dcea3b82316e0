"""Engines by name, and the fastest engine of this machine that is accurate enough."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from musigma.networks import Network
from musigma.prediction.engines.base import Engine, device_of
from musigma.prediction.engines.onnx_file import require, to_onnx
from musigma.prediction.engines.onnx_runtime import OnnxEngine
from musigma.prediction.engines.openvino_runtime import OpenVinoEngine
from musigma.prediction.engines.pytorch import TorchEngine
from musigma.types import ConfigError, Prediction, nearest

ENGINES = (
    "torch",
    "torch-tf32",
    "torch-bf16",
    "torch-fp16",
    "torch-fp16-compiled",
    "onnx",
    "openvino",
)
"""What `make_engine` knows, besides ``auto``; the last two run on the CPU."""

MAX_RMS = 5e-4
"""Largest root mean square difference from float32 of an engine that is accurate enough.

Errors of a mean at 38 dB have an RMS of 0.0126. Independent ones of 5e-4 beside them cost
``10 log10(1 + (5e-4 / 0.0126)^2) = 0.007 dB``.
"""

MIN_GAIN = 1.1
"""How many times as fast as float32 another engine must be to be preferred."""

Report = Callable[[str], None]


@dataclass(frozen=True)
class EngineTiming:
    """How an engine did on one tile.

    Attributes:
        engine: The engine.
        seconds: Time for the tile.
        rms: Root mean square difference from float32.
        largest: Largest difference from float32.
    """

    engine: Engine
    seconds: float
    rms: float
    largest: float


RUNTIMES: dict[str, Callable[[bytes], Engine]] = {
    "onnxruntime": OnnxEngine,
    "openvino": OpenVinoEngine,
}
"""Engines that read ONNX, by the package they need."""

_SETTINGS: dict[str, dict[str, Any]] = {
    "torch": {},
    "torch-tf32": {"precision": "tf32"},
    "torch-bf16": {"precision": "bf16"},
    "torch-fp16": {"precision": "fp16"},
    "torch-fp16-compiled": {"precision": "fp16", "compiled": True},
}


def make_engine(network: Network, name: str, *, report: Report = lambda _: None) -> Engine:
    """Return the engine of a name for a network, on the device where the network lies.

    Args:
        network: On the device where it should run.
        name: One of `ENGINES`, or ``auto`` for the fastest that is accurate enough.
        report: Called with a line for each engine that ``auto`` measured, and for the one it took.

    Example:
        >>> from musigma.networks import create
        >>> make_engine(create("bicubic", scale=2), "torch").name
        'torch'
    """
    if network.info.is_black_box and name in ("auto", *ENGINES):
        return _engine_of_black_box(network, name)
    if name == "auto":
        return choose_engine(network, report=report)
    if name not in ENGINES:
        raise ConfigError(f"there is no engine {name!r}; {nearest(name, [*ENGINES, 'auto'])}")
    device = device_of(network)
    if name in ("onnx", "openvino"):
        if device.type != "cpu":
            raise ConfigError(
                f"the engine {name} runs on the CPU and the network is on {device}; set `device` "
                "to cpu, or choose another `engine`"
            )
        return _make_runtime(network, name)
    on_gpu = device.type == "cuda"
    if name in ("torch-tf32", "torch-fp16-compiled") and not on_gpu:
        raise ConfigError(
            f"the engine {name} is for a GPU and the network is on {device}; set `device` to cuda, "
            "or choose another `engine`"
        )
    if name == "torch-fp16" and device.type == "cpu" and name not in _half_on_cpu():
        raise ConfigError(
            "this processor has no float16 arithmetic, so that torch-fp16 would be slower than "
            "torch; choose another `engine`, such as torch-bf16"
        )
    half = name not in ("torch", "torch-tf32")
    return TorchEngine(network, **_SETTINGS[name], graph=on_gpu and half)


def make_onnx_engine(content: bytes, name: str) -> Engine:
    """Return the engine of a name for a model of which only an ONNX file exists.

    Args:
        content: Of the ONNX file.
        name: ``onnx``, ``openvino``, or ``auto`` for ``onnx``.
    """
    if name in ("onnx", "auto"):
        return OnnxEngine(content)
    if name == "openvino":
        return OpenVinoEngine(content)
    raise ConfigError(
        f"a model from an ONNX file runs by the engines onnx and openvino, not by {name}"
    )


def _engine_of_black_box(network: Network, name: str) -> Engine:
    if name not in ("auto", "torch"):
        raise ConfigError(
            f"a wrapped network runs as it is, by the engine torch and not by {name}; leave "
            "`engine` out"
        )
    return TorchEngine(network)


def _make_runtime(network: Network, name: str) -> Engine:
    if name == "onnx":
        require("onnx", "onnxscript", "onnxruntime", extra="export")
        return OnnxEngine(to_onnx(network))
    require("onnx", "onnxscript", "openvino", extra="openvino")
    return OpenVinoEngine(to_onnx(network))


def choose_engine(network: Network, *, report: Report = lambda _: None) -> Engine:
    """Time the engines of this machine on one tile; return the fastest accurate enough.

    To export the network for ONNX Runtime and OpenVINO, or to compile it for a GPU, takes ten
    seconds and more: this is for large pictures, and for many.
    """
    side = 512 if device_of(network).type == "cuda" else 96
    tile = sample_tile(network, side, side)
    plain = TorchEngine(network)
    expected = plain(tile)
    timings = [measure_engine(plain, tile, expected)]
    for engine in candidates(network, report=report):
        timings.append(measure_engine(engine, tile, expected))
        ratio, rms = timings[0].seconds / timings[-1].seconds, timings[-1].rms
        report(f"{engine.name}: {ratio:.2f} times as fast as torch, differs by {rms:.1e} (RMS)")
    engine = pick_fastest(timings).engine
    report(f"engine: {engine.name}")
    return engine


def pick_fastest(timings: list[EngineTiming]) -> EngineTiming:
    """Return the fastest that is accurate enough, or the first where that gains little."""
    first = timings[0]
    accurate = [timing for timing in timings if timing.rms <= MAX_RMS]
    fastest = min(accurate, key=lambda timing: timing.seconds)
    return fastest if fastest.seconds * MIN_GAIN <= first.seconds else first


def candidates(network: Network, *, report: Report = lambda _: None) -> Iterator[Engine]:
    """Yield the engines that this machine has, besides float32, for a network."""
    if device_of(network).type == "cuda":
        compiled = ["torch-fp16-compiled"] if find_spec("triton") else []
        for name in ("torch-tf32", "torch-bf16", "torch-fp16", *compiled):
            yield make_engine(network, name)
        return
    for name in _half_on_cpu():
        yield make_engine(network, name)
    installed = [engine for package, engine in RUNTIMES.items() if find_spec(package)]
    if not installed:
        return
    try:
        content = to_onnx(network)
    except ConfigError as error:
        report(f"onnx and openvino are left out: {error}")
        return
    for engine in installed:
        yield engine(content)


def measure_engine(engine: Engine, tile: Tensor, expected: Prediction) -> EngineTiming:
    """Run an engine on a tile: the shortest time of a few, and its difference from `expected`."""
    on_gpu = engine.device.type == "cuda"
    for _ in range(2 if on_gpu else 1):  # the second captures a graph
        prediction = engine(tile)
    times = []
    for _ in range(10 if on_gpu else 3):
        start = time.perf_counter()
        engine(tile)
        times.append(time.perf_counter() - start)
    return EngineTiming(engine, min(times), *difference(prediction, expected))


def difference(prediction: Prediction, expected: Prediction) -> tuple[float, float]:
    """Return root mean square and largest difference, the larger of mean and sigma."""
    differences = [
        (ours - theirs).double()
        for ours, theirs in zip(prediction, expected, strict=True)
        if ours is not None and theirs is not None
    ]
    rms = max(float(values.square().mean().sqrt()) for values in differences)
    return rms, max(float(values.abs().max()) for values in differences)


def sample_tile(network: Network, height: int, width: int) -> Tensor:
    """Return a tile with waves of many lengths and edges, as pictures have them.

    The noise level, for a network that takes one, is 25.
    """
    down, right = torch.arange(height)[:, None] / 2, torch.arange(width)[None, :] / 2
    edges = torch.sign(torch.sin(down / 17))
    colors = [
        0.5 + 0.4 * edges * torch.sin(right / (3 + number) + down**2 / (40 + number))
        for number in range(network.out_channels)
    ]
    maps = [torch.full((height, width), 25 / 255)] * network.takes_noise_level
    return torch.stack([*colors, *maps])[None]


def _half_on_cpu() -> list[str]:
    """Return the half precisions that the processor computes in; others are emulated, slowly."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return []
    support = torch.ops.mkldnn
    has = {
        "torch-bf16": support._is_mkldnn_bf16_supported(),
        "torch-fp16": support._is_mkldnn_fp16_supported(),
    }
    return [name for name in has if has[name]]
