"""Timings of every engine, with sigma and without, and the ratios made from them."""

import sys

import pytest
import torch

from helpers.networks import build
from musigma.prediction.engines import TorchEngine
from musigma.types import Prediction
from studies.bench import inference as bench
from studies.bench.inference import all_engines, bench_forward, bench_inference


class Scripted(TorchEngine):
    """Takes a time that is made up, and is off by a constant."""

    def __init__(self, network, name, milliseconds, off):
        super().__init__(network)
        self.name, self.milliseconds, self.off = name, milliseconds, off

    def __call__(self, tiles):
        mean, sigma = super().__call__(tiles)
        return Prediction(mean + self.off, sigma)


def test_ratios_are_those_of_the_medians(monkeypatch):
    """Made-up times: sigma costs half as much again; one engine is fastest and too coarse."""
    times = {"torch": (8.0, 0.0), "onnx": (5.0, 1e-6), "torch-bf16": (2.0, 1e-3)}

    def engines(network, report=None):
        share = 1.0 if hasattr(network, "branch") else 2 / 3
        return {n: Scripted(network, n, share * ms, off) for n, (ms, off) in times.items()}

    monkeypatch.setattr(bench, "all_engines", engines)
    network = build("edsr-baseline", 2, sigma=True)
    monkeypatch.setattr(bench, "time_engine", lambda engine, tile: engine.milliseconds / 1e3)
    told = []
    found = bench_inference(
        network,
        engines(network),
        height=9,
        width=8,
        num_rounds=3,
        report=told.append,
    )
    assert list(found["timings"]) == list(times)
    assert [line.partition(":")[0] for line in told] == list(times)
    assert found["timings"]["torch"]["median_ms"] == 8
    assert found["timings"]["torch"]["largest_difference"] == 0
    assert found["timings"]["torch-bf16"]["times_faster"] == 4
    assert found["timings"]["torch-bf16"]["rms_difference"] == pytest.approx(1e-3, rel=1e-2)
    assert (found["auto"], found["auto_times_faster"]) == ("onnx", 1.6)
    assert (found["fastest"], found["fastest_sigma_over_mean_only"]) == ("onnx", 1.5)


def test_every_engine_of_the_machine_is_there(monkeypatch):
    network = build("edsr-baseline", 2, sigma=True)
    others = [Scripted(network, name, 1.0, 0.0) for name in ("torch-bf16", "openvino")]
    monkeypatch.setattr(bench, "candidates", lambda *_, **__: others)
    assert list(all_engines(network)) == ["torch", "torch-bf16", "openvino"]
    assert 0 < bench.time_engine(TorchEngine(network), torch.zeros(1, 3, 9, 8)) < 10


def test_forward_passes_run_in_processes_of_their_own():
    found = bench_forward(["bicubic", "nosuch"], scale=2, height=9, width=8)
    assert found["bicubic"]["peak_mib"] >= found["bicubic"]["before_mib"] > 0
    assert "there is no network called 'nosuch'" in found["nosuch"]["error"]


def test_a_killed_process_does_not_lose_the_other_results(monkeypatch):
    """A child that is killed for memory leaves nothing on stderr."""
    run = bench.subprocess.run

    def kill_fsrcnn(command, **options):
        if "fsrcnn" in command:
            command = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
        if "espcn" in command:
            command = [sys.executable, "-c", "raise SystemExit(3)"]
        return run(command, **options)

    monkeypatch.setattr(bench.subprocess, "run", kill_fsrcnn)
    found = bench_forward(["bicubic", "fsrcnn", "espcn"], scale=2, height=9, width=8)
    assert found["bicubic"]["peak_mib"] > 0
    assert "killed by SIGKILL" in found["fsrcnn"]["error"]
    assert found["espcn"]["error"] == "the process ended with code 3"
