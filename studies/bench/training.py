"""The time of a training step, beside plain PyTorch loops: medians of one run on one machine."""

import gc
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, RandomSampler

from musigma.datasets.patch_bank import Bank
from musigma.losses import Objective
from musigma.networks import Network, create, macs, num_params, with_sigma
from musigma.networks.model_card import on_meta
from musigma.training.recipe import DRAWN_SHAPES, Recipe, load_recipe
from musigma.training.setup import build_network, load_bank
from musigma.training.step import Step, network_input

Report = Callable[[str], None]
WARM_UP = 20
LOSS_STEPS = 10
"""Steps whose mean loss is compared, at the beginning and at the end."""


def bench_training(
    recipe: Recipe,
    bank: Bank,
    images: list[Tensor],
    *,
    device: torch.device,
    num_steps: int = 200,
    large_batch: int = 256,
    num_workers: int = 16,
    report: Report = lambda _: None,
) -> dict[str, Any]:
    """Time our step and the plain loops on the same data; return milliseconds and ratios.

    Args:
        recipe: Network, scale, batch and patch to time.
        bank: The training data, on the device.
        images: The same images as bytes, for the loop that reads files.
        device: Device to train on.
        num_steps: Steps to time after the warm-up.
        large_batch: A second, larger batch size.
        num_workers: Processes of the DataLoader.
        report: Called with a line of text for every timing.
    """
    timings: dict[str, dict[str, float]] = {}

    def note(name: str, recipe: Recipe, times: list[float]) -> None:
        timings[name] = _summary(recipe, times)
        report(f"{name}: {timings[name]['median_ms']} ms")

    plain = replace(recipe, objective="l1", sigma=False)
    note("plain loop", plain, time_plain(plain, _from_bank(plain, bank), device, num_steps))
    with tempfile.TemporaryDirectory() as folder:
        batches = _from_files(plain, images, Path(folder), num_workers)
        note("plain loop, DataLoader", plain, time_plain(plain, batches, device, num_steps))
    with_sigma = replace(recipe, objective="expected_l1 + 0.01 * sigma_l1", sigma=True)
    narrow = load_recipe("sigma").sigma_width  # of the weights that ship
    for name, variant in {
        "l1": plain,
        "expected_l1": replace(plain, objective="expected_l1"),
        "expected_l1 + sigma": with_sigma,
        "expected_l1 + narrow sigma": replace(with_sigma, sigma_width=narrow),
    }.items():
        note(name, variant, time_ours(variant, bank, device, num_steps))
    large = replace(plain, batch=large_batch)
    note(f"l1, batch {large_batch}", large, time_ours(large, bank, device, -(-num_steps // 4)))
    medians = {name: values["median_ms"] for name, values in timings.items()}
    return {
        "timings": timings,
        "times_faster_than_plain": medians["plain loop"] / medians["l1"],
        "times_faster_than_dataloader": medians["plain loop, DataLoader"] / medians["l1"],
        "expected_l1_over_l1": medians["expected_l1"] / medians["l1"],
        "sigma_over_l1": medians["expected_l1 + sigma"] / medians["l1"],
        "narrow_sigma_over_l1": medians["expected_l1 + narrow sigma"] / medians["l1"],
        "large_batch_tflops": timings[f"l1, batch {large_batch}"]["tflops"],
    }


def bench_networks(
    networks: Mapping[str, Mapping[str, Recipe]],
    *,
    device: torch.device,
    num_steps: int = 50,
    report: Report = lambda _: None,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Time the step of each network beside the plain loop; yield the name and its numbers.

    Images are drawn by the program, since the time of a step does not depend on them. A network
    that fails is reported with its error, and the others are still measured.

    Args:
        networks: By name, the recipes to measure by their objectives; the plain loop takes the
            first of them.
        device: Device to train on.
        num_steps: Steps to time after the warm-up.
        report: Called with a line of text for every network.
    """
    for name, recipes in networks.items():
        try:
            result = _bench_network(recipes, device, num_steps)
            report(f"{name}: {result['times_faster_than_plain']:.1f} times the plain loop")
        except Exception as error:  # noqa: BLE001  any error; the other networks are still measured
            result = {"error": " ".join(str(error).split())[:500]}
            report(f"{name} failed:\n{traceback.format_exc()}")
        yield name, result


def _bench_network(
    recipes: Mapping[str, Recipe], device: torch.device, num_steps: int
) -> dict[str, Any]:
    first = next(iter(recipes.values()))
    bank = drawn_bank(first, device)
    _forget_earlier_steps(device)
    plain = _summary(first, time_plain(first, _from_bank(first, bank), device, num_steps))
    plain |= {"memory_gib": _peak_memory(device)}
    ours = {text: measure_step(recipe, bank, device, num_steps) for text, recipe in recipes.items()}
    fastest = plain["median_ms"] / ours[first.objective]["median_ms"]
    return {
        "timings": {"plain loop": plain, **ours},
        "times_faster_than_plain": fastest,
        "params": num_params(meta_network(first)),
        "batch": first.batch,
        "patch": first.patch,
        "precision": first.precision,
        "compiled": first.compile,
    }


def drawn_bank(recipe: Recipe, device: torch.device) -> Bank:
    """Return a bank of images that are drawn by the program."""
    return load_bank(replace(recipe, data=(DRAWN_SHAPES,), shrink=()), device)


def measure_step(
    recipe: Recipe, bank: Bank, device: torch.device, num_steps: int
) -> dict[str, float]:
    """Train for some steps; return the time of a step, its memory, and how the loss fell."""
    _forget_earlier_steps(device)
    start = time.perf_counter()
    step = _prepared_step(recipe, bank, device)
    seconds = time.perf_counter() - start
    first = _mean_loss(step)
    times = _time(lambda: step(recipe.learning_rate), device, num_steps)
    step.read_loss(1)
    last = _mean_loss(step)
    return _summary(recipe, times) | {
        "preparation_s": round(seconds, 1),
        "memory_gib": _peak_memory(device),
        "first_loss": first,
        "last_loss": last,
    }


def _prepared_step(recipe: Recipe, bank: Bank, device: torch.device) -> Step:
    step = Step(recipe, build_network(recipe), Objective(recipe.objective), bank, device=device)
    step.prepare()
    return step


def _mean_loss(step: Step) -> float:
    """Train for some steps and return their mean loss."""
    for _ in range(LOSS_STEPS):
        step(step.recipe.learning_rate)
    return step.read_loss(LOSS_STEPS)


def _forget_earlier_steps(device: torch.device) -> None:
    torch._dynamo.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def _peak_memory(device: torch.device) -> float:
    """Return the most memory of the GPU that was in use, in GiB; nothing is counted on a CPU."""
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
    return round(peak / 2**30, 2)


def time_ours(recipe: Recipe, bank: Bank, device: torch.device, num_steps: int) -> list[float]:
    """Return the seconds of each of our steps."""
    step = _prepared_step(recipe, bank, device)
    return _time(lambda: step(recipe.learning_rate), device, num_steps)


def time_plain(
    recipe: Recipe, batches: Iterator[tuple[Tensor, Tensor]], device: torch.device, num_steps: int
) -> list[float]:
    """Return the seconds of each step of a plain loop: eager, float32 with TF32."""
    network = create(recipe.network, scale=recipe.scale, **recipe.settings).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=recipe.learning_rate)

    def step() -> None:
        degraded, target = (part.to(device, non_blocking=True) for part in next(batches))
        optimizer.zero_grad()
        loss = (network(degraded).mean - target).abs().mean()
        loss.backward()
        optimizer.step()

    with _tf32_allowed():
        return _time(step, device, num_steps)


@contextmanager
def _tf32_allowed() -> Iterator[None]:
    """Let float32 products use TF32 inside the block, as tutorials do."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def _time(step: Callable[[], None], device: torch.device, num_steps: int) -> list[float]:
    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    for _ in range(min(WARM_UP, num_steps)):
        step()
    wait()
    # Several steps between two waits, as in training, where nothing is waited for.
    group = max(1, num_steps // 20)
    times = []
    for _ in range(num_steps // group):
        start = time.perf_counter()
        for _ in range(group):
            step()
        wait()
        times.append((time.perf_counter() - start) / group)
    return times


def meta_network(recipe: Recipe) -> Network:
    """Return the network that a recipe trains, its sigma branch included, without values."""
    network = on_meta(recipe.network, scale=recipe.scale, **recipe.settings)
    with torch.device("meta"):
        return with_sigma(network, width=recipe.sigma_width) if recipe.sigma else network


def operations_of_step(recipe: Recipe) -> int:
    """Return the operations of a step: a forward pass, and twice as much backward.

    A multiply-add counts as two. What is not a convolution or a product of matrices is left out.
    """
    num_macs = macs(meta_network(recipe), height=recipe.patch, width=recipe.patch)
    return 6 * num_macs * recipe.batch


def _summary(recipe: Recipe, times: list[float]) -> dict[str, float]:
    median = statistics.median(times)
    return {
        "median_ms": round(median * 1e3, 4),
        "fastest_ms": round(min(times) * 1e3, 4),
        "slowest_ms": round(max(times) * 1e3, 4),
        "patches_per_second": round(recipe.batch / median, 1),
        "tflops": round(operations_of_step(recipe) / median / 1e12, 1),
    }


def _from_bank(recipe: Recipe, bank: Bank) -> Iterator[tuple[Tensor, Tensor]]:
    # Made before timing starts: choosing patches launches many small operations, which would slow
    # down a loop that already waits for the CPU.
    steps = [torch.tensor(number, device=bank.device) for number in range(WARM_UP)]
    made = [bank.sample(step, batch=recipe.batch, seed=recipe.seed) for step in steps]
    with_level = meta_network(recipe).takes_noise_level
    inputs = [network_input(patches, with_level=with_level).contiguous() for patches in made]
    targets = [patches.target.contiguous() for patches in made]
    return cycle(zip(inputs, targets, strict=True))


def _from_files(
    recipe: Recipe, images: list[Tensor], folder: Path, num_workers: int
) -> Iterator[tuple[Tensor, Tensor]]:
    files = _PairFiles(images, folder, recipe)
    loader = DataLoader(
        files,
        batch_size=recipe.batch,
        sampler=RandomSampler(files, replacement=True, num_samples=1000 * recipe.batch),
        num_workers=num_workers,
        pin_memory=torch.cuda.is_available(),
        persistent_workers=num_workers > 0,
    )
    while True:
        yield from loader


class _PairFiles(Dataset[tuple[Tensor, Tensor]]):
    """Pairs of PNG files, read, cropped and flipped one by one, as public trainers do it."""

    def __init__(self, images: list[Tensor], folder: Path, recipe: Recipe) -> None:
        self.folder, self.patch, self.scale = folder, recipe.patch, recipe.scale
        side = self.patch * self.scale
        fitting = [image for image in images if min(image.shape[1:]) >= side]
        self.count = len(fitting)
        with ThreadPoolExecutor() as pool:
            list(pool.map(self._write, range(self.count), fitting))

    def _write(self, number: int, image: Tensor) -> None:
        from musigma.degradations import Bicubic
        from musigma.degradations.pairs import make_pair
        from musigma.images.image_io import write_image

        whole = image[None].float() / 255
        low, target = make_pair(Bicubic(self.scale), whole, name=number)
        write_image(self.folder / f"{number}-low.png", low)
        write_image(self.folder / f"{number}-target.png", target)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        from PIL import Image

        low, target = (
            np.asarray(Image.open(self.folder / f"{number}-{part}.png").convert("RGB"))
            for part in ("low", "target")
        )
        top = int(torch.randint(low.shape[0] - self.patch + 1, ()))
        left = int(torch.randint(low.shape[1] - self.patch + 1, ()))
        turn, flip = int(torch.randint(4, ())), bool(torch.randint(2, ()))
        return tuple(  # type: ignore[return-value]
            self._cut(image, top * zoom, left * zoom, self.patch * zoom, turn, flip)
            for image, zoom in ((low, 1), (target, self.scale))
        )

    @staticmethod
    def _cut(image: Any, top: int, left: int, side: int, turn: int, flip: bool) -> Tensor:
        piece = np.rot90(image[top : top + side, left : left + side], turn)
        piece = piece[:, ::-1] if flip else piece
        return torch.from_numpy(piece.transpose(2, 0, 1).astype(np.float32) / 255)
