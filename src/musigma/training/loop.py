"""The training loop: step, log, validate, save; and what stands around it."""

import logging
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from musigma.data.catalog import Dataset, Item, find_dataset
from musigma.data.patches import Bank, build_bank, load_images
from musigma.evaluation.evaluate import evaluate
from musigma.evaluation.protocol import Protocol, denoising, super_resolution
from musigma.evaluation.records import provenance
from musigma.inference.device import pick_device
from musigma.losses import Objective
from musigma.models import Network, create, entry, load, save, warm_start, with_sigma
from musigma.training.checkpoint import load_newest, save_checkpoint
from musigma.training.journal import Journal
from musigma.training.recipe import Recipe
from musigma.training.step import Step
from musigma.types import ConfigError, MusigmaError

log = logging.getLogger(__name__)


class TrainingError(MusigmaError):
    """A run that cannot go on."""


@dataclass
class Clock:
    """How much of the budget is used, over all the parts of a resumed run.

    Attributes:
        recipe: Whose budget.
        spent: Seconds of the parts before this one.
        slower: Factor on the learning rate: below 1 after a roll-back.
    """

    recipe: Recipe
    spent: float = 0.0
    slower: float = 1.0
    started: float | None = None

    def start(self) -> None:
        """Begin to count: the first step is about to run."""
        self.started = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds of training so far."""
        return self.spent + (time.monotonic() - self.started if self.started else 0.0)

    def progress(self, step: int) -> float:
        """Share of the budget that is used up."""
        if self.recipe.steps is not None:
            return step / self.recipe.steps
        assert self.recipe.seconds is not None
        return self.seconds / self.recipe.seconds

    def learning_rate(self, step: int) -> float:
        """Learning rate of the next step."""
        progress = self.progress(step)
        return self.slower * self.recipe.learning_rate_at(step=step, progress=progress)


def train(recipe: Recipe, folder: Path, *, resume: bool = False, device: str = "auto") -> Path:
    """Run a recipe and return the weights file it ends in.

    Args:
        recipe: What to train.
        folder: Where checkpoints, the log and the weights go.
        resume: Whether to go on from the newest checkpoint in the folder, if there is one.
        device: Where; ``auto`` takes a GPU when there is one.
    """
    where = pick_device(device)
    with processes(where) as (rank, world), Journal(folder, recipe, writes=rank == 0) as journal:
        step, clock = _set_up(recipe, folder, where, rank, world, resume, journal)
        loop(step, clock, folder, journal, writes=rank == 0)
        return _finish(step, clock, folder, journal, writes=rank == 0)


def loop(step: Step, clock: Clock, folder: Path, journal: Journal, *, writes: bool) -> None:
    """Train until the budget is used up or the process is asked to stop."""
    recipe, last_log = step.recipe, step.steps_done
    stop = _StopSignal()
    clock.start()
    while clock.progress(step.steps_done) < 1 and not stop.asked:
        step(clock.learning_rate(step.steps_done))
        done = step.steps_done
        if done % recipe.log_every == 0:
            loss = step.read_loss(done - last_log)
            last_log = done
            if not _finite(loss):
                last_log = roll_back(step, clock, folder, journal)
                continue
            journal.log(done, clock, loss=loss)
        if recipe.validate_every and done % recipe.validate_every == 0:
            journal.log(done, clock, **validate(step))
        if recipe.save_every and done % recipe.save_every == 0 and writes:
            save_state(step, clock, folder)
    if stop.asked:
        save_state(step, clock, folder)
        raise TrainingError(f"stopped by a signal at step {step.steps_done}; --resume goes on")


def roll_back(step: Step, clock: Clock, folder: Path, journal: Journal) -> int:
    """Return to the last good checkpoint with half the learning rate; give up the second time."""
    failed = step.steps_done
    content = load_newest(folder)
    if clock.slower < 1 or content is None:
        again = "again " if clock.slower < 1 else ""
        raise TrainingError(
            f"the loss was {again}not finite before step {failed}; lower the learning rate "
            f"({step.recipe.learning_rate:g}) or set clip"
        )
    step.load_state(content["step"])
    clock.slower = 0.5
    save_state(step, clock, folder)
    journal.note(f"loss not finite before step {failed}; back to {step.steps_done}, half the rate")
    return step.steps_done


def validate(step: Step) -> dict[str, float]:
    """Measure the averaged weights on the validation set by the evaluation code."""
    recipe = step.recipe
    if not recipe.validation:
        return {}
    dataset = find_dataset(recipe.validation)
    with step.averaged() as network:
        network.eval()
        noise_map = entry(recipe.network).noise_map
        found = evaluate(network, dataset, protocol_of(recipe), noise_map=noise_map)
        network.train()
    return found.summary


def protocol_of(recipe: Recipe) -> Protocol:
    """Return the protocol by which a recipe's network is measured."""
    if recipe.scale > 1:
        return super_resolution(recipe.scale)
    return denoising(25.0, channels=recipe.channels)


def save_state(step: Step, clock: Clock, folder: Path) -> None:
    """Write a checkpoint, unless the state is poisoned."""
    content = {
        "step": step.state(),
        "spent": clock.seconds,
        "slower": clock.slower,
        "recipe": step.recipe.as_json(),
        "provenance": provenance(step.device),
    }
    if save_checkpoint(folder, step.steps_done, content) is None:
        log.warning("step %d holds values that are not finite: no checkpoint", step.steps_done)


def build_network(recipe: Recipe) -> Network:
    """Build a recipe's network with its initial weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        network = create(recipe.network, scale=recipe.scale, **recipe.settings)
        if recipe.sigma:
            network = with_sigma(network, width=recipe.sigma_width)
    if recipe.start_from:
        left = warm_start(network, load(recipe.start_from).network)
        log.info("started from %s; new: %s", recipe.start_from, ", ".join(left) or "nothing")
    return network.train()


def training_data(recipe: Recipe) -> Dataset:
    """Return the sets of a recipe as one."""
    sets = [find_dataset(name) for name in recipe.data]
    items = tuple(
        Item(f"{one.name}/{item.name}", item.target) for one in sets for item in one.items
    )
    return Dataset("+".join(one.name for one in sets), items)


def load_bank(recipe: Recipe, device: torch.device, journal: Journal | None = None) -> Bank:
    """Load a recipe's training images, onto the GPU where they fit into half of its free memory."""
    progress = journal.loading if journal else None
    paths = [item.target for item in training_data(recipe).items]
    images = load_images(paths, num_channels=recipe.channels, progress=progress)
    total = sum(image.numel() for image in images)
    place = device
    if device.type == "cuda" and 1.5 * total > 0.5 * torch.cuda.mem_get_info(device)[0]:
        place = torch.device("cpu")
    return build_bank(images, scale=recipe.scale, patch=recipe.patch, device=place)


@contextmanager
def processes(device: torch.device) -> Iterator[tuple[int, int]]:
    """Join the other processes that torchrun started, if any; give rank and number."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield 0, 1
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield distributed.get_rank(), world
    finally:
        distributed.destroy_process_group()


def _set_up(
    recipe: Recipe,
    folder: Path,
    device: torch.device,
    rank: int,
    world: int,
    resume: bool,
    journal: Journal,
) -> tuple[Step, Clock]:
    if recipe.batch % world:
        raise ConfigError(f"a batch of {recipe.batch} cannot be shared by {world} processes")
    content = load_newest(folder) if resume else None
    if not resume and load_newest(folder) is not None:
        raise ConfigError(f"{folder} holds a run already; go on with --resume or choose another")
    if recipe.validation:
        find_dataset(recipe.validation)
    # The one place where global generators are set: compiled steps draw from no other.
    torch.manual_seed(recipe.seed * 1000 + rank)
    teacher = load(recipe.teacher).network if recipe.teacher else None
    step = Step(
        recipe,
        build_network(recipe),
        Objective(recipe.objective, teacher=teacher),
        load_bank(recipe, device, journal),
        device=device,
        rank=rank,
        world=world,
    )
    clock = Clock(recipe)
    if content is not None:
        _check_same_run(content["recipe"], recipe)
        step.load_state(content["step"])
        clock.spent, clock.slower = content["spent"], content["slower"]
        journal.note(f"resumed at step {step.steps_done}")
    step.prepare()
    return step, clock


def _check_same_run(theirs: dict[str, Any], recipe: Recipe) -> None:
    free = {"steps", "seconds", "log_every", "validate_every", "save_every", "compile"}
    ours = recipe.as_json()
    for key, value in ours.items():
        if key not in free and _plain(theirs.get(key)) != _plain(value):
            raise ConfigError(
                f"the run to resume has {key} = {theirs.get(key)!r}, the recipe {value!r}"
            )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _finish(step: Step, clock: Clock, folder: Path, journal: Journal, *, writes: bool) -> Path:
    recipe, path = step.recipe, folder / "weights.safetensors"
    result = validate(step)
    if result:
        journal.log(step.steps_done, clock, **result)
    if writes:
        save_state(step, clock, folder)
        with step.averaged() as network:
            training = {
                "recipe": recipe.as_json(),
                "seed": recipe.seed,
                "steps": step.steps_done,
                "seconds": round(clock.seconds, 1),
                "validation": result,
                **provenance(step.device),
            }
            save(path, network, training=training)
        journal.draw()
    return path


def _finite(value: float) -> bool:
    return value - value == 0


class _StopSignal:
    """Notices SIGTERM and SIGINT, so that the loop can end between two steps."""

    def __init__(self) -> None:
        self.asked = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: object) -> None:  # noqa: ARG002
        self.asked = True
