import hashlib
import math
import os
import pickle
import resource

import pytest
import torch

from musigma.atomic import atomic_writer
from musigma.training.checkpoint import (
    KEPT,
    MAGIC,
    checkpoints,
    is_plain,
    load_newest,
    save_checkpoint,
)


def content(value: float) -> dict:
    return {
        "step": {"weights": {"a": torch.full((50,), float(value))}, "averages": [torch.ones(2)]},
        "spent": value,
        "recipe": {"betas": (0.9, 0.999), "settings": {"width": 8}, "seconds": None},
    }


def save_all(folder, *steps):
    for step in steps:
        assert save_checkpoint(folder, step, content(step)).exists()


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_newest_are_kept_and_come_back(tmp_path):
    assert load_newest(tmp_path) is None
    assert load_newest(tmp_path / "not there") is None
    save_all(tmp_path, 5, 10, 1000)
    assert names(tmp_path) == ["step-000000010.checkpoint", "step-000001000.checkpoint"]
    assert len(checkpoints(tmp_path)) == KEPT
    newest = load_newest(tmp_path)
    assert torch.equal(newest["step"]["weights"]["a"], torch.full((50,), 1000.0))
    assert newest["recipe"] == content(0)["recipe"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("part", ["weights", "averages"])
def test_a_poisoned_state_is_never_written(tmp_path, value, part):
    save_all(tmp_path, 5)
    poisoned = content(6)
    where = poisoned["step"][part]
    where["a" if part == "weights" else 0][1] = value
    assert save_checkpoint(tmp_path, 6, poisoned) is None
    assert names(tmp_path) == ["step-000000005.checkpoint"]


def damage(path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "cut":
        data = data[: len(data) // 2]
    elif how == "empty":
        data = data[:0]
    elif how == "header":
        data[3] ^= 1
    else:
        data[-100] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("how", ["cut", "empty", "header", "bit"])
def test_a_damaged_checkpoint_is_passed_over(tmp_path, how, caplog):
    save_all(tmp_path, 5, 10)
    damage(tmp_path / "step-000000010.checkpoint", how)
    assert load_newest(tmp_path)["spent"] == 5
    assert "step-000000010.checkpoint is damaged" in caplog.text
    damage(tmp_path / "step-000000005.checkpoint", how)
    assert load_newest(tmp_path) is None


def test_what_is_no_file_is_no_checkpoint(tmp_path):
    save_all(tmp_path, 5)
    (tmp_path / "step-000000010.checkpoint").mkdir()
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "step-000000015.checkpoint")
    assert load_newest(tmp_path)["spent"] == 5
    save_all(tmp_path, 20)
    assert load_newest(tmp_path)["spent"] == 20


def test_a_damaged_checkpoint_of_any_size_takes_little_memory(tmp_path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number, start in ((1, b""), (2, MAGIC)):
        with (tmp_path / f"step-00000000{number}.checkpoint").open("wb") as file:
            file.write(start)
            file.truncate(2**30)
    assert load_newest(tmp_path) is None
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18  # KiB


def nested(depth):
    value = [1]
    for _ in range(depth):
        value = [value, value]  # twice as many items each time, in a few bytes
    return value


def test_plain_values_are_told_from_others():
    assert is_plain(content(0)["recipe"])
    itself = {}
    itself["a"] = itself
    for value in (torch.zeros(2), {"a": [print]}, itself, nested(60), ["x"] * 10**6):
        assert not is_plain(value)


def test_a_damaged_checkpoint_does_not_push_out_good_ones(tmp_path):
    save_all(tmp_path, 50, 60)
    for path in checkpoints(tmp_path):
        damage(path, "cut")
    save_all(tmp_path, 5)
    assert load_newest(tmp_path)["spent"] == 5
    save_all(tmp_path, 10)
    assert names(tmp_path) == ["step-000000005.checkpoint", "step-000000010.checkpoint"]


def test_what_a_crash_left_half_written_goes(tmp_path):
    with atomic_writer(tmp_path / "step-000000005.checkpoint"):
        (part,) = tmp_path.iterdir()
        half_written = part.name
    (tmp_path / "step-000000005.checkpoint").rename(tmp_path / half_written)
    (tmp_path / "log.jsonl").write_text("{}\n")
    assert load_newest(tmp_path) is None
    save_all(tmp_path, 10)
    assert names(tmp_path) == ["log.jsonl", "step-000000010.checkpoint"]


@pytest.mark.parametrize("content", [b"no pickle", pickle.dumps([1, 2]), pickle.dumps(print)])
def test_foreign_content_with_a_right_checksum_is_damaged(tmp_path, content, caplog):
    data = MAGIC + hashlib.sha256(content).digest() + content
    (tmp_path / "step-000000005.checkpoint").write_bytes(data)
    assert load_newest(tmp_path) is None
    assert "step-000000005.checkpoint is damaged" in caplog.text
