import json
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from helpers.runs import (
    assert_same,
    send_signal_at,
    small_recipe,
    small_step,
    weights_in,
    write_pictures,
)
from musigma.datasets.catalog import find_dataset
from musigma.evaluation.evaluate import evaluate_model
from musigma.evaluation.record import load_record
from musigma.model import load, save
from musigma.training.checkpoint import KEPT, checkpoints, load_newest, save_checkpoint
from musigma.training.recipe import Recipe
from musigma.training.run_log import RunLog, read_log
from musigma.training.schedule import Clock
from musigma.training.step import Step
from musigma.training.trainer import (
    StoppedError,
    TrainingError,
    check_convergence,
    loop,
    protocol_of,
    stop_signals,
    train,
)
from musigma.types import ConfigError, DataError

RANDOM = "expected_l1 + 0.01 * sigma_l1"


def recipe_in(folder, **changes) -> Recipe:
    images = write_pictures(folder / "images")
    return small_recipe(**{"data": [str(images)], "save_every": 5, **changes})


def notes(folder) -> list[str]:
    return [line["note"] for line in read_log(folder) if "note" in line]


def poison_at(monkeypatch, *steps: int) -> None:
    """Leave weights that are not finite, once after each of some steps."""
    call, left = Step.__call__, list(steps)

    def and_poison(self: Step, learning_rate: float) -> None:
        call(self, learning_rate)
        if left and self.steps_done == left[0]:
            left.pop(0)
            self.weights[0].data[0] = torch.inf

    monkeypatch.setattr(Step, "__call__", and_poison)


def test_a_run_leaves_weights_log_curves_and_checkpoints(tmp_path):
    recipe = recipe_in(tmp_path, objective=RANDOM, validation=str(tmp_path / "images"))
    folder = tmp_path / "run"
    path = train(recipe, folder)
    assert path == folder / "weights.safetensors"
    model = load(path)
    assert model.has_sigma
    training = model.metadata["training"]
    assert (training["steps"], training["seed"]) == (20, 0)
    assert training["recipe"]["objective"] == RANDOM
    assert training["recipe"]["data"] == ["images"]
    assert training["recipe"]["validation"] == "images"
    assert {"commit", "torch", "device"} <= training.keys()
    steps = [line["step"] for line in read_log(folder) if "loss" in line]
    assert steps == [5, 10, 15, 20]
    last = read_log(folder)[-1]
    assert last["psnr_y"] == training["validation"]["psnr_y"] > 10
    assert [path.name for path in checkpoints(folder)] == [
        "step-000000015.checkpoint",
        "step-000000020.checkpoint",
    ]
    assert len(checkpoints(folder)) == KEPT
    assert (folder / "curves.png").stat().st_size > 1000


def test_no_private_path_is_in_the_weights_or_the_record(tmp_path):
    secret = tmp_path / "alice" / "patients"
    before = tmp_path / "alice" / "before.safetensors"
    before.parent.mkdir()
    save(before, small_step(small_recipe()).network)
    recipe = small_recipe(
        data=[str(write_pictures(secret))],
        validation=str(secret),
        start_from=str(before),
        teacher=str(before),
        objective="l1 + distillation",
        steps=2,
    )
    path = train(recipe, tmp_path / "run")
    record = (tmp_path / "run" / "record.json").read_bytes()
    for content in (path.read_bytes(), record):
        assert b"alice" not in content
        assert b"patients" in content
        assert b"before.safetensors" in content


def test_the_record_tells_which_weights_a_run_started_from(tmp_path):
    before = tmp_path / "before.safetensors"
    save(before, small_step(small_recipe()).network)
    train(recipe_in(tmp_path, start_from=str(before), steps=1), tmp_path / "run")
    record = load_record(tmp_path / "run" / "record.json")
    assert record.model["start_digest"] == load(before).digest


def test_the_record_names_the_weights_that_are_evaluated_and_shipped(tmp_path):
    recipe = recipe_in(tmp_path, objective=RANDOM, steps=2)
    path = train(recipe, tmp_path / "run")
    record = load_record(tmp_path / "run" / "record.json")
    model = load(path)
    save(tmp_path / "half.safetensors", model, half=True)
    half = load(tmp_path / "half.safetensors")
    protocol = protocol_of(recipe, model.network)
    measured = evaluate_model(half, find_dataset(recipe.data[0]), protocol)
    digest = record.model["digest"]
    assert len(digest) == 64
    assert {model.digest, half.digest, measured.model["digest"]} == {digest}


def test_training_leaves_global_state_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    prepare = Step.prepare

    def prepare_as_on_a_gpu(self: Step) -> None:
        prepare(self)
        torch.backends.cudnn.benchmark = True

    monkeypatch.setattr(Step, "prepare", prepare_as_on_a_gpu)
    before = torch.get_rng_state()
    train(recipe_in(tmp_path, objective=RANDOM, steps=2), tmp_path / "run")
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.backends.cudnn.benchmark is False


def test_two_runs_in_one_folder_are_refused(tmp_path):
    recipe = recipe_in(tmp_path, steps=2)
    with (
        RunLog(tmp_path / "run", recipe, writes=True),
        pytest.raises(ConfigError, match=r"another training is running in .*run; wait for it"),
    ):
        train(recipe, tmp_path / "run")
    train(recipe, tmp_path / "run")


def test_a_log_with_damaged_lines_does_not_end_a_run(tmp_path, caplog):
    recipe = recipe_in(tmp_path, steps=5)
    (tmp_path / "run").mkdir()
    damaged = b'5\n[]\nnull\n{"a": 2}\n{"step": "x", "seconds": 1, "loss": 2}\n\xff\n{"step": 1, "l'
    far_too_large = json.dumps({"step": 2, "seconds": 1, "loss": 10**400, "psnr": 10**400})
    no_note = json.dumps({"note": "resumed", "loss": "x"})
    lines = [far_too_large, no_note, '{"step": 1e308, "seconds": 1, "loss": 1e308}']
    (tmp_path / "run" / "log.jsonl").write_bytes("\n".join(lines).encode() + b"\n" + damaged)
    train(recipe, tmp_path / "run")
    assert [line["step"] for line in read_log(tmp_path / "run")] == [1, 5]
    assert "10 damaged lines are left out" in caplog.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content.clear(), "was not written by this version of musigma"),
        (lambda content: content.update(recipe=5), "was not written by this version of musigma"),
        (lambda content: content.update(step={}), "the checkpoint does not fit the recipe"),
        (lambda content: content.update(step=3), "the checkpoint does not fit the recipe"),
        (lambda content: content["step"]["weights"].popitem(), "does not fit the recipe"),
        (
            lambda content: content["step"]["weights"].update({5: torch.zeros(())}),
            "step.weights is missing or has another form",
        ),
        (lambda content: content.update(spent="x"), "the checkpoint does not fit the recipe"),
        (lambda content: content.update(spent=10**400), "no run has such a clock"),
        (lambda content: content.update(rate_factor=-1), "no run has such a clock"),
        (lambda content: content["step"]["number"].fill_(-5), "no run has such a clock"),
        (
            lambda content: content["step"].update(number=torch.tensor(2.0)),
            "step.number is missing or has another form",
        ),
        (
            lambda content: content["step"].update(averages=[torch.zeros(())] * 2),
            "step.averages is missing or has another form",
        ),
        (
            lambda content: content["step"]["averages"].__setitem__(0, torch.zeros(())),
            "step.averages.0 is missing or has another form",
        ),
        (
            lambda content: content["recipe"].update(batch=torch.zeros(2)),
            "was not written by this version of musigma",
        ),
        (
            lambda content: content["recipe"].update(network="x" * 10**5),
            r"the run to resume has network = 'xx.*\.\.\.', the recipe",
        ),
    ],
)
def test_a_checkpoint_of_something_else_is_refused_in_one_line(tmp_path, change, message):
    recipe = recipe_in(tmp_path, steps=2)
    train(recipe, tmp_path / "run")
    content = load_newest(tmp_path / "run")
    change(content)
    save_checkpoint(tmp_path / "run", 2, content)
    with pytest.raises((ConfigError, DataError), match=message) as caught:
        train(recipe, tmp_path / "run", resume=True)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.skipif(os.name != "posix", reason="needs links and pipes")
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_a_log_that_is_no_file_is_refused_in_one_line(tmp_path, kind):
    """A link may lead to any file, which must stay as it is, and a pipe never ends."""
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    path = tmp_path / "run" / "log.jsonl"
    path.parent.mkdir()
    {"link": lambda: path.symlink_to(precious), "pipe": lambda: os.mkfifo(path)}.get(
        kind, path.mkdir
    )()
    with pytest.raises(ConfigError, match=r"log\.jsonl cannot be written \(.*\); choose another"):
        train(recipe_in(tmp_path, steps=1), tmp_path / "run")
    assert precious.read_text() == "mine"


def test_no_file_holds_the_prefix_of_a_wrapper(tmp_path):
    folder = tmp_path / "run"
    train(recipe_in(tmp_path, objective=RANDOM), folder)
    with safe_open(folder / "weights.safetensors", framework="pt") as file:
        names = list(file.keys())
    names += load_newest(folder)["step"]["weights"]
    assert all(name.startswith(("base.", "branch.")) for name in names)
    for path in filter(Path.is_file, folder.iterdir()):
        data = path.read_bytes()
        assert b"_orig_mod." not in data
        assert b"module." not in data


def test_weights_are_the_averaged_ones(tmp_path):
    recipe = recipe_in(tmp_path)
    train(recipe, tmp_path / "run")
    step = small_step(recipe)
    step.load_state(load_newest(tmp_path / "run")["step"])
    with step.averaged() as network:
        assert_same(network.state_dict(), weights_in(tmp_path / "run"))


def test_a_short_run_is_logged_too(tmp_path):
    train(recipe_in(tmp_path, steps=3, log_every=100, save_every=0), tmp_path / "run")
    assert [line["step"] for line in read_log(tmp_path / "run")] == [1, 3]
    assert (tmp_path / "run" / "curves.png").exists()


@pytest.mark.parametrize(
    ("number", "changes"),
    [
        (signal.SIGTERM, {"objective": RANDOM}),
        (signal.SIGINT, {"optimizer": "muon", "settings": {"num_blocks": 1, "width": 16}}),
    ],
)
def test_a_run_that_is_stopped_goes_on(tmp_path, monkeypatch, number, changes):
    recipe = recipe_in(tmp_path, **changes)
    train(recipe, tmp_path / "whole")
    with monkeypatch.context() as patch:
        send_signal_at(patch, 8, number)
        with pytest.raises(StoppedError, match="at step 8; continue it with --resume") as stopped:
            train(recipe, tmp_path / "run")
    assert stopped.value.exit_code == 128 + number
    assert not (tmp_path / "run" / "weights.safetensors").exists()
    train(recipe, tmp_path / "run", resume=True)
    assert notes(tmp_path / "run") == ["resumed at step 8"]
    assert_same(weights_in(tmp_path / "run"), weights_in(tmp_path / "whole"))


def test_a_run_that_is_over_is_only_finished(tmp_path):
    recipe = recipe_in(tmp_path)
    train(recipe, tmp_path / "run")
    before = weights_in(tmp_path / "run")
    (tmp_path / "run" / "weights.safetensors").unlink()
    train(recipe, tmp_path / "run", resume=True)
    assert_same(weights_in(tmp_path / "run"), before)


def test_a_longer_budget_goes_on(tmp_path):
    constant = {"schedule": "constant", "warmup": 0.0}
    train(recipe_in(tmp_path, **constant), tmp_path / "whole")
    train(recipe_in(tmp_path, **constant, steps=10), tmp_path / "run")
    train(recipe_in(tmp_path, **constant), tmp_path / "run", resume=True)
    assert_same(weights_in(tmp_path / "run"), weights_in(tmp_path / "whole"))


def test_a_damaged_checkpoint_costs_some_steps_only(tmp_path, monkeypatch, caplog):
    recipe = recipe_in(tmp_path)
    train(recipe, tmp_path / "whole")
    with monkeypatch.context() as patch:
        send_signal_at(patch, 13)
        with pytest.raises(StoppedError):
            train(recipe, tmp_path / "run")
    newest = checkpoints(tmp_path / "run")[-1]
    newest.write_bytes(newest.read_bytes()[:-1])
    train(recipe, tmp_path / "run", resume=True)
    assert "step-000000013.checkpoint is damaged; using the one before" in caplog.text
    assert notes(tmp_path / "run") == ["resumed at step 10"]
    assert_same(weights_in(tmp_path / "run"), weights_in(tmp_path / "whole"))


def test_signals_are_given_back():
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    with stop_signals() as stop:
        assert stop() == 0
        os.kill(os.getpid(), signal.SIGINT)
        assert stop() == signal.SIGINT
    assert {number: signal.getsignal(number) for number in before} == before


def test_a_run_in_a_thread(tmp_path):
    recipe = recipe_in(tmp_path, steps=2)
    thread = threading.Thread(target=train, args=(recipe, tmp_path / "run"))
    thread.start()
    thread.join()
    assert (tmp_path / "run" / "weights.safetensors").exists()


def test_the_second_objective_closes_the_run(tmp_path, monkeypatch):
    recipe = recipe_in(tmp_path, objective="l1 then l2", closing=0.25)
    counted, call = [], Step.__call__
    monkeypatch.setattr(
        Step, "__call__", lambda s, rate: (counted.append(s.closing.item()), call(s, rate))[1]
    )
    train(recipe, tmp_path / "run")
    assert counted == [0.0] * 15 + [1.0] * 5
    training = load(tmp_path / "run" / "weights.safetensors").metadata["training"]
    assert training["recipe"]["objective"] == "l1 then l2"


def test_a_loss_that_is_not_finite_rolls_back_once(tmp_path, monkeypatch):
    recipe = recipe_in(tmp_path, schedule="constant", warmup=0.0)
    rates, averaged = [], []
    call, read = Step.__call__, Step.read_loss
    monkeypatch.setattr(Step, "__call__", lambda s, rate: (rates.append(rate), call(s, rate))[1])
    monkeypatch.setattr(Step, "read_loss", lambda s, n: (averaged.append(n), read(s, n))[1])
    poison_at(monkeypatch, 13)
    train(recipe, tmp_path / "run")
    folder = tmp_path / "run"
    assert notes(folder) == ["loss not finite before step 15; back to 10, half the rate"]
    assert rates == [1e-3] * 15 + [5e-4] * 10
    assert averaged == [5] * 5
    assert [line["step"] for line in read_log(folder) if "loss" in line] == [5, 10, 15, 20]
    assert load_newest(folder)["rate_factor"] == 0.5
    assert all(value.isfinite().all() for value in weights_in(folder).values())


def test_a_poisoned_state_is_not_saved(tmp_path, monkeypatch):
    """Here the loss is looked at less often than the state is saved."""
    poison_at(monkeypatch, 7)
    train(recipe_in(tmp_path, log_every=20), tmp_path / "run")
    assert notes(tmp_path / "run") == [
        "step 10 holds values that are not finite: no checkpoint",
        "step 15 holds values that are not finite: no checkpoint",
        "loss not finite before step 20; back to 5, half the rate",
    ]


def test_a_poisoned_state_is_neither_validated_nor_the_result(tmp_path, monkeypatch):
    recipe = recipe_in(tmp_path, log_every=50, validate_every=10)
    recipe = replace(recipe, validation=recipe.data[0])
    with monkeypatch.context() as patch:
        poison_at(patch, 10)
        train(recipe, tmp_path / "between")
    assert notes(tmp_path / "between") == [
        "loss not finite before step 10; back to 5, half the rate"
    ]
    poison_at(monkeypatch, 20)
    train(recipe, tmp_path / "end")
    assert notes(tmp_path / "end") == ["loss not finite before step 20; back to 15, half the rate"]


def test_the_second_time_a_run_stops(tmp_path, monkeypatch):
    poison_at(monkeypatch, 8, 12)
    with pytest.raises(TrainingError, match="the loss was again not finite before step 15"):
        train(recipe_in(tmp_path), tmp_path / "run")
    content = load_newest(tmp_path / "run")
    assert int(content["step"]["number"]) == 10
    assert content["rate_factor"] == 0.5


def test_a_resumed_run_remembers_that_it_rolled_back(tmp_path, monkeypatch):
    recipe = recipe_in(tmp_path)
    with monkeypatch.context() as patch:
        poison_at(patch, 8)
        send_signal_at(patch, 14)
        with pytest.raises(StoppedError):
            train(recipe, tmp_path / "run")
    poison_at(monkeypatch, 18)
    with pytest.raises(TrainingError, match="again not finite before step 20"):
        train(recipe, tmp_path / "run", resume=True)


def test_a_run_that_diverges_without_a_checkpoint_stops(tmp_path):
    recipe = recipe_in(tmp_path, learning_rate=1e14, warmup=0.0, save_every=0)
    with pytest.raises(TrainingError, match=r"not finite before step 5; lower .*\(1e\+14\)"):
        train(recipe, tmp_path / "run")
    assert not checkpoints(tmp_path / "run")
    assert not (tmp_path / "run" / "weights.safetensors").exists()


@pytest.mark.parametrize("log_every", [5, 50])
def test_a_loss_that_grew_to_many_times_the_first_is_no_trained_network(tmp_path, log_every):
    """Such a loss is finite, so that nothing else would notice."""
    options = {"learning_rate": 100.0, "schedule": "constant", "warmup": 0.0}
    recipe = recipe_in(tmp_path, log_every=log_every, save_every=0, **options)
    with pytest.raises(
        TrainingError, match=r"the training diverged: the loss went from 0\.\d+ to "
    ):
        train(recipe, tmp_path / "run")
    assert not (tmp_path / "run" / "weights.safetensors").exists()


def test_a_second_objective_on_another_scale_is_no_divergence(tmp_path):
    recipe = recipe_in(tmp_path, objective="l2 then 10000 * l1", closing=0.35)
    folder = tmp_path / "run"
    train(recipe, folder)
    losses = {line["step"]: line["loss"] for line in read_log(folder) if "loss" in line}
    assert list(losses) == [5, 10, 13, 15, 20]  # those of the two objectives are not mixed
    assert losses[13] < 1 < 100 < losses[15]


def test_a_first_objective_that_diverged_is_not_hidden_by_the_second(tmp_path):
    options = {"learning_rate": 100.0, "schedule": "constant", "warmup": 0.0}
    recipe = recipe_in(tmp_path, objective="l1 then 1e-30 * l1", closing=0.5, **options)
    message = r"the training diverged: the loss went from 0\.\d+ to .*; lower learning_rate or set"
    with pytest.raises(TrainingError, match=message):
        train(recipe, tmp_path / "run")
    assert not (tmp_path / "run" / "weights.safetensors").exists()


def test_a_likelihood_near_zero_is_not_taken_for_a_small_loss(tmp_path):
    recipe = small_recipe(objective="gaussian_nll", sigma=True)
    with RunLog(tmp_path / "run", recipe, writes=True) as run_log:
        step = small_step(recipe)
        for first in (1e-3, -1.0):
            run_log.first_losses = {0: first}
            for loss in (-5.0, 0.5, 90.0):
                check_convergence(loss, step, 0, run_log)
            with pytest.raises(TrainingError, match="to 1e\\+14; no weights"):
                check_convergence(1e14, step, 0, run_log)


def test_a_resumed_run_knows_its_first_losses(tmp_path):
    recipe, folder = recipe_in(tmp_path), tmp_path / "run"
    with RunLog(folder, recipe, writes=True) as run_log:
        assert run_log.first_losses == {}
        for step, loss in ((5, 0.25), (10, 0.125)):
            run_log.log(step, Clock(recipe), loss=loss)
    with RunLog(folder, recipe, writes=True) as run_log:
        assert run_log.first_losses == {0: 0.25}  # of a log from before the first step was logged
        run_log.log_first_loss(1, Clock(recipe), 0, 0.5)
        run_log.log_first_loss(11, Clock(recipe), 1, float("nan"))
        run_log.log_first_loss(12, Clock(recipe), 1, 7.0)
    with RunLog(folder, recipe, writes=True) as run_log:
        assert run_log.first_losses == {0: 0.5, 1: 7.0}


def test_a_resumed_run_is_compared_with_its_first_step(tmp_path, monkeypatch):
    """The mean of the first logged steps may be large already."""
    options = {"learning_rate": 100.0, "schedule": "constant", "warmup": 0.0}
    recipe = recipe_in(tmp_path, log_every=10, **options)
    with monkeypatch.context() as patch:
        send_signal_at(patch, 10)
        with pytest.raises(StoppedError):
            train(recipe, tmp_path / "run")
    with pytest.raises(TrainingError, match=r"the loss went from 0\.\d+ to "):
        train(recipe, tmp_path / "run", resume=True)


def test_a_budget_in_seconds_counts_all_parts(tmp_path, monkeypatch):
    recipe = recipe_in(tmp_path, seconds=1000.0)
    now = [50.0]
    monkeypatch.setattr("musigma.training.schedule.time.monotonic", lambda: now[0])
    clock = Clock(recipe, spent=700.0)
    assert clock.progress(5) == 0.7
    clock.start()
    now[0] += 200
    assert clock.seconds == 900
    assert clock.progress(5) == 0.9
    step = small_step(recipe)
    call = Step.__call__

    def slow(self: Step, learning_rate: float) -> None:
        now[0] += 40
        call(self, learning_rate)

    monkeypatch.setattr(Step, "__call__", slow)
    with RunLog(tmp_path / "run", recipe, writes=True) as run_log:
        loop(step, Clock(recipe, spent=700.0), run_log)
    assert step.steps_done == 8  # 8 * 40 seconds of the 300 that are left
    assert load_newest(tmp_path / "run")["spent"] == 900


def test_validation_between(tmp_path):
    images = str(write_pictures(tmp_path / "images"))
    recipe = recipe_in(tmp_path, validation=images, validate_every=10)
    train(recipe, tmp_path / "run")
    scores = {
        line["step"]: line["psnr_y"] for line in read_log(tmp_path / "run") if "psnr_y" in line
    }
    assert list(scores) == [10, 20]
    assert scores[20] > scores[10]


def test_a_picture_that_cannot_be_read_is_named(tmp_path):
    recipe = recipe_in(tmp_path)
    (tmp_path / "images" / "broken.png").write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"broken\.png"):
        train(recipe, tmp_path / "run")
    (tmp_path / "images" / "broken.png").unlink()
    for path in (tmp_path / "images").iterdir():
        path.unlink()
    with pytest.raises(DataError, match="holds no images"):
        train(recipe, tmp_path / "run")


def test_validations_are_spread_over_the_budget(tmp_path):
    images = str(tmp_path / "images")
    train(recipe_in(tmp_path, validation=images, validations=3), tmp_path / "run")
    assert [line["step"] for line in read_log(tmp_path / "run") if "psnr_y" in line] == [
        5, 10, 15, 20
    ]  # fmt: skip


def test_the_best_weights_are_kept_those_of_the_start_among_them(tmp_path):
    images = str(tmp_path / "images")
    first = train(recipe_in(tmp_path, validation=images, steps=60), tmp_path / "first")
    shared = {"validation": images, "validations": 3, "keep_best": True, "start_from": str(first)}
    # Steps that are far too long spoil the weights, so that those of the start are the best ones.
    spoilt = recipe_in(tmp_path, learning_rate=0.5, **shared)
    path = train(spoilt, tmp_path / "spoilt")
    assert_same(weights_in(tmp_path / "spoilt"), weights_in(tmp_path / "first"))
    assert load(path).metadata["training"]["steps"] == 0
    scores = [line["psnr_y"] for line in read_log(tmp_path / "spoilt") if "psnr_y" in line]
    assert scores[0] == max(scores) == load(path).metadata["training"]["validation"]["psnr_y"]
    better = train(recipe_in(tmp_path, **shared), tmp_path / "better")
    assert load(better).metadata["training"]["steps"] == 20


def test_the_best_weights_survive_a_stop(tmp_path, monkeypatch):
    images = str(tmp_path / "images")
    first = train(recipe_in(tmp_path, validation=images, steps=60), tmp_path / "first")
    recipe = recipe_in(
        tmp_path,
        learning_rate=0.5,
        validation=images,
        validations=3,
        keep_best=True,
        start_from=str(first),
    )
    with monkeypatch.context() as patch:
        send_signal_at(patch, 7)
        with pytest.raises(StoppedError):
            train(recipe, tmp_path / "run")
    train(recipe, tmp_path / "run", resume=True)
    assert_same(weights_in(tmp_path / "run"), weights_in(tmp_path / "first"))
