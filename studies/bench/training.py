"""The time of a training step, beside plain PyTorch loops: medians of one run on one machine."""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
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
from musigma.networks import create, macs
from musigma.training.recipe import Recipe, load_recipe
from musigma.training.setup import build_network
from musigma.training.step import Step

Report = Callable[[str], None]
WARM_UP = 20


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


def time_ours(recipe: Recipe, bank: Bank, device: torch.device, num_steps: int) -> list[float]:
    """Return the seconds of each of our steps."""
    step = Step(recipe, build_network(recipe), Objective(recipe.objective), bank, device=device)
    step.prepare()
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


def _summary(recipe: Recipe, times: list[float]) -> dict[str, float]:
    median = statistics.median(times)
    with torch.device("meta"):
        network = create(recipe.network, scale=recipe.scale, **recipe.settings)
    # Forward, and twice as much backward; two operations to a multiply-add.
    operations = 6 * macs(network, height=recipe.patch, width=recipe.patch) * recipe.batch
    return {
        "median_ms": round(median * 1e3, 4),
        "fastest_ms": round(min(times) * 1e3, 4),
        "slowest_ms": round(max(times) * 1e3, 4),
        "patches_per_second": round(recipe.batch / median, 1),
        "tflops": round(operations / median / 1e12, 1),
    }


def _from_bank(recipe: Recipe, bank: Bank) -> Iterator[tuple[Tensor, Tensor]]:
    # Made before timing starts: choosing patches launches many small operations, which would slow
    # down a loop that already waits for the CPU.
    steps = [torch.tensor(number, device=bank.device) for number in range(WARM_UP)]
    made = [bank.sample(step, batch=recipe.batch, seed=recipe.seed) for step in steps]
    return cycle([(patches.degraded.contiguous(), patches.target.contiguous()) for patches in made])


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
