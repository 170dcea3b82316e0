"""The training loop: step, log, validate, save."""

import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import distributed

from musigma.atomic import write_atomically
from musigma.datasets.catalog import find_dataset
from musigma.degradations.blind_spots import BLIND_SPOTS
from musigma.degradations.pairs import PAIRS
from musigma.evaluation.evaluate import evaluate
from musigma.evaluation.protocol import Protocol, protocol_for
from musigma.evaluation.record import provenance
from musigma.model import save
from musigma.networks import Network
from musigma.prediction.device import select_device_and_threads
from musigma.training.checkpoint import load_newest, save_checkpoint
from musigma.training.recipe import Recipe
from musigma.training.run_log import RunLog, read_log, validated_psnr
from musigma.training.run_record import record_of
from musigma.training.schedule import Clock, is_closing
from musigma.training.setup import find_run, join_processes, set_up
from musigma.training.step import Step
from musigma.types import MusigmaError

WEIGHTS = "weights.safetensors"
BEST = "best.safetensors"

DIVERGED = 100
"""A run has diverged if the last loss of an objective exceeds the first one by this factor."""

SMALL_LOSS = 1e-3
"""A first loss below this counts as this: a fraction of a level of 255."""

SMALL_SIGMA_LOSS = 1.0
"""The same for objectives with sigma, which may be logarithms: one near zero is not a small one."""


class TrainingError(MusigmaError):
    """A run that cannot go on."""


class StoppedError(TrainingError):
    """A run that a signal ended early; its state is saved.

    Args:
        number: Number of the signal.
        step: How many steps are done.
    """

    def __init__(self, number: int, step: int) -> None:
        name = signal.Signals(number).name
        super().__init__(f"stopped by {name} at step {step}; continue it with --resume")
        self.exit_code = 128 + number


def train(recipe: Recipe, folder: Path, *, resume: bool = False, device: str = "auto") -> Path:
    """Run a recipe and return the weights file that it writes.

    Args:
        recipe: What to train.
        folder: Where checkpoints, the log and the weights go.
        resume: Whether to continue from the newest checkpoint in the folder, if there is one.
        device: Where to compute; ``auto`` takes a GPU when there is one.
    """
    chosen = select_device_and_threads(device)
    with global_state_kept(chosen), join_processes(chosen) as (rank, world):
        content = find_run(recipe, folder, world=world, resume=resume)
        with RunLog(folder, recipe, writes=rank == 0) as run_log:
            step, clock = set_up(recipe, content, run_log, device=chosen, rank=rank, world=world)
            try:
                loop(step, clock, run_log)
                return finish(step, clock, run_log)
            except OSError as error:
                raise TrainingError(
                    f"step {step.steps_done} could not be written: {error}; earlier checkpoints "
                    "are complete: make room and continue with --resume"
                ) from error


@contextmanager
def global_state_kept(device: torch.device) -> Iterator[None]:
    """Give back PyTorch's global generators and cuDNN's settings as they were.

    Every step seeds the global generator, because compiled and captured code draws from it alone.
    """
    benchmark = torch.backends.cudnn.benchmark
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            torch.backends.cudnn.benchmark = benchmark


def loop(step: Step, clock: Clock, run_log: RunLog) -> None:
    """Train until the budget is used up; raise `StoppedError` after a signal to stop."""
    recipe, last_log = step.recipe, step.steps_done
    clock.start()
    with stop_signals() as stop_signal:
        if recipe.keep_best and not last_log:
            validate_and_log(step, clock, run_log)  # the weights to start from take part
        progress, stop = largest_over_processes(clock.progress(last_log), stop_signal())
        while progress < 1 and not stop:
            before = progress
            phase = phase_at(step, progress)
            step.closing.fill_(is_closing(recipe, progress))
            step(clock.learning_rate(step.steps_done, progress))
            done = step.steps_done
            if phase not in run_log.first_losses:
                run_log.log_first_loss(done, clock, phase, step.loss_sum.item())
            progress, stop = largest_over_processes(clock.progress(done), stop_signal())
            ends_phase = progress >= 1 or phase_at(step, progress) != phase
            validates = progress < 1 and validation_is_due(recipe, done, before, progress)
            if validates or _is_due(done, recipe.log_every) or ends_phase or stop:
                loss = step.read_loss(done - last_log)
                if not math.isfinite(loss):
                    last_log = roll_back(step, clock, run_log)
                    progress, stop = largest_over_processes(clock.progress(last_log), stop_signal())
                    continue
                run_log.log(done, clock, loss=loss)
                last_log = done
                if ends_phase:
                    check_convergence(loss, step, phase, run_log)
            if validates:
                validate_and_log(step, clock, run_log)
            if _is_due(done, recipe.save_every):
                save_state(step, clock, run_log)
        if stop:
            save_state(step, clock, run_log)
            raise StoppedError(int(stop), step.steps_done)


def validation_is_due(recipe: Recipe, step: int, before: float, progress: float) -> bool:
    """Return whether the step that moved the progress from `before` is followed by a validation."""
    parts = recipe.validations + 1  # the last of them ends with the run, which validates anyway
    return _is_due(step, recipe.validate_every) or int(progress * parts) > int(before * parts)


def phase_at(step: Step, progress: float) -> int:
    """Return which objective of a run counts: 0, or 1 for the second one of a run with two."""
    return int(len(step.objectives) > 1 and is_closing(step.recipe, progress))


def check_convergence(loss: float, step: Step, phase: int, run_log: RunLog) -> None:
    """Refuse to go on from an objective whose loss has grown to many times its first one.

    Such a loss is finite, so that `roll_back` does not see it, but the weights are of no use. A run
    that keeps its best weights has better ones. Each objective is compared with itself, because
    the second one may be much larger than the first.

    Args:
        loss: Mean over the last steps with this objective.
        step: Has the objectives.
        phase: Which objective it is.
        run_log: Knows the first loss.
    """
    first = run_log.first_losses.get(phase, math.inf)
    small = SMALL_SIGMA_LOSS if step.objectives[phase].needs_sigma else SMALL_LOSS
    has_diverged = loss > DIVERGED * max(abs(first), small)
    if any(largest_over_processes(has_diverged)):
        if run_log.recipe.keep_best:
            run_log.note(f"the training diverged (loss {loss:.3g}); the best weights are kept")
            return
        raise TrainingError(
            f"the training diverged: the loss went from {first:.3g} to {loss:.3g}; no weights are "
            "written; lower learning_rate or set clip, and start again in another folder"
        )


def largest_over_processes(*values: float) -> list[float]:
    """Return the largest of each value over all processes, so that all decide alike."""
    if not distributed.is_initialized():
        return list(values)
    shared = torch.tensor(values, dtype=torch.float64)
    distributed.all_reduce(shared, distributed.ReduceOp.MAX)
    return shared.tolist()


def roll_back(step: Step, clock: Clock, run_log: RunLog) -> int:
    """Go back to the last good checkpoint with half the learning rate; fail the second time.

    Returns:
        The step of the checkpoint.
    """
    failed, first_time = step.steps_done, clock.rate_factor == 1
    content = load_newest(run_log.folder) if first_time else None
    if content is None:
        again = "" if first_time else "again "
        raise TrainingError(
            f"the loss was {again}not finite before step {failed}; lower the learning rate "
            f"({step.recipe.learning_rate:g}) or set clip"
        )
    step.load_state(content["step"])
    clock.rate_factor = 0.5
    if distributed.is_initialized():
        distributed.barrier()  # every process has read the checkpoint before it is written again
    save_state(step, clock, run_log)
    run_log.note(f"loss not finite before step {failed}; back to {step.steps_done}, half the rate")
    return step.steps_done


def validate(step: Step) -> dict[str, float]:
    """Measure the averaged weights on the validation set by the evaluation code."""
    recipe = step.recipe
    if not recipe.validation or step.rank > 0:
        return {}
    pairs = recipe.degrade in (PAIRS, BLIND_SPOTS)
    dataset = find_dataset(recipe.validation, scale=recipe.scale if pairs else None)
    with step.averaged() as network:
        network.eval()
        evaluation = evaluate(network, dataset, protocol_of(recipe, network))
        network.train()
    return evaluation.summary


def validate_and_log(step: Step, clock: Clock, run_log: RunLog) -> dict[str, float]:
    """Validate, keep the weights if they are the best ones so far and wanted, and log."""
    result = validate(step)
    psnr = validated_psnr(result)
    if step.recipe.keep_best and run_log.writes and psnr is not None:
        best = run_log.best_psnr
        if best is None or psnr > best or not (run_log.folder / BEST).exists():
            write_weights(run_log.folder / BEST, step, clock, result)
    # Logged last: a crash before it only makes the weights be kept once more.
    run_log.log(step.steps_done, clock, **result)
    return result


def protocol_of(recipe: Recipe, network: Network) -> Protocol:
    """Return the protocol by which a network is validated, the one that `evaluate` would take.

    A denoiser is validated at the noise level it is trained for; at the middle of a range.
    """
    if recipe.noise_std is not None:
        return protocol_for(network, noise_std=sum(recipe.noise_std) / 2)
    if recipe.degrade in (PAIRS, BLIND_SPOTS):
        return protocol_for(network, pairs=True)
    return protocol_for(network, degradation=recipe.degrade or None)


def save_state(step: Step, clock: Clock, run_log: RunLog) -> None:
    """Write a checkpoint, unless the state holds values that are not finite."""
    if not run_log.writes:
        return
    content = {
        "step": step.state(),
        "spent": clock.seconds,
        "rate_factor": clock.rate_factor,
        "recipe": step.recipe.as_json(),
    }
    if save_checkpoint(run_log.folder, step.steps_done, content) is None:
        run_log.note(f"step {step.steps_done} holds values that are not finite: no checkpoint")


def finish(step: Step, clock: Clock, run_log: RunLog) -> Path:
    """Validate, write the weights, the record of the run and its curves."""
    if not run_log.writes:
        return run_log.folder / WEIGHTS
    result = validate_and_log(step, clock, run_log)
    path = save_weights(step, clock, run_log, result)
    best = run_log.folder / BEST
    if step.recipe.keep_best and best.exists():
        write_atomically(path, best.read_bytes())
    protocol = protocol_of(step.recipe, step.network)
    record = record_of(step.recipe, path, protocol, read_log(run_log.folder))
    record.save(run_log.folder / "record.json")
    run_log.draw()
    return path


def save_weights(
    step: Step, clock: Clock, run_log: RunLog, validation: dict[str, float] | None = None
) -> Path:
    """Write the averaged weights, with the settings of their training, and a last checkpoint."""
    save_state(step, clock, run_log)
    path = run_log.folder / WEIGHTS
    write_weights(path, step, clock, validation)
    return path


def write_weights(
    path: Path, step: Step, clock: Clock, validation: dict[str, float] | None = None
) -> None:
    """Write the averaged weights to a file, with the settings of their training."""
    recipe = step.recipe
    training = {
        "recipe": recipe.published(),
        "seed": recipe.seed,
        "steps": step.steps_done,
        "seconds": round(clock.seconds, 1),
        "validation": validation or {},
        **provenance(step.device),
    }
    with step.averaged() as network:
        save(path, network, training=training)


def _is_due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


@contextmanager
def stop_signals() -> Iterator[Callable[[], int]]:
    """Catch SIGTERM and SIGINT; yield a function that returns the last one, or 0 for none."""
    caught = [0]
    before = {}
    # Python handles signals in the main thread only; elsewhere none can be caught.
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            before[number] = signal.signal(number, lambda number, _: caught.append(number))
    try:
        yield lambda: caught[-1]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
