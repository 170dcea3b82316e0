"""Training in processes of its own: killed at any moment, and several at once."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from helpers.runs import (
    assert_same,
    draw_from_one_stream,
    small_recipe,
    weights_in,
    write_pictures,
    write_recipe,
)
from musigma.training.checkpoint import load_newest
from musigma.training.run_log import read_log
from musigma.training.trainer import StoppedError, train

KILLS = int(os.environ.get("MUSIGMA_KILLS", "3"))
DIE_WRITING = "import os; os.fsync = lambda _: os.kill(os.getpid(), 9)"
SIGNAL_AT_8 = "import pytest, helpers.runs as r; r.send_signal_at(pytest.MonkeyPatch(), 8)"
ONE_STREAM = "import pytest, helpers.runs as r; r.draw_from_one_stream(pytest.MonkeyPatch())"
PAPER = "expected_l1 + 0.01 * sigma_l1"


def start(recipe: Path, folder: Path, *, first: str = "", **variables: str) -> subprocess.Popen:
    """Begin or go on with a run in a process of its own, after a line of Python."""
    words = ["train", recipe, "-o", folder, "--resume", "--device", "cpu"]
    folders = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    common = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(folders)}
    return subprocess.Popen(
        [sys.executable, "-c", f"{first}\nimport musigma.__main__", *map(str, words)],
        env={**os.environ, **common, **variables},
        stderr=subprocess.DEVNULL,
    )


def num_logged(folder: Path) -> int:
    return sum("loss" in line for line in read_log(folder))


@pytest.mark.slow
def test_a_run_survives_being_killed_at_any_moment(tmp_path):
    """Set MUSIGMA_KILLS for the long form."""
    values = {
        "data": [str(write_pictures(tmp_path / "images"))],
        "objective": "expected_l1 + 0.01 * sigma_l1",
        "save_every": 5,
        "schedule": "constant",  # so that an update does not depend on how many are planned
        "warmup": 0.0,
        "steps": 10**6,  # never reached, however fast the machine
    }
    recipe, folder = write_recipe(tmp_path / "own.toml", **values), tmp_path / "run"
    # Once for certain when a checkpoint is half written, then whenever.
    assert start(recipe, folder, first=DIE_WRITING).wait() == -signal.SIGKILL
    assert [path.suffix for path in folder.glob(".*")] == [".part"]
    moments = random.Random(0)
    for _ in range(KILLS):
        logged = num_logged(folder)
        process = start(recipe, folder)
        while num_logged(folder) == logged and process.poll() is None:
            time.sleep(0.02)
        time.sleep(moments.uniform(0, 0.2))
        process.kill()
        assert process.wait() == -signal.SIGKILL
    values["steps"] = max(line["step"] for line in read_log(folder) if "loss" in line) + 10
    train(small_recipe(**values), folder, resume=True, device="cpu")
    train(small_recipe(**values), tmp_path / "whole", device="cpu")
    assert_same(weights_in(folder), weights_in(tmp_path / "whole"))
    assert not list(folder.glob(".*"))


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["l1", PAPER])
def test_two_processes_are_one_with_the_whole_batch(tmp_path, monkeypatch, objective):
    """The other one gets a signal on the way: both stop at the same step, and go on together.

    The mask of the paper's objective looks at the whole batch. Its random draws are here those of
    one process; otherwise every process has its own.
    """
    draw_from_one_stream(monkeypatch)
    data = [str(write_pictures(tmp_path / "images"))]
    values = {"data": data, "objective": objective, "batch": 16, "precision": "fp32"}
    path, recipe = write_recipe(tmp_path / "own.toml", **values), small_recipe(**values)
    one, two = tmp_path / "one", tmp_path / "two"
    train(recipe, one, device="cpu")

    def start_other(first: str = "") -> subprocess.Popen:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
        for name, value in {**address, "RANK": "0", "GLOO_SOCKET_IFNAME": "lo"}.items():
            monkeypatch.setenv(name, value)
        return start(path, two, first=f"{ONE_STREAM}\n{first}", RANK="1")

    other = start_other(SIGNAL_AT_8)
    with pytest.raises(StoppedError, match="stopped by SIGTERM at step 8"):
        train(recipe, two, device="cpu")
    assert other.wait(300) == 128 + signal.SIGTERM
    assert int(load_newest(two)["step"]["number"]) == 8
    other = start_other()
    train(recipe, two, resume=True, device="cpu")
    assert other.wait(300) == 0

    expected = weights_in(one)
    for name, value in weights_in(two).items():
        torch.testing.assert_close(value, expected[name], rtol=0, atol=1e-5)
    assert read_log(two)[-1]["loss"] == pytest.approx(read_log(one)[-1]["loss"], rel=1e-4)
