"""What a network answers to many small crops: the data from which its error bars are learned."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from musigma.datasets.catalog import Dataset, Item
from musigma.degradations.pairs import Pair
from musigma.evaluation.protocol import Protocol
from musigma.evaluation.restored_pairs import Progress, errors_name, read_pair
from musigma.functional.geometry import dihedral
from musigma.images.decoding import declared_size
from musigma.networks.black_box import BlackBox
from musigma.types import DataError

SMALLEST_PATCH = 16
"""Crops of fewer input pixels a side are mostly border."""


@dataclass(frozen=True)
class Answers:
    """Inputs, answers and targets of equal crops, ``(K, 3, H, W)`` each, in half precision.

    Half precision rounds by a tenth of an 8-bit level, far less than the errors to be learned.
    """

    degraded: Tensor
    mean: Tensor
    target: Tensor

    def root_mean_square_error(self) -> float:
        """Return the best constant sigma, at least half an 8-bit level and at most 0.5."""
        squares = [
            (mean.float() - target.float()).square().mean()
            for mean, target in zip(self.mean, self.target, strict=True)
        ]
        return float(torch.stack(squares).mean().sqrt().clamp(0.5 / 255, 0.5))

    def draw(self, batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Return a random batch, flipped or turned at random, in float32."""
        index = torch.randint(len(self.mean), (batch,), generator=generator)
        k = int(torch.randint(8, (), generator=generator))
        degraded, mean, target = (
            dihedral(part[index].float(), k) for part in (self.degraded, self.mean, self.target)
        )
        return degraded, mean, target


def collect_answers(
    network: BlackBox,
    dataset: Dataset,
    protocols: Sequence[Protocol],
    *,
    patch: int,
    count: int,
    seconds: float,
    generator: torch.Generator,
    progress: Progress | None = None,
) -> Answers:
    """Ask a network about random crops of degraded pictures.

    Pictures come in turn, and so do the protocols. A picture that is too small for a crop is left
    out.

    Args:
        network: What is asked.
        dataset: The pictures.
        protocols: How inputs are made.
        patch: Side of a crop of the input; `choose_patch` gives one that is not too large.
        count: Number of crops.
        seconds: Time after which no further crop is asked for.
        generator: Decides the order of the pictures and where the crops are.
        progress: Called before each crop with number, count and name.
    """
    items = [item for item in dataset.items if _side_of_input(item, network.scale) >= patch]
    order = torch.randperm(len(items), generator=generator).tolist()
    started = time.monotonic()
    crops: list[tuple[Tensor, Tensor, Tensor]] = []
    while not crops or (len(crops) < count and time.monotonic() - started < seconds):
        number = len(crops)
        item = items[order[number % len(items)]]
        if progress:
            progress(number, count, item.name)
        pair = read_pair(item, protocols[number % len(protocols)])
        degraded, target = _crop(pair, patch, network.scale, generator)
        with torch.inference_mode(), errors_name(item.target):
            mean = network.ask(degraded)
        crops.append((degraded.half(), mean.half(), target.half()))
    degraded, mean, target = (torch.cat(parts) for parts in zip(*crops, strict=True))
    return Answers(degraded, mean, target)


def choose_patch(dataset: Dataset, scale: int, *, largest: int) -> int:
    """Return a side of crops for which at least half of the pictures are large enough.

    Args:
        dataset: The pictures.
        scale: Size of a picture over that of the input.
        largest: The side that is wanted.
    """
    sides = sorted(_side_of_input(item, scale) for item in dataset.items)
    patch = min(largest, sides[len(sides) // 2])
    if patch < SMALLEST_PATCH:
        needed = SMALLEST_PATCH * scale
        raise DataError(
            f"most pictures of {dataset.name} have sides below {needed} pixels, too few for crops; "
            "give larger pictures"
        )
    return patch


def _side_of_input(item: Item, scale: int) -> int:
    declared = declared_size(item.target)
    return min(declared.height, declared.width) // scale


def _crop(pair: Pair, patch: int, scale: int, generator: torch.Generator) -> Pair:
    height, width = pair.degraded.shape[-2:]
    top, left = (
        int(torch.randint(side - patch + 1, (), generator=generator)) for side in (height, width)
    )
    bottom, right = top + patch, left + patch
    return Pair(
        pair.degraded[..., top:bottom, left:right],
        pair.target[..., scale * top : scale * bottom, scale * left : scale * right],
    )
