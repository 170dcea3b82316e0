"""Chains of trainings from shared banks: equal to `train`, packed as they end, failures named."""

import json
import tarfile
import time
from pathlib import Path

import pytest
import torch

from helpers.runs import CPU, assert_same, weights_in, write_pictures, write_recipe
from musigma.model import load
from musigma.training.recipe import load_recipe
from musigma.training.trainer import train
from musigma.types import ConfigError
from studies.training_runs import chains
from studies.training_runs.chains import LOGS, Training, Workplace, carry_out, read_plan, seconds_of
from studies.training_runs.shared_bank import load_saved_bank, save_bank
from studies.training_runs.shared_bank import train as train_with_bank

PLANS = Path(chains.__file__).parent / "plans"


@pytest.fixture
def recipe(tmp_path) -> Path:
    pictures = str(write_pictures(tmp_path / "pictures", height=40, width=40))
    changes = {"data": [pictures], "validation": pictures, "seconds": 1, "log_every": 2}
    return write_recipe(tmp_path / "tiny.toml", **changes)


def test_a_run_with_a_shared_bank_is_the_run_that_train_makes(recipe, tmp_path):
    saved = load_recipe(recipe, ["patch=12", "steps=1"])
    save_bank(tmp_path / "bank.pt", saved, CPU)
    ours = load_recipe(recipe, ["steps=6"])
    train_with_bank(tmp_path / "bank.pt", ours, tmp_path / "shared", CPU)
    train(ours, tmp_path / "alone", device="cpu")
    assert_same(weights_in(tmp_path / "shared"), weights_in(tmp_path / "alone"))


def test_files_that_are_saved_after_a_bank_have_their_checksums(recipe, tmp_path):
    save_bank(tmp_path / "bank.pt", load_recipe(recipe), CPU)
    assert torch.serialization.get_crc32_options()


def test_a_bank_of_other_data_is_refused(recipe, tmp_path):
    save_bank(tmp_path / "bank.pt", load_recipe(recipe), CPU)
    other = load_recipe(recipe, ["shrink=[0.5]"])
    with pytest.raises(ConfigError, match="the data of another recipe"):
        load_saved_bank(tmp_path / "bank.pt", other, CPU)


def test_chains_are_carried_out_and_packed(recipe, tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text(
        f"""
        common = ["ema=0"]
        [banks.x2]
        recipe = "{recipe}"
        [[chain]]
        runs = [
            {{ name = "first", bank = "x2", recipe = "{recipe}", share = 2 }},
            {{ name = "second", bank = "x2", recipe = "{recipe}", changes = ["start_from={{first}}"] }},
        ]
        [[chain]]
        runs = [
            {{ name = "wrong", bank = "x2", recipe = "{recipe}", changes = ["start_from=nowhere"] }},
            {{ name = "never", bank = "x2", recipe = "{recipe}" }},
        ]
        """  # noqa: E501 - as people write it
    )
    said: list[str] = []
    runs, packed = tmp_path / "runs", tmp_path / "packed"
    runs.mkdir()
    place = Workplace(
        runs=runs, banks=runs, device="cpu", deadline=time.monotonic(), say=said.append
    )
    assert carry_out(read_plan(plan), place, packed) == ["wrong", "never"]
    assert sum("FAILED" in line and "nowhere" in line for line in said) == 1
    names = {path.name for path in packed.iterdir()}
    assert names == {"first.safetensors", "second.safetensors", LOGS}
    with tarfile.open(packed / LOGS) as archive:
        members = archive.getnames()
        record = json.load(archive.extractfile("second/record.json"))
    assert "wrong.log" in members
    assert "first/log.jsonl" in members
    assert record["model"]["recipe"]["start_from"] == "weights.safetensors"
    for name in ("first", "second"):
        ours, theirs = (
            load(path).network.state_dict()
            for path in (packed / f"{name}.safetensors", runs / name / "weights.safetensors")
        )
        assert_same(
            ours,
            {
                key: value.half().float() if value.is_floating_point() else value
                for key, value in theirs.items()
            },
        )


def test_runs_get_their_shares_of_what_is_left():
    def run(share: float) -> Training:
        return Training(name="run", recipe="", changes=(), bank="x2", share=share)

    assert seconds_of([run(1), run(3)], 520) == 100
    assert seconds_of([run(3)], 460) == 400
    assert seconds_of([run(1)], -5) == 1


def test_a_plan_without_the_bank_of_a_run_is_refused(recipe, tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text(
        f"""
        [banks.x2]
        recipe = "{recipe}"
        [[chain]]
        runs = [{{ name = "first", bank = "x4", recipe = "{recipe}" }}]
        """
    )
    with pytest.raises(ConfigError, match="first has no bank 'x4'"):
        read_plan(plan)


@pytest.mark.parametrize("path", sorted(PLANS.glob("*.toml")), ids=lambda path: path.stem)
def test_the_plans_of_the_project_can_be_read(path):
    plan = read_plan(path)
    names = [run.name for chain in plan.chains for run in chain]
    assert len(names) == len(set(names))
