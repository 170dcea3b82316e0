"""A campaign: which runs come next, and that making them gives what `train` would have given."""

import os
import tarfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from helpers.runs import small_values, write_pictures
from musigma.evaluation.record import load_record
from musigma.model import load
from musigma.training.trainer import train
from musigma.types import ConfigError, MusigmaError
from studies.training_runs import campaign
from studies.training_runs.campaign import (
    load_campaign,
    next_jobs,
    pack_results,
    run_jobs,
    run_side_by_side,
)

RUN = "[[run]]\nname = 'x'\nwhy = ''\nminutes = 1\nrecipe = 'study'"
OTHER = RUN.replace("'x'", "'y'")
OBJECTIVES = ["l1", "expected_l1 + 0.01 * sigma_l1"]


def written(folder: Path, **changes: object) -> Path:
    """A campaign of two objectives and two seeds on pictures drawn by code."""
    pictures = str(write_pictures(folder / "pictures", height=40, width=32))
    values = small_values(steps=6, data=[pictures], validation=pictures) | changes
    recipe = folder / "tiny.toml"
    settings = values.pop("settings")
    lines = [f"{key} = {_toml(value)}" for key, value in values.items()]
    inner = ", ".join(f"{key} = {value}" for key, value in settings.items())
    recipe.write_text("\n".join([*lines, f"settings = {{ {inner} }}"]))
    path = folder / "campaign.toml"
    path.write_text(
        f"""
        [[run]]
        name = "old"
        why = "made before"
        minutes = 1
        records = ["before"]

        [[run]]
        name = "try"
        why = "to see"
        recipe = '{recipe}'
        objectives = {_toml(OBJECTIVES)}
        seeds = [0, 1]
        minutes = 8
        """
    )
    (folder / "results" / "training").mkdir(parents=True)
    (folder / "results" / "training" / "before.json").touch()
    return path


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)


def test_runs_come_in_order_as_far_as_the_time_goes(tmp_path):
    plans = load_campaign(written(tmp_path))
    results = tmp_path / "results"
    names = [job.name for job in next_jobs(plans, results, minutes=6)]
    assert names == [
        "try-l1-s0",
        "try-l1-s1",
        "try-expected_l1-0.01-sigma_l1-s0",
    ]
    (results / "training" / "try-l1-s0.json").touch()
    assert next_jobs(plans, results, minutes=2)[0].name == "try-l1-s1"
    assert next_jobs(plans, results, minutes=1.9) == []
    assert [plan.done(results) for plan in plans] == [1, 1]


def test_a_branch_is_there_where_the_objective_needs_one(tmp_path):
    jobs = load_campaign(written(tmp_path))[1].jobs()
    assert [job.recipe.sigma for job in jobs] == [False, False, True, True]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("[[run]]\nnmae = 'x'", "did you mean 'name'"),
        ("[[run]]\nname = 'x'\nwhy = ''", "lacks 'minutes'"),
        ("[[run]]\nname = 'x'\nwhy = ''\nminutes = 1", "lacks 'recipe'"),
        ("[[run]", "is not valid TOML"),
        ("run = 5", "entries must be tables"),
        (RUN.replace("'x'", "5"), "name must be a text"),
        (RUN.replace("'x'", "'../../x'"), "letters, digits"),
        (RUN.replace("'x'", "'a/b'"), "letters, digits"),
        (RUN + "\nrecords = ['/tmp/x']", "letters, digits"),
        (RUN.replace("minutes = 1", "minutes = 'x'"), "minutes must be a number"),
        (RUN + "\nseeds = 5", "seeds must be a list of up to 1000 different whole numbers"),
        (RUN + "\nseeds = []", "seeds must be a list of up to 1000"),
        (RUN + "\nobjectives = 5", "objectives must be a list of texts"),
        (RUN + "\nkeep = 'no'", "keep must be true or false"),
        (RUN.replace("minutes = 1", "minutes = inf"), "minutes must be a number above zero"),
        (RUN.replace("minutes = 1", f"minutes = {'1' * 400}"), "minutes must be a number above"),
        (RUN.replace("minutes = 1", f"minutes = {'1' * 5000}"), "is not valid TOML"),
        (RUN.replace("'x'", f"'{'x' * 5000}'"), "up to 100 letters, digits"),
        (RUN + "\nobjectives = ['l1', 'l1 ']", "two runs of 'x' are called 'x-l1-s0'"),
        (RUN + "\nrecords = ['a', 'a']", "two runs of 'x' are called 'a'"),
        (
            f"{RUN}\nobjectives = ['l1']\n" + RUN.replace("'x'", "'x-l1'"),
            "runs of 'x' and 'x-l1' are both called 'x-l1-s0'; rename one",
        ),
        (
            f"{RUN}\n{OTHER}\nrecords = ['x-s0']",
            "runs of 'x' and 'y' are both called 'x-s0'",
        ),
        (
            f"{RUN}\nrecords = ['a']\n{OTHER}\nrecords = ['x-s0']",
            "runs of 'x' and 'y' are both called 'x-s0'",
        ),
        (RUN + "\nseeds = [1, 1]", "different whole numbers"),
        (RUN + "\nseeds = [-1]", "different whole numbers from 0"),
        (
            f"{RUN}\nseeds = {list(range(1000))}\nobjectives = {list(map(str, range(20000)))}",
            "'x' has 20,000,000 runs, more than 1,000",
        ),
        (f"{RUN}\nseeds = [1{'0' * 4000}]", "different whole numbers from 0"),
        (f"{RUN}\n{'z' * 5000} = 1", r"a run has no key 'z{77}\.\.\.'"),
        (f"{RUN}\nkeep = '{'z' * 10**5}'", r"keep must be true or false, got 'z{77}\.\.\.'"),
        (f"{RUN}\n{RUN}", "has two entries called 'x'"),
        ("[[rn]]\nname = 'x'", r"expected \[\[run\]\] alone, got 'rn'"),
        ("a = " + "[" * 5000 + "]" * 5000, "it is nested too deeply"),
        ("# " + "x" * 2**20, "has more than 1048576 bytes"),
    ],
)
def test_a_slip_in_the_file_is_named(tmp_path, text, match):
    path = tmp_path / "campaign.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=match) as caught:
        load_campaign(path)
    assert len(str(caught.value)) < 500


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_campaign_file_that_is_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "campaign.toml")
    with pytest.raises(ConfigError, match="is not a regular file"):
        load_campaign(tmp_path / "campaign.toml")


def test_a_campaign_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_campaign(tmp_path / "campaign.toml")
    (tmp_path / "campaign.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        load_campaign(tmp_path / "campaign.toml")


def test_a_run_gives_what_train_gives_and_leaves_records(tmp_path):
    plans = load_campaign(written(tmp_path))
    jobs = next_jobs(plans, tmp_path / "results", minutes=8)
    out, lines = tmp_path / "out", []
    run_jobs(jobs, out, device="cpu", pack=tmp_path / "packed", num_workers=1, report=lines.append)

    # The second seed went through the step of the first.
    alone = train(jobs[1].recipe, tmp_path / "alone", device="cpu")
    ours = load(out / "runs" / jobs[1].name / "weights.safetensors").network.state_dict()
    theirs = load(alone).network.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(bool((ours[key] == theirs[key]).all()) for key in ours)

    for job in jobs:
        record = load_record(out / "training" / f"{job.name}.json")
        assert record.seed == job.recipe.seed
        assert record.model["recipe"]["objective"] == job.recipe.objective
        assert record.result["steps"] == 6
        measured = load_record(out / "evaluation" / f"{job.name}-pictures-x2.json")
        assert record.result["validation"]["psnr_y"] == measured.result["psnr_y"]
        assert any(line.startswith(f"{job.name}: pictures") for line in lines)
    with tarfile.open(tmp_path / "packed" / "campaign-0.tar") as archive:
        names = archive.getnames()
    assert len(names) == 12
    assert next_jobs(plans, out, minutes=8) == []


def test_error_bars_of_the_study_over_all_networks_are_calibrated(tmp_path):
    """On the validation set, before the test sets are measured."""
    *_, job = next_jobs(load_campaign(written(tmp_path)), tmp_path / "results", minutes=8)
    others = str(write_pictures(tmp_path / "others", height=40, width=32))
    for calibrate in (False, True):
        out = tmp_path / str(calibrate)
        chosen = replace(job, sets=(others,), calibrate=calibrate)
        run_jobs([chosen], out, device="cpu", num_workers=1)
        record = load_record(out / "evaluation" / f"{job.name}-others-x2.json")
        assert ("pll_calibrated" in record.result) is calibrate
        held_out = load_record(out / "evaluation" / f"{job.name}-pictures-x2.json")
        assert "pll_calibrated" not in held_out.result


def test_side_by_side_gives_what_one_after_another_gives(tmp_path):
    jobs = next_jobs(load_campaign(written(tmp_path)), tmp_path / "results", minutes=8)
    out, packed = tmp_path / "out", tmp_path / "packed"
    run_side_by_side(jobs, out, at_once=2, device="cpu", pack=packed)
    for job in (jobs[1], jobs[3]):  # each the second of its process
        alone = train(job.recipe, tmp_path / job.name, device="cpu")
        ours = load(out / "runs" / job.name / "weights.safetensors").network.state_dict()
        theirs = load(alone).network.state_dict()
        # Each process has its own number of threads, on which the last bits depend.
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    with tarfile.open(packed / "campaign-0.tar") as archive:
        assert len(archive.getnames()) == 12


@pytest.mark.parametrize(
    "run",
    [partial(run_jobs, num_workers=1, report=print), partial(run_side_by_side, at_once=2)],
    ids=["one after another", "side by side"],
)
def test_a_run_that_fails_is_heard_of_and_leaves_the_others(tmp_path, capfd, run):
    jobs = next_jobs(load_campaign(written(tmp_path)), tmp_path / "results", minutes=8)
    lost = replace(jobs[0], recipe=replace(jobs[0].recipe, data=(str(tmp_path / "nowhere"),)))
    out, runs = tmp_path / "out", [lost, jobs[1], jobs[2]]
    with pytest.raises(MusigmaError, match=f"1 failed: {lost.name};"):
        run(runs, out, device="cpu")
    printed = capfd.readouterr().out
    assert f"{lost.name} failed:" in printed
    assert "nowhere" in printed
    made = {path.stem for path in (out / "training").iterdir()}
    assert made == {jobs[1].name, jobs[2].name}


def test_results_are_packed_in_small_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(campaign, "PIECE", 10240 + 6000)
    folder = tmp_path / "results"
    (folder / "weights").mkdir(parents=True)
    for number in range(3):
        (folder / "weights" / f"{number}.safetensors").write_bytes(bytes(4000))
    packed = pack_results(folder, tmp_path / "packed")
    assert len(packed) == 3
    assert all(path.stat().st_size <= 10240 + 6000 for path in packed)
