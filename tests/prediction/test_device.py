"""Devices by name; what cannot be used is said in one line, and nothing else is changed."""

import pytest
import torch

from musigma.prediction import device as module
from musigma.prediction.device import limit_threads, select_device, select_device_and_threads
from musigma.types import ConfigError


def test_names_and_devices():
    assert select_device("cpu") == select_device(torch.device("cpu")) == torch.device("cpu")
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert select_device("auto").type == expected


@pytest.mark.parametrize("name", ["0", "gpu", "cuda:99", "xpu", "hpu"])
def test_a_device_that_cannot_be_used_is_one_short_line(name):
    with pytest.raises(ConfigError, match=f"the device '{name}' cannot be used") as caught:
        select_device(name)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="is about machines without it")
def test_mps_on_a_machine_without_it():
    with pytest.raises(ConfigError, match="the device 'mps' cannot be used") as caught:
        select_device("mps")
    assert len(str(caught.value)) < 250


def test_only_the_function_that_says_so_changes_the_threads(monkeypatch):
    counts = []
    monkeypatch.setattr(torch, "set_num_threads", counts.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(module.torch, "empty", lambda *_, **__: None)
    assert select_device("auto").type == "cuda"
    assert counts == []
    limit_threads(torch.device("cpu"))
    assert counts == []
    assert select_device_and_threads("auto").type == "cuda"
    assert counts == [module.THREADS_BESIDE_GPU]
