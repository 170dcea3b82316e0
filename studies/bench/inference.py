"""The cost of a forward pass: of every network, and of one network with every engine."""

import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from musigma.networks import Network, create, mean_only
from musigma.prediction.engines.base import Engine, device_of
from musigma.prediction.engines.fastest import (
    MAX_RMS,
    EngineTiming,
    candidates,
    difference,
    pick_fastest,
    sample_tile,
)
from musigma.prediction.engines.pytorch import TorchEngine

Report = Callable[[str], None]


def bench_forward(
    names: list[str],
    *,
    scale: int,
    height: int,
    width: int,
    report: Report = lambda _: None,
) -> dict[str, dict[str, Any]]:
    """Return seconds and peak memory of a forward pass with random weights, by network.

    Each network runs in a new process, because the peak memory of a process never goes down. A
    network whose process fails or is killed has an ``error`` instead of numbers. On a busy machine
    the processor time says more than the time on the clock.
    """
    results = {}
    for name in names:
        words = [name, str(scale), str(height), str(width)]
        command = [sys.executable, "-m", __name__, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        results[name] = _outcome(done)
        report(f"{name}: {', '.join(f'{key} {value}' for key, value in results[name].items())}")
    return results


def _outcome(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return what a process measured, or why it did not."""
    if done.returncode == 0:
        measured: dict[str, Any] = json.loads(done.stdout)
        return measured
    if done.returncode < 0:  # killed, so it could not say why
        name = signal.Signals(-done.returncode).name
        hint = "; it probably needed too much memory" if name == "SIGKILL" else ""
        return {"error": f"the process was killed by {name}{hint}"}
    lines = done.stderr.strip().splitlines()
    return {"error": lines[-1] if lines else f"the process ended with code {done.returncode}"}


def measure(name: str, scale: int, height: int, width: int) -> dict[str, float]:
    """Run one forward pass in this process and measure it."""
    generator = torch.Generator().manual_seed(0)
    network = create(name, scale=scale).eval()
    degraded = torch.rand(1, network.in_channels, height, width, generator=generator)
    before = peak_memory()
    start, busy = time.perf_counter(), time.process_time()
    with torch.inference_mode():
        network(degraded)
    return {
        "seconds": round(time.perf_counter() - start, 3),
        "cpu_seconds": round(time.process_time() - busy, 3),
        "threads": torch.get_num_threads(),
        "peak_mib": round(peak_memory() / 2**20, 1),
        "before_mib": round(before / 2**20, 1),
    }


def bench_inference(
    network: Network,
    engines: dict[str, Engine],
    *,
    height: int,
    width: int,
    num_rounds: int,
    report: Report = lambda _: None,
) -> dict[str, Any]:
    """Time the engines of a network on one tile, with sigma and without, in turns.

    On a GPU the tile is already in its memory, and one wait follows ten runs; ``to_host_ms`` is one
    run from host memory to host memory. Differences are those from plain float32.

    Args:
        network: In evaluation mode, on its device.
        engines: The engines by name, as `all_engines` returns them.
        height: Height of the input.
        width: Width of the input.
        num_rounds: How often each engine is timed; times are medians.
        report: Called with a line of text for every engine.
    """
    tile = sample_tile(network, height, width)
    bare = all_engines(mean_only(network))
    expected = engines["torch"](tile)
    for engine in (*engines.values(), *bare.values()):
        for _ in range(3):
            time_engine(engine, tile)
    times: dict[str, list[tuple[float, float, float]]] = {label: [] for label in engines}
    for _ in range(num_rounds):
        for label, engine in engines.items():
            seconds = time_engine(engine, tile)
            on_gpu = engine.device.type == "cuda"
            host_seconds = to_host(engine, tile) if on_gpu else seconds
            times[label].append((seconds, time_engine(bare[label], tile), host_seconds))
    trials, timings = {}, {}
    for label, engine in engines.items():
        seconds, bare_seconds, host_seconds = map(
            statistics.median, zip(*times[label], strict=True)
        )
        trial = EngineTiming(engine, seconds, *difference(engine(tile), expected))
        trials[label] = trial
        timings[label] = {
            "median_ms": _ms(seconds),
            "fastest_ms": _ms(min(times[label])[0]),
            "slowest_ms": _ms(max(times[label])[0]),
            "mean_only_ms": _ms(bare_seconds),
            "to_host_ms": _ms(host_seconds),
            "sigma_over_mean_only": round(seconds / bare_seconds, 3),
            "times_faster": round(trials["torch"].seconds / seconds, 2),
            "rms_difference": trial.rms,
            "largest_difference": trial.largest,
        }
        report(f"{label}: {timings[label]['median_ms']} ms")
    auto = pick_fastest([trial for label, trial in trials.items() if label != EXTRA]).engine.name
    exact = [label for label, trial in trials.items() if trial.rms <= MAX_RMS]
    fastest = min(exact, key=lambda label: trials[label].seconds)
    return {
        "timings": timings,
        "auto": auto,
        "auto_times_faster": timings[auto]["times_faster"],
        "fastest": fastest,
        "fastest_times_faster": timings[fastest]["times_faster"],
        "fastest_sigma_over_mean_only": timings[fastest]["sigma_over_mean_only"],
    }


EXTRA = "torch-fp16, no graph"
"""Measured on a GPU in addition to the engines that ``auto`` compares."""


def all_engines(network: Network, *, report: Report = lambda _: None) -> dict[str, Engine]:
    """Return plain float32 and every other engine that this machine has, by name."""
    engines: list[Engine] = [TorchEngine(network), *candidates(network, report=report)]
    by_name = {engine.name: engine for engine in engines}
    if device_of(network).type == "cuda":
        by_name[EXTRA] = TorchEngine(network, precision="fp16")
    return by_name


def time_engine(engine: Engine, tile: Tensor) -> float:
    """Return the seconds of one run; on a GPU without the copies to and from the host."""
    if not isinstance(engine, TorchEngine) or engine.device.type != "cuda":
        return to_host(engine, tile)
    on_device = tile.to(engine.device)
    torch.cuda.synchronize(engine.device)
    start = time.perf_counter()
    for _ in range(10):
        engine.run(on_device)
    torch.cuda.synchronize(engine.device)
    return (time.perf_counter() - start) / 10


def to_host(engine: Engine, tile: Tensor) -> float:
    """Return the seconds of one run from host memory to host memory."""
    start = time.perf_counter()
    engine(tile)
    return time.perf_counter() - start


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)


def peak_memory() -> int:
    """Return the most resident memory this process has held, in bytes."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    name, *numbers = sys.argv[1:]
    sys.stdout.write(json.dumps(measure(name, *map(int, numbers))))
