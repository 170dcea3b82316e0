"""The training loop: step, log, validate, save."""

import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import distributed

from musigma.datasets.catalog import find_dataset
from musigma.evaluation.evaluate import evaluate
from musigma.evaluation.protocol import Protocol, protocol_for
from musigma.evaluation.record import provenance
from musigma.model import save
from musigma.networks import Network
from musigma.prediction.device import select_device_and_threads
from musigma.training.checkpoint import load_newest, save_checkpoint
from musigma.training.recipe import Recipe
from musigma.training.run_log import Journal, read_log
from musigma.training.run_record import record_of
from musigma.training.schedule import Clock
from musigma.training.setup import find_run, processes, set_up
from musigma.training.step import Step
from musigma.types import MusigmaError

WEIGHTS = "weights.safetensors"


class TrainingError(MusigmaError):
    """A run that cannot go on."""


class StoppedError(TrainingError):
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
    where = select_device_and_threads(device)
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
    """Train until the budget is used up; raise `StoppedError` where a signal asks for it."""
    recipe, last_log = step.recipe, step.steps_done
    clock.start()
    with stop_signals() as stop:
        progress, asked = agree(clock.progress(last_log), stop())
        while progress < 1 and not asked:
            step(clock.learning_rate(step.steps_done, progress))
            done = step.steps_done
            progress, asked = agree(clock.progress(done), stop())
            validates = progress < 1 and _is_due(done, recipe.validate_every)
            if validates or _is_due(done, recipe.log_every) or progress >= 1 or asked:
                loss = step.read_loss(done - last_log)
                if not math.isfinite(loss):
                    last_log = roll_back(step, clock, journal)
                    progress, asked = agree(clock.progress(last_log), stop())
                    continue
                journal.log(done, clock, loss=loss)
                last_log = done
            if validates:
                journal.log(done, clock, **validate(step))
            if _is_due(done, recipe.save_every):
                save_state(step, clock, journal)
        if asked:
            save_state(step, clock, journal)
            raise StoppedError(int(asked), step.steps_done)


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


def validate(step: Step) -> dict[str, float]:
    """Measure the averaged weights on the validation set by the evaluation code."""
    recipe = step.recipe
    if not recipe.validation or step.rank > 0:
        return {}
    dataset = find_dataset(recipe.validation)
    with step.averaged() as network:
        network.eval()
        found = evaluate(network, dataset, protocol_of(recipe, network))
        network.train()
    return found.summary


def protocol_of(recipe: Recipe, network: Network) -> Protocol:
    """Return the protocol by which a network is validated, the one that `evaluate` would take.

    A denoiser is validated at the noise level it is trained for; at the middle of a range.
    """
    noise_std = None if recipe.noise_std is None else sum(recipe.noise_std) / 2
    return protocol_for(network, noise_std=noise_std)


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
    """Validate, write the weights, the record of the run and its curves."""
    if not journal.writes:
        return journal.folder / WEIGHTS
    result = validate(step)
    journal.log(step.steps_done, clock, **result)
    path = save_weights(step, clock, journal, result)
    record = record_of(path, protocol_of(step.recipe, step.network), read_log(journal.folder))
    record.save(journal.folder / "record.json")
    journal.draw()
    return path


def save_weights(
    step: Step, clock: Clock, journal: Journal, validation: dict[str, float] | None = None
) -> Path:
    """Write the averaged weights, with how they were made, and a last checkpoint."""
    recipe, path = step.recipe, journal.folder / WEIGHTS
    save_state(step, clock, journal)
    # Of files on this machine the name is enough; paths are nobody else's business.
    names = {key: Path(getattr(recipe, key)).name for key in ("start_from", "teacher")}
    training = {
        "recipe": recipe.as_json() | names,
        "seed": recipe.seed,
        "steps": step.steps_done,
        "seconds": round(clock.seconds, 1),
        "validation": validation or {},
        **provenance(step.device),
    }
    with step.averaged() as network:
        save(path, network, training=training)
    return path


def _is_due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


@contextmanager
def stop_signals() -> Iterator[Callable[[], int]]:
    """Notice SIGTERM and SIGINT instead of obeying them at once; nought while none has come."""
    came = [0]
    before = {}
    # Python lets the main thread alone handle signals; elsewhere there is nothing to notice.
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            before[number] = signal.signal(number, lambda number, _: came.append(number))
    try:
        yield lambda: came[-1]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
