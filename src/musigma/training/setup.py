"""What is made before the first step: processes, the run to resume, data, network."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed

from musigma.datasets.catalog import Dataset, Item, find_dataset
from musigma.datasets.drawn_pictures import draw_images
from musigma.datasets.patch_bank import Bank, build_bank, load_images, load_pairs
from musigma.degradations.pairs import PAIRS
from musigma.functional.resize import resize
from musigma.losses import Objective, phases
from musigma.model import Model, load
from musigma.networks import Network, WithSigma, create, warm_start, with_sigma
from musigma.training.checkpoint import checkpoints, is_plain, load_newest
from musigma.training.recipe import DRAWN_SHAPES, Recipe, default_values
from musigma.training.run_log import RunLog
from musigma.training.schedule import Clock
from musigma.training.step import Step
from musigma.training.teaching import taught
from musigma.types import ConfigError, DataError, MusigmaError, first_line, short_repr

CHANGEABLE = {
    *("steps", "seconds", "log_every", "validate_every", "validations", "save_every", "compile")
}
"""The keys of a recipe that may differ when a run is resumed."""

BANK_KEYS = (
    *("data", "shrink", "scale", "patch", "channels", "swap_channels"),
    *("degrade", "low", "noise_std", "drawn_every", "candidates", "teacher", "teach_once"),
)
"""The keys of a recipe that decide its patch bank. Runs that agree in them can share one."""

CHECKPOINT_KEYS = ("step", "spent", "rate_factor", "recipe")
"""What a checkpoint of a run holds."""

NUM_DRAWN, DRAWN_SIZE = 24, 128
"""The training set that needs no files: how many pictures, and the side of each."""

NUM_DRAWN_BESIDE, NUM_DRAWN_ON_GPU, DRAWN_SIZE_BESIDE = 32, 512, 256
"""Drawn pictures beside photographs: their number, that on a GPU, which is quicker; their side."""

log = logging.getLogger(__name__)


@contextmanager
def join_processes(device: torch.device) -> Iterator[tuple[int, int]]:
    """Join the other processes that torchrun started, if any; yield the rank and their number."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield 0, 1
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    # Gloo beside NCCL: processes decide on the hosts whether to continue, without waiting for GPUs.
    distributed.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        yield distributed.get_rank(), world
    finally:
        distributed.destroy_process_group()


def find_run(recipe: Recipe, folder: Path, *, world: int, resume: bool) -> dict[str, Any] | None:
    """Return the checkpoint to continue from, or `None` for a new run; refuse what cannot run."""
    if recipe.batch % world:
        raise ConfigError(f"a batch of {recipe.batch} cannot be shared by {world} processes")
    if recipe.validation:
        find_dataset(recipe.validation)
    if not checkpoints(folder):
        return None
    if not resume:
        raise ConfigError(
            f"{folder} holds a run already; continue it with --resume or choose another folder"
        )
    content = load_newest(folder)
    if content is None:
        raise DataError(f"every checkpoint in {folder} is damaged; start again in another folder")
    missing = [key for key in CHECKPOINT_KEYS if key not in content]
    if missing or not isinstance(content["recipe"], dict) or not is_plain(content["recipe"]):
        raise DataError(
            f"the checkpoint in {folder} was not written by this version of musigma; start again "
            "in another folder"
        )
    _check_same_run(content["recipe"], recipe.as_json())
    return content


def set_up(
    recipe: Recipe,
    content: dict[str, Any] | None,
    run_log: RunLog,
    *,
    device: torch.device,
    rank: int = 0,
    world: int = 1,
    bank: Bank | None = None,
) -> tuple[Step, Clock]:
    """Make a step that is ready to run, at the beginning or where a checkpoint was written.

    Args:
        recipe: What to train.
        content: The checkpoint to continue from.
        run_log: Shows how the data is loaded.
        device: Where to compute.
        rank: Number of this process.
        world: How many processes share a batch.
        bank: The training data, if it is loaded already.
    """
    teacher = load_weights(recipe.teacher, recipe.scale).network if recipe.teacher else None
    network = build_network(recipe).to(device)
    _check_runs(network, recipe)
    step = Step(
        recipe,
        network,
        [Objective(text, teacher=teacher) for text in phases(recipe.objective)],
        bank or load_bank(recipe, device, run_log),
        device=device,
        rank=rank,
        world=world,
    )
    clock = Clock(recipe)
    if content is not None:
        _resume(step, clock, content)
        run_log.note(f"resumed at step {step.steps_done}")
    step.prepare()
    return step, clock


def _resume(step: Step, clock: Clock, content: dict[str, Any]) -> None:
    try:
        step.load_state(content["step"])
    except (DataError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"the checkpoint does not fit the recipe: {reason}") from error
    spent, factor = content["spent"], content["rate_factor"]
    is_clock = all(isinstance(number, int | float) for number in (spent, factor))
    if step.steps_done < 0 or not (is_clock and 0 <= spent < 1e15 and 0 < factor <= 1):
        raise DataError("the checkpoint does not fit the recipe: no run has such a clock")
    clock.spent, clock.rate_factor = float(spent), float(factor)


def build_network(recipe: Recipe) -> Network:
    """Build a recipe's network with its initial weights."""
    network = _create(recipe)
    if not any(weight.requires_grad for weight in network.parameters()):
        raise ConfigError(f"{recipe.network} has no weights to train; choose another network")
    channels = network.in_channels - network.takes_noise_level
    if recipe.channels != channels:
        raise ConfigError(
            f"{recipe.network} takes images of {channels} channels; set channels = {channels}"
        )
    if recipe.start_from:
        source = load_weights(recipe.start_from, recipe.scale, any_scale=True)
        new = warm_start(network, source.network)
        log.info("started from %s; new: %s", recipe.start_from, ", ".join(new) or "nothing")
        if recipe.keep_mean:
            _keep_mean(network, new)
    return network.train()


def _check_runs(network: Network, recipe: Recipe) -> None:
    """Refuse a network that can be built, but not run, before the data are loaded."""
    side, device = min(recipe.patch, 16), next(network.parameters()).device
    network.eval()  # a trial must not change the averages of batch norms
    try:
        with torch.no_grad():
            network(torch.zeros(1, network.in_channels, side, side, device=device))
    except Exception as error:  # settings that do not fit one another raise anything
        raise ConfigError(
            f"{recipe.network} cannot be run with settings = {short_repr(dict(recipe.settings))} "
            f"and patches of {side} pixels ({type(error).__name__}: {first_line(error)})"
        ) from error
    network.train()


def load_weights(name: str, scale: int, *, any_scale: bool = False) -> Model:
    """Load a model for a scale.

    Args:
        name: A registered name or a weights file. Released files of some networks serve every
            scale; they are loaded for this one.
        scale: Zoom factor.
        any_scale: Whether a file of another scale is loaded as well, as weights to start from.
    """
    try:
        return load(name, scale=scale)
    except MusigmaError:
        if not any_scale or not Path(name).is_file():
            raise
        with suppress(MusigmaError):
            return load(name)
        raise  # the first error: the file is damaged, or serves several scales but not this one


def _create(recipe: Recipe) -> Network:
    """Build the network with random weights that follow from the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        network = create(recipe.network, scale=recipe.scale, **recipe.settings)
        return with_sigma(network, width=recipe.sigma_width) if recipe.sigma else network


def _keep_mean(network: Network, new: list[str]) -> None:
    assert isinstance(network, WithSigma)
    missing = [name for name in new if name.startswith("base.")]
    if missing:
        raise ConfigError(
            f"keep_mean: the weights to start from lack {len(missing)} of the network's, such as "
            f"{missing[0]!r}; give the network, scale and settings they were trained with"
        )
    network.base.requires_grad_(requires_grad=False)


def training_data(recipe: Recipe) -> Dataset:
    """Return the files of all sets of a recipe as one set; images that are drawn have no files."""
    sets = _training_sets(recipe)
    items = tuple(
        Item(f"{dataset.name}/{item.name}", item.target, item.degraded)
        for dataset in sets
        for item in dataset.items
    )
    return Dataset("+".join(dataset.name for dataset in sets) or DRAWN_SHAPES, items)


def _training_sets(recipe: Recipe) -> list[Dataset]:
    if recipe.degrade != PAIRS:
        return [find_dataset(name) for name in recipe.data if name != DRAWN_SHAPES]
    inputs = recipe.low or (None,) * len(recipe.data)
    return [
        find_dataset(name, scale=recipe.scale, degraded=low)
        for name, low in zip(recipe.data, inputs, strict=True)
    ]


def load_bank(recipe: Recipe, device: torch.device, run_log: RunLog | None = None) -> Bank:
    """Load a recipe's training images, onto the GPU where they fit into half of its free memory."""
    images = load_training_images(recipe, run_log)
    images += [shrunk(image, factor, device) for factor in recipe.shrink for image in images]
    num_bytes = sum(image.numel() for image in images)
    if device.type == "cuda" and num_bytes > 0.5 * torch.cuda.mem_get_info(device)[0]:
        device = torch.device("cpu")
    drawn: list[Tensor] = []
    if recipe.drawn_every:
        drawn = draw_images(
            NUM_DRAWN_ON_GPU if device.type == "cuda" else NUM_DRAWN_BESIDE,
            size=max(DRAWN_SIZE_BESIDE, recipe.patch * recipe.scale),
            channels=recipe.channels,
            device=device,
        )
    bank = build_bank(
        images,
        degradation=recipe.degradation,
        patch=recipe.patch,
        device=device,
        swap_channels=recipe.swap_channels,
        drawn=drawn,
        drawn_every=recipe.drawn_every,
        candidates=recipe.candidates,
    )
    if recipe.teach_once:
        teacher = load_weights(recipe.teacher, recipe.scale).network
        bank = taught(bank, teacher, progress=run_log.loading if run_log else None)
    return bank


def load_training_images(recipe: Recipe, run_log: RunLog | None = None) -> list[Tensor]:
    """Read or draw the images of a recipe, uint8 ``(C, H, W)``; pairs have twice the channels."""
    if DRAWN_SHAPES in recipe.data:
        return draw_images(NUM_DRAWN, size=DRAWN_SIZE, channels=recipe.channels)
    items = training_data(recipe).items
    progress = run_log.loading if run_log else None
    if recipe.degrade == PAIRS:
        files = [(_input_of(item), item.target) for item in items]
        return load_pairs(
            files, num_channels=recipe.channels, scale=recipe.scale, progress=progress
        )
    paths = [item.target for item in items]
    return list(load_images(paths, num_channels=recipe.channels, progress=progress))


def _input_of(item: Item) -> Path:
    if item.degraded is None:
        raise DataError(
            f"{item.name} has no input: pairs are read from a folder LR beside HR, or from the "
            "folders that low names"
        )
    return item.degraded


def shrunk(image: Tensor, factor: float, device: torch.device) -> Tensor:
    """Return a smaller copy of a uint8 image ``(C, H, W)``, computed on a device."""
    height, width = (max(1, round(side * factor)) for side in image.shape[1:])
    return resize(image[None].to(device), size=(height, width))[0].cpu()


def _check_same_run(saved: dict[str, Any], ours: dict[str, Any]) -> None:
    # A run that was saved before a key existed has used the default of this key.
    before = default_values() | saved
    for key, value in ours.items():
        if key not in CHANGEABLE and before.get(key) != value:
            saved_value = short_repr(before.get(key))
            raise ConfigError(
                f"the run to resume has {key} = {saved_value}, the recipe {short_repr(value)}"
            )
