"""What has to stand before the first step: processes, the run to go on with, data, network."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed

from musigma.datasets.catalog import Dataset, Item, find_dataset
from musigma.datasets.patch_bank import Bank, build_bank, load_images
from musigma.functional.resize import resize
from musigma.losses import Objective
from musigma.model import load
from musigma.networks import Network, WithSigma, create, warm_start, with_sigma
from musigma.training.checkpoint import checkpoints, load_newest
from musigma.training.recipe import Recipe, default_values
from musigma.training.run_log import Journal
from musigma.training.schedule import Clock
from musigma.training.step import Step
from musigma.types import ConfigError, DataError

CHANGEABLE = {"steps", "seconds", "log_every", "validate_every", "save_every", "compile"}
"""What a resumed run may have different from the run it goes on with."""

WHAT_A_BANK_DEPENDS_ON = ("data", "shrink", "scale", "patch", "channels", "swap_channels")
"""Runs that agree in these can share one."""

log = logging.getLogger(__name__)


@contextmanager
def processes(device: torch.device) -> Iterator[tuple[int, int]]:
    """Join the other processes that torchrun started, if any; give rank and number."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield 0, 1
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    # Gloo beside NCCL: whether to go on is agreed upon by the hosts, without a wait for the GPUs.
    distributed.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        yield distributed.get_rank(), world
    finally:
        distributed.destroy_process_group()


def find_run(recipe: Recipe, folder: Path, *, world: int, resume: bool) -> dict[str, Any] | None:
    """Return the checkpoint to go on from, or `None` for a new run; refuse what cannot be run."""
    if recipe.batch % world:
        raise ConfigError(f"a batch of {recipe.batch} cannot be shared by {world} processes")
    if recipe.validation:
        find_dataset(recipe.validation)
    if not checkpoints(folder):
        return None
    if not resume:
        raise ConfigError(f"{folder} holds a run already; go on with --resume or choose another")
    content = load_newest(folder)
    if content is None:
        raise DataError(f"every checkpoint in {folder} is damaged; start anew in another folder")
    _check_same_run(content["recipe"], recipe.as_json())
    return content


def set_up(
    recipe: Recipe,
    content: dict[str, Any] | None,
    journal: Journal,
    *,
    device: torch.device,
    rank: int = 0,
    world: int = 1,
    bank: Bank | None = None,
) -> tuple[Step, Clock]:
    """Make a step that is ready, at its beginning or where it was left, loading data if need be."""
    teacher = load(recipe.teacher).network if recipe.teacher else None
    step = Step(
        recipe,
        build_network(recipe),
        Objective(recipe.objective, teacher=teacher),
        bank or load_bank(recipe, device, journal),
        device=device,
        rank=rank,
        world=world,
    )
    clock = Clock(recipe)
    if content is not None:
        step.load_state(content["step"])
        clock.spent, clock.slower = content["spent"], content["slower"]
        journal.note(f"resumed at step {step.steps_done}")
    step.prepare()
    return step, clock


def build_network(recipe: Recipe) -> Network:
    """Build a recipe's network with its initial weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        network = create(recipe.network, scale=recipe.scale, **recipe.settings)
        if recipe.sigma:
            network = with_sigma(network, width=recipe.sigma_width)
    if not any(weight.requires_grad for weight in network.parameters()):
        raise ConfigError(f"{recipe.network} has no weights to train; choose another network")
    channels = network.in_channels - network.takes_noise_level
    if recipe.channels != channels:
        raise ConfigError(
            f"{recipe.network} takes images of {channels} channels; set channels = {channels}"
        )
    if recipe.start_from:
        # A name means the shipped weights of the same scale; a file may be of another.
        scale = None if Path(recipe.start_from).is_file() else recipe.scale
        left = warm_start(network, load(recipe.start_from, scale=scale).network)
        log.info("started from %s; new: %s", recipe.start_from, ", ".join(left) or "nothing")
        if recipe.keep_mean:
            _keep_mean(network, left)
    return network.train()


def _keep_mean(network: Network, left: list[str]) -> None:
    assert isinstance(network, WithSigma)
    new = [name for name in left if name.startswith("base.")]
    if new:
        raise ConfigError(
            f"keep_mean: the weights to start from lack {len(new)} of the network's, such as "
            f"{new[0]!r}; give the network, scale and settings they were trained with"
        )
    network.base.requires_grad_(requires_grad=False)


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
    images += [shrunk(image, factor, device) for factor in recipe.shrink for image in images]
    total = sum(image.numel() for image in images)
    place = device
    if device.type == "cuda" and total > 0.5 * torch.cuda.mem_get_info(device)[0]:
        place = torch.device("cpu")
    return build_bank(
        images,
        degradation=recipe.degradation(),
        patch=recipe.patch,
        device=place,
        swap_channels=recipe.swap_channels,
    )


def shrunk(image: Tensor, factor: float, device: torch.device) -> Tensor:
    """Return a smaller copy of a uint8 image ``(C, H, W)``, computed on a device."""
    height, width = (max(1, round(side * factor)) for side in image.shape[1:])
    return resize(image[None].to(device), size=(height, width))[0].cpu()


def _check_same_run(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    # A run from before a key was there went on as the key does by default.
    before = default_values() | theirs
    for key, value in ours.items():
        if key not in CHANGEABLE and before[key] != value:
            raise ConfigError(
                f"the run to resume has {key} = {before[key]!r}, the recipe {value!r}"
            )
