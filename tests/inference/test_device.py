"""Threads are those that the machine grants, not those that it has."""

import os

import pytest
import torch

from musigma.inference.device import limit_threads, num_processors, pick_device
from musigma.types import ConfigError


@pytest.mark.parametrize(
    ("content", "expected"), [("100000 100000", 1), ("50000 100000", 1), ("max 100000", None)]
)
def test_a_quota_counts(tmp_path, content, expected):
    file = tmp_path / "cpu.max"
    file.write_text(content)
    assert num_processors(file) == (expected or num_processors(tmp_path / "none"))


def test_without_a_quota_the_processors_of_the_process_count(tmp_path):
    assert 1 <= num_processors(tmp_path / "none") <= (os.cpu_count() or 1)


def test_threads_are_lowered_but_never_raised():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(num_processors() + 3)
        limit_threads()
        assert torch.get_num_threads() == num_processors()
        torch.set_num_threads(1)
        pick_device("cpu")
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_a_device_that_is_not_there():
    with pytest.raises(ConfigError, match="cannot be used .*; give auto, cpu, cuda or cuda:N"):
        pick_device("nonsense")
