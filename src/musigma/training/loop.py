"""The training loop: step, log, validate, save."""

import math
import signal
import threading
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

import torch
from torch import distributed

from musigma.data.catalog import find_dataset
from musigma.evaluation.evaluate import evaluate
from musigma.evaluation.protocol import Protocol, denoising, super_resolution
from musigma.evaluation.records import provenance
from musigma.inference.device import pick_device
from musigma.models import entry, save
from musigma.training.checkpoint import load_newest, save_checkpoint
from musigma.training.clock import Clock
from musigma.training.journal import Journal
from musigma.training.recipe import Recipe
from musigma.training.setup import find_run, processes, set_up
from musigma.training.step import Step
from musigma.types import MusigmaError


class TrainingError(MusigmaError):
    """A run that cannot go on."""


class Stopped(TrainingError):
    """A run that a signal ended early; its state is saved.

    Args:
        number: Of the signal.
        step: How many steps are done.
    """

    def __init__(self, number: int, step: int) -> None:
        name = signal.Signals(number).name
        super().__init__(f"stopped by {name} at step {step}; --resume goes on from there")
        self.exit_code = 128 + number


def train(recipe: Recipe, folder: Path, *, resume: bool = False, device: str = "auto") -> Path:
    """Run a recipe and return the weights file it ends in.

    Args:
        recipe: What to train.
        folder: Where checkpoints, the log and the weights go.
        resume: Whether to go on from the newest checkpoint in the folder, if there is one.
        device: Where; ``auto`` takes a GPU when there is one.
    """
    where = pick_device(device)
    with processes(where) as (rank, world):
        content = find_run(recipe, folder, world=world, resume=resume)
        with Journal(folder, recipe, writes=rank == 0) as journal:
            step, clock = set_up(recipe, content, journal, device=where, rank=rank, world=world)
            try:
                loop(step, clock, journal)
                return finish(step, clock, journal)
            except OSError as error:
                raise TrainingError(
                    f"step {step.steps_done} could not be written: {error}; earlier checkpoints "
                    "are whole: make room and go on with --resume"
                ) from error


def loop(step: Step, clock: Clock, journal: Journal) -> None:
    """Train until the budget is used up; raise `Stopped` where a signal asks for it."""
    recipe, last_log = step.recipe, step.steps_done
    clock.start()
    with StopSignal() as stop:
        progress, asked = agree(clock.progress(last_log), stop.number)
        while progress < 1 and not asked:
            step(clock.learning_rate(step.steps_done, progress))
            done = step.steps_done
            progress, asked = agree(clock.progress(done), stop.number)
            if done % recipe.log_every == 0 or progress >= 1 or asked:
                loss = step.read_loss(done - last_log)
                if not math.isfinite(loss):
                    last_log = roll_back(step, clock, journal)
                    progress, asked = agree(clock.progress(last_log), stop.number)
                    continue
                journal.log(done, clock, loss=loss)
                last_log = done
            if recipe.validate_every and done % recipe.validate_every == 0 and progress < 1:
                validate(step, clock, journal)
            if recipe.save_every and done % recipe.save_every == 0:
                save_state(step, clock, journal)
        if asked:
            save_state(step, clock, journal)
            raise Stopped(int(asked), step.steps_done)


def agree(*values: float) -> list[float]:
    """Return the largest of each value over all processes, so that they take the same decisions."""
    if not distributed.is_initialized():
        return list(values)
    shared = torch.tensor(values, dtype=torch.float64)
    distributed.all_reduce(shared, distributed.ReduceOp.MAX)
    return shared.tolist()


def roll_back(step: Step, clock: Clock, journal: Journal) -> int:
    """Return to the last good checkpoint with half the learning rate; give up the second time."""
    failed, first_time = step.steps_done, clock.slower == 1
    content = load_newest(journal.folder) if first_time else None
    if content is None:
        again = "" if first_time else "again "
        raise TrainingError(
            f"the loss was {again}not finite before step {failed}; lower the learning rate "
            f"({step.recipe.learning_rate:g}) or set clip"
        )
    step.load_state(content["step"])
    clock.slower = 0.5
    agree(0)  # nobody reads any more when the checkpoint is written anew
    save_state(step, clock, journal)
    journal.note(f"loss not finite before step {failed}; back to {step.steps_done}, half the rate")
    return step.steps_done


def validate(step: Step, clock: Clock, journal: Journal) -> dict[str, float]:
    """Measure the averaged weights on the validation set by the evaluation code, and log it."""
    recipe = step.recipe
    if not recipe.validation or not journal.writes:
        return {}
    dataset = find_dataset(recipe.validation)
    with step.averaged() as network:
        network.eval()
        noise_map = entry(recipe.network).noise_map
        found = evaluate(network, dataset, protocol_of(recipe), noise_map=noise_map)
        network.train()
    journal.log(step.steps_done, clock, **found.summary)
    return found.summary


def protocol_of(recipe: Recipe) -> Protocol:
    """Return the protocol by which a recipe's network is measured."""
    if recipe.scale > 1:
        return super_resolution(recipe.scale)
    return denoising(25.0, channels=recipe.channels)


def save_state(step: Step, clock: Clock, journal: Journal) -> None:
    """Write a checkpoint, unless the state is poisoned."""
    if not journal.writes:
        return
    content = {
        "step": step.state(),
        "spent": clock.seconds,
        "slower": clock.slower,
        "recipe": step.recipe.as_json(),
    }
    if save_checkpoint(journal.folder, step.steps_done, content) is None:
        journal.note(f"step {step.steps_done} holds values that are not finite: no checkpoint")


def finish(step: Step, clock: Clock, journal: Journal) -> Path:
    """Write the averaged weights, with how they were made, and the curves."""
    recipe, path = step.recipe, journal.folder / "weights.safetensors"
    if journal.writes:
        save_state(step, clock, journal)
        training: dict[str, Any] = {
            "recipe": recipe.as_json(),
            "seed": recipe.seed,
            "steps": step.steps_done,
            "seconds": round(clock.seconds, 1),
            "validation": validate(step, clock, journal),
            **provenance(step.device),
        }
        with step.averaged() as network:
            save(path, network, training=training)
        journal.draw()
    return path


class StopSignal:
    """Notices SIGTERM and SIGINT while it is open, so that the loop can end between two steps.

    Attributes:
        number: Of the signal that came; nought while none has.
    """

    def __init__(self) -> None:
        self.number = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        # Python lets the main thread alone handle signals; elsewhere there is nothing to notice.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.number = number
