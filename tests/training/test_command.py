"""``musigma train`` as it is typed: exit codes and what is printed."""

import errno
import json
import os
import subprocess
import sys

import pytest

from helpers.runs import (
    assert_same,
    send_signal_at,
    small_recipe,
    weights_in,
    write_pictures,
    write_recipe,
)
from musigma.cli.main import main
from musigma.evaluation.record import load_record
from musigma.model import load
from musigma.networks import mean_only, num_params
from musigma.training.checkpoint import checkpoints
from musigma.training.run_log import read_log
from musigma.training.step import Step
from musigma.training.trainer import train


def run_command(monkeypatch, *words) -> int:
    monkeypatch.setattr(sys, "argv", ["musigma", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def test_train_is_stopped_by_a_signal_and_resumed(tmp_path, monkeypatch, capsys):
    images = write_pictures(tmp_path / "images")
    path = write_recipe(tmp_path / "own.toml", data=[str(images)])
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        send_signal_at(patch, 7)
        assert run_command(patch, "train", path, "-o", folder) == 128 + 15
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "stopped by SIGTERM at step 7; continue it with --resume" in printed.err
    words = ("train", path, "steps=12", "-o", folder, "--resume", "--json")
    assert run_command(monkeypatch, *words) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["weights"] == str(folder / "weights.safetensors")
    assert result["step"] == 12
    assert 0 < result["loss"] < 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bacth=3"], "a recipe has no key 'bacth'; did you mean 'batch'"),
        (["batch=many"], "batch must be a whole number, got 'many'"),
        (["network=edsr-basline"], "there is no network called 'edsr-basline'"),
        (["objective=laplace_nll"], "objective 'laplace_nll' needs sigma = true"),
        (["data=nowhere"], "'nowhere'"),
        (["patch=40"], "no training image has room for a patch of 80x80 pixels"),
        (["validation=nowhere"], "'nowhere'"),
        (["start_from=nowhere"], "'nowhere' is neither a weights file nor the name of a model"),
    ],
)
def test_what_cannot_be_trained_is_told_in_one_line(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.setattr(Step, "__call__", lambda *_: pytest.fail("a step was made"))
    images = write_pictures(tmp_path / "images")
    path = write_recipe(tmp_path / "own.toml", data=[str(images)])
    assert run_command(monkeypatch, "train", path, *words, "-o", tmp_path / "run") == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("error:") == 1
    assert "Traceback" not in printed.err
    assert printed.out == ""


def test_a_full_disk_stops_the_run_in_one_line(tmp_path, monkeypatch, capsys):
    images = write_pictures(tmp_path / "images")
    path = write_recipe(tmp_path / "own.toml", data=[str(images)], save_every=5)
    folder, sync, calls = tmp_path / "run", os.fsync, []

    def fill_up(handle: int) -> None:
        calls.append(handle)
        if len(calls) > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fill_up)
        assert run_command(patch, "train", path, "-o", folder) == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert line.startswith("error: step 15 could not be written: [Errno 28] No space left")
    assert line.endswith("make room and continue with --resume")
    assert [int(path.stem.removeprefix("step-")) for path in checkpoints(folder)] == [5, 10]
    assert {path.name for path in folder.iterdir() if path.name.startswith(".")} == set()
    assert run_command(monkeypatch, "train", path, "-o", folder, "--resume") == 0
    train(small_recipe(data=[str(images)]), tmp_path / "whole")
    assert_same(weights_in(folder), weights_in(tmp_path / "whole"))


@pytest.mark.slow
def test_the_smoke_recipe_needs_no_data(tmp_path, monkeypatch, capsys):
    """As in an empty folder after an installation."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MUSIGMA_DATA", raising=False)
    assert run_command(monkeypatch, "train", "smoke", "steps=20", "--device", "cpu", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    model = load(result["weights"])
    assert model.has_sigma
    branch = sum(weight.numel() for weight in model.network.branch.parameters())
    assert branch < num_params(mean_only(model.network))
    record = load_record(tmp_path / "runs" / "smoke" / "record.json")
    assert record.data["name"] == "drawn-shapes"
    assert record.data["num_images"] == 24
    losses = [line["loss"] for line in read_log(tmp_path / "runs" / "smoke") if "loss" in line]
    assert 0 < losses[-1] < 0.5


@pytest.mark.slow
def test_a_loss_of_an_installed_package_can_be_named(tmp_path):
    package = tmp_path / "installed"
    info = package / "capped-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: capped\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[musigma.losses]\ncapped = capped_losses:capped\n")
    (package / "capped_losses.py").write_text(
        "def capped(mean, target, *, cap: float = 0.1):\n"
        "    return (mean - target).abs().clamp_max(cap)\n"
    )
    images = write_pictures(tmp_path / "images")
    recipe = write_recipe(tmp_path / "own.toml", data=[str(images)], steps=2)
    words = ["train", recipe, "objective=capped(cap=0.5)", "-o", tmp_path / "run"]
    folders = os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "musigma", *map(str, words), "--device", "cpu"]
    subprocess.run(command, env=os.environ | {"PYTHONPATH": folders}, check=True)
    training = load(tmp_path / "run" / "weights.safetensors").metadata["training"]
    assert training["recipe"]["objective"] == "capped(cap=0.5)"
