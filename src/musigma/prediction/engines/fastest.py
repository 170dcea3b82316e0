"""Engines by name, and the fastest one of this machine that is exact enough."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from musigma.networks import Network
from musigma.prediction.engines.base import Engine, device_of
from musigma.prediction.engines.onnx_file import to_onnx
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
"""How far, root mean square, an engine that is exact enough may be off the float32 result.

Errors of a mean at 38 dB have an RMS of 0.0126. Independent ones of 5e-4 beside them cost
``10 log10(1 + (5e-4 / 0.0126)^2) = 0.007 dB``.
"""

MIN_GAIN = 1.1
"""How much faster than float32 an engine must be to be worth leaving it."""

Report = Callable[[str], None]


@dataclass(frozen=True)
class Trial:
    """How an engine did on one tile: its time, and how far it is off float32."""

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
        network: In evaluation mode.
        name: One of `ENGINES`, or ``auto`` for the fastest that is exact enough.
        report: Told what ``auto`` measured and which engine it took.
    """
    if name == "auto":
        return choose_engine(network, report=report)
    if name not in ENGINES:
        raise ConfigError(f"there is no engine {name!r}; {nearest(name, [*ENGINES, 'auto'])}")
    on_gpu = device_of(network).type == "cuda"
    if name in ("onnx", "openvino"):
        if on_gpu:
            raise ConfigError(f"{name} runs on the CPU; give --device cpu, or another --engine")
        content = to_onnx(network)
        return OnnxEngine(content) if name == "onnx" else OpenVinoEngine(content)
    if name in ("torch-tf32", "torch-fp16-compiled") and not on_gpu:
        raise ConfigError(f"{name} is for a GPU; give --device cuda, or another --engine")
    half = name not in ("torch", "torch-tf32")
    return TorchEngine(network, **_SETTINGS[name], graph=on_gpu and half)


def choose_engine(network: Network, *, report: Report = lambda _: None) -> Engine:
    """Measure the engines of this machine on one tile; return the fastest that is exact enough.

    To export the network for ONNX Runtime and OpenVINO, or to compile it for a GPU, takes ten
    seconds and more: this is for large pictures, and for many.
    """
    side = 512 if device_of(network).type == "cuda" else 96
    tile = sample_tile(network, side, side)
    plain = TorchEngine(network)
    expected = plain(tile)
    trials = [try_engine(plain, tile, expected)]
    for engine in candidates(network, report=report):
        trials.append(try_engine(engine, tile, expected))
        ratio, off = trials[0].seconds / trials[-1].seconds, trials[-1].rms
        report(f"{engine.name}: {ratio:.2f} times as fast as torch, off by {off:.1e} (RMS)")
    engine = pick(trials).engine
    report(f"engine: {engine.name}")
    return engine


def pick(trials: list[Trial]) -> Trial:
    """Return the fastest trial that is exact enough, or the first one where little is gained."""
    first = trials[0]
    fastest = min((trial for trial in trials if trial.rms <= MAX_RMS), key=lambda t: t.seconds)
    return fastest if fastest.seconds * MIN_GAIN <= first.seconds else first


def candidates(network: Network, *, report: Report = lambda _: None) -> Iterator[Engine]:
    """Yield the engines that this machine has, besides float32, for a network."""
    if device_of(network).type == "cuda":
        compiled = ("torch-fp16-compiled",) if find_spec("triton") else ()
        for name in ("torch-tf32", "torch-bf16", "torch-fp16", *compiled):
            yield make_engine(network, name)
        return
    for name in _half_on_cpu():
        yield make_engine(network, name)
    present = [engine for package, engine in RUNTIMES.items() if find_spec(package)]
    if not present:
        return
    try:
        content = to_onnx(network)
    except ConfigError as error:
        report(f"onnx and openvino are left out: {error}")
        return
    for engine in present:
        yield engine(content)


def try_engine(engine: Engine, tile: Tensor, expected: Prediction) -> Trial:
    """Run an engine on a tile: the best time of a few, and its distance from what is expected."""
    on_gpu = engine.device.type == "cuda"
    for _ in range(2 if on_gpu else 1):  # the second captures a graph
        found = engine(tile)
    times = []
    for _ in range(10 if on_gpu else 3):
        start = time.perf_counter()
        engine(tile)
        times.append(time.perf_counter() - start)
    return Trial(engine, min(times), *distance(found, expected))


def distance(found: Prediction, expected: Prediction) -> tuple[float, float]:
    """Return root mean square and largest difference, the larger of mean and sigma."""
    differences = [
        (ours - theirs).double()
        for ours, theirs in zip(found, expected, strict=True)
        if ours is not None and theirs is not None
    ]
    rms = max(float(difference.square().mean().sqrt()) for difference in differences)
    return rms, max(float(difference.abs().max()) for difference in differences)


def sample_tile(network: Network, height: int, width: int) -> Tensor:
    """Return a tile with waves of many lengths and edges, as pictures have them.

    A noise map, where the network takes one, says 25.
    """
    down, right = torch.arange(height)[:, None] / 2, torch.arange(width)[None, :] / 2
    edges = torch.sign(torch.sin(down / 17))
    colours = [
        0.5 + 0.4 * edges * torch.sin(right / (3 + number) + down**2 / (40 + number))
        for number in range(network.out_channels)
    ]
    maps = [torch.full((height, width), 25 / 255)] * (network.in_channels - network.out_channels)
    return torch.stack([*colours, *maps])[None]


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
