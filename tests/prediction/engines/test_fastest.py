"""Engines by name, and the rule by which ``auto`` takes one."""

import math

import pytest
import torch

from helpers.networks import build
from musigma.networks import create
from musigma.prediction.engines import TorchEngine, choose_engine, fastest, make_engine
from musigma.prediction.engines.fastest import (
    MAX_RMS,
    EngineTiming,
    difference,
    measure_engine,
    pick_fastest,
    sample_tile,
)
from musigma.types import ConfigError, Prediction


class Named:
    """An engine that is never run."""

    device, batches = torch.device("cpu"), False

    def __init__(self, name):
        self.name = name


def trial(name, seconds, rms=0.0):
    return EngineTiming(Named(name), seconds, rms, largest=10 * rms)


@pytest.mark.parametrize(
    ("others", "chosen"),
    [
        ([], "torch"),
        ([trial("onnx", 0.7), trial("openvino", 0.6)], "openvino"),
        ([trial("torch-bf16", 0.3, 4e-4), trial("onnx", 0.7)], "torch-bf16"),
        ([trial("torch-bf16", 0.3, 6e-4), trial("onnx", 0.7)], "onnx"),  # fast and too coarse
        ([trial("torch-fp16", 0.3, math.nan), trial("onnx", 0.7)], "onnx"),  # overflowed
        ([trial("onnx", 0.95)], "torch"),  # not worth it
        ([trial("onnx", 1.5)], "torch"),
    ],
)
def test_the_fastest_that_is_exact_enough(monkeypatch, others, chosen):
    told = []
    answers = iter([trial("torch", 1.0), *others])
    monkeypatch.setattr(fastest, "measure_engine", lambda *_: next(answers))
    monkeypatch.setattr(fastest, "candidates", lambda *_, **__: [one.engine for one in others])
    engine = make_engine(build("edsr-baseline", 2), "auto", report=told.append)
    assert engine.name == chosen
    assert [line.partition(":")[0] for line in told[:-1]] == [one.engine.name for one in others]
    assert told[-1] == f"engine: {chosen}"


def test_exact_enough_keeps_the_psnr_within_a_hundredth_of_a_decibel():
    rmse = 10 ** (-38 / 20)  # of Set5 x2
    assert 10 * math.log10(1 + (MAX_RMS / rmse) ** 2) < 0.01


def test_plain_float32_is_not_off():
    network = build("edsr-baseline", 2, sigma=True)
    tile = sample_tile(network, 24, 32)
    engine = TorchEngine(network)
    found = measure_engine(engine, tile, engine(tile))
    assert found.seconds > 0
    assert (found.rms, found.largest) == (0, 0)
    assert pick_fastest([found]) is found


def test_distance_is_that_of_the_worse_of_mean_and_sigma():
    zeros = torch.zeros(1, 1, 2, 2)
    off = torch.tensor([[[[0.3, 0.0], [0.0, -0.4]]]])
    for found in (Prediction(off, zeros), Prediction(zeros, off)):
        rms, largest = difference(found, Prediction(zeros, zeros))
        assert rms == pytest.approx(0.25)  # sqrt((0.09 + 0.16) / 4)
        assert largest == pytest.approx(0.4)


def test_the_tile_is_a_picture_with_its_noise_map():
    tile = sample_tile(create("drunet-grey", scale=1, num_blocks=1, widths=(8, 8, 8, 8)), 40, 30)
    assert tile.shape == (1, 2, 40, 30)
    assert 0 <= tile.min() < 0.2
    assert 0.8 < tile[:, 0].max() <= 1
    assert torch.equal(tile[:, 1], torch.full((1, 40, 30), 25 / 255))


def test_a_network_that_cannot_be_exported_is_left_to_pytorch(monkeypatch):
    def refuse(network):
        raise ConfigError("the network cannot be exported to ONNX: no such operator")

    monkeypatch.setattr(fastest, "to_onnx", refuse)
    monkeypatch.setattr(fastest, "find_spec", lambda _: True)
    monkeypatch.setattr(fastest, "_half_on_cpu", list)
    told = []
    engine = choose_engine(create("bicubic", scale=2).eval(), report=told.append)
    assert engine.name == "torch"
    assert "onnx and openvino are left out: the network cannot be exported" in told[0]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("openvin", "there is no engine 'openvin'; did you mean 'openvino'?"),
        (
            "torch-tf32",
            "torch-tf32 is for a GPU and the network is on cpu; set `device`",
        ),
        ("torch-fp16-compiled", "the engine torch-fp16-compiled is for a GPU"),
    ],
)
def test_engines_that_there_are_not(name, line):
    with pytest.raises(ConfigError, match=line):
        make_engine(build("edsr-baseline", 2), name)


def test_float16_on_a_processor_without_it_is_refused(monkeypatch):
    monkeypatch.setattr(fastest, "_half_on_cpu", list)
    with pytest.raises(ConfigError, match=r"no float16 arithmetic, .* another `engine`"):
        make_engine(build("edsr-baseline", 2), "torch-fp16")
    monkeypatch.setattr(fastest, "_half_on_cpu", lambda: ["torch-fp16"])
    assert make_engine(build("edsr-baseline", 2), "torch-fp16").name == "torch-fp16"
