"""Training runs small enough for a test: a tiny network and pictures drawn by code."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from musigma.datasets.patch_bank import Bank, build_bank
from musigma.losses import Objective, phases
from musigma.model import load
from musigma.training.recipe import Recipe, make_recipe
from musigma.training.setup import build_network
from musigma.training.step import Step

CPU = torch.device("cpu")
torch.set_num_threads(1)  # with pictures as small as these, threads only wait for one another


def pictures(num: int = 3, height: int = 37, width: int = 31, channels: int = 3) -> list[Tensor]:
    """Gratings of different directions with some noise, uint8: smooth enough to be learnt."""
    generator = torch.Generator().manual_seed(1)
    down, right = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    phases = torch.linspace(0, 2, channels).view(-1, 1, 1)
    images = []
    for index in range(num):
        wave = torch.sin(0.3 * down * (index + 1) / num + 0.2 * right + phases)
        noise = torch.randn(wave.shape, generator=generator)
        images.append((128 + 90 * wave + 10 * noise).clamp(0, 255).byte())
    return images


def write_pictures(folder: Path, num: int = 3, height: int = 37, width: int = 31) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, image in enumerate(pictures(num, height, width)):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(folder / f"{number}.png")
    return folder


def small_values(**changes: Any) -> dict[str, Any]:
    """The keys of a small recipe; a budget or an objective given here replaces the usual one."""
    values: dict[str, Any] = {
        "network": "edsr-baseline",
        "scale": 2,
        "settings": {"num_blocks": 1, "width": 8},
        "sigma_width": 4,
        "objective": "l1",
        "data": ["nowhere"],
        "batch": 4,
        "patch": 8,
        "learning_rate": 1e-3,
        "ema": 0.9,
        "log_every": 5,
    }
    if "seconds" not in changes:
        values["steps"] = 20
    values |= changes
    values.setdefault("sigma", "sigma" in values["objective"])
    return values


def small_recipe(**changes: Any) -> Recipe:
    return make_recipe(small_values(**changes))


def write_recipe(path: Path, **changes: Any) -> Path:
    """Write a small recipe as TOML, whose plain values are those of JSON."""
    values = small_values(**changes)
    tables = {key: value for key, value in values.items() if isinstance(value, dict)}
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items() if key not in tables]
    for name, table in tables.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    path.write_text("\n".join(lines) + "\n")
    return path


def small_bank(recipe: Recipe, device: torch.device = CPU) -> Bank:
    images = pictures(channels=recipe.channels)
    return build_bank(images, degradation=recipe.degradation, patch=recipe.patch, device=device)


def small_step(recipe: Recipe, *, bank: Bank | None = None, device: torch.device = CPU) -> Step:
    objectives = [Objective(text) for text in phases(recipe.objective)]
    network = build_network(recipe)
    return Step(recipe, network, objectives, bank or small_bank(recipe, device), device=device)


def weights_of(step: Step) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in step.network.state_dict().items()}


def assert_same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    """Equal to the bit."""
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert torch.equal(value, theirs[name]), name


def weights_in(folder: Path) -> dict[str, Tensor]:
    return load(folder / "weights.safetensors").network.state_dict()


def send_signal_at(patch: pytest.MonkeyPatch, step: int, number: int = signal.SIGTERM) -> None:
    """Have the process sent a signal in the middle of a step."""
    call = Step.__call__

    def and_signal(self: Step, learning_rate: float) -> None:
        call(self, learning_rate)
        if self.steps_done == step:
            os.kill(os.getpid(), number)

    patch.setattr(Step, "__call__", and_signal)


def draw_from_one_stream(patch: pytest.MonkeyPatch) -> None:
    """Let processes that share a batch draw what one process would: each its part of one stream."""

    def seed_noise(self: Step) -> None:
        generator = torch.default_generator.manual_seed(1000 * self.recipe.seed + self.steps_done)
        share = self.recipe.batch // self.world
        side = self.recipe.patch * self.recipe.scale
        torch.randn(self.rank * share * self.recipe.channels * side**2, generator=generator)

    patch.setattr(Step, "_seed_noise", seed_noise)
