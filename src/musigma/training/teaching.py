"""What a teacher predicts for the whole training images, computed once before the first step.

Asked in every step, a teacher costs about as much as the network that learns from it, and it sees
no more than a patch. Here it sees whole images. The grid of the input can lie on an image in
several ways, of which each has predictions of its own, so that patches may still begin anywhere.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from musigma.datasets.patch_bank import Bank, grid_step
from musigma.functional.color import to_uint8
from musigma.networks import Network

MAX_PIXELS = 2**20
"""Pixels of the input that the teacher looks at at once."""

Progress = Callable[[int, int], None]


def taught(bank: Bank, teacher: Network, *, progress: Progress | None = None) -> Bank:
    """Return a bank that also holds what a teacher predicts; computed where the bank lies.

    Args:
        bank: Its degradation has no random part, so that an image has one input.
        teacher: Of the scale of the bank's degradation.
        progress: Called with the numbers of images that are done and of all images.
    """
    scale, device = bank.degradation.scale, bank.device
    starts = range(0, scale, grid_step(scale))
    predictions = torch.empty(len(starts) ** 2, len(bank.values), dtype=torch.uint8, device=device)
    teacher = teacher.to(device, memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
    num_done = 0
    for offsets, images in _stacks(bank):
        for number, (top, left) in enumerate((top, left) for top in starts for left in starts):
            predicted = images.clone()  # what lies outside the grid is in no patch
            _predict(teacher, bank, predicted, images, top, left)
            for offset, image in zip(offsets, predicted, strict=True):
                flat = image.permute(1, 2, 0).reshape(-1)
                predictions[number, offset : offset + len(flat)] = flat
        num_done += len(offsets)
        if progress:
            progress(num_done, bank.num_images)
    return replace(bank, taught=predictions)


def _predict(
    teacher: Network, bank: Bank, predicted: Tensor, images: Tensor, top: int, left: int
) -> None:
    """Write the predictions for a grid that begins at a row and a column."""
    scale = bank.degradation.scale
    height, width = (
        (side - start) // scale * scale
        for side, start in zip(images.shape[-2:], (top, left), strict=True)
    )
    inside = (..., slice(top, top + height), slice(left, left + width))
    target = images[inside].float().div(255).contiguous(memory_format=torch.channels_last)
    draws = torch.zeros(len(images), bank.degradation.num_draws, device=images.device)
    # Half precision has 11 bits, enough for bytes; bfloat16 has 8.
    half = images.device.type == "cuda"
    with torch.inference_mode(), torch.autocast(images.device.type, torch.float16, enabled=half):
        mean, _ = teacher(bank.degradation(target, draws))
    predicted[inside] = to_uint8(mean.float())


def _stacks(bank: Bank) -> Iterator[tuple[list[int], Tensor]]:
    """Yield images of one size together, ``(N, C, H, W)``, with where each begins in the bank."""
    channels = bank.orders.shape[1]
    same: dict[tuple[int, int], list[int]] = defaultdict(list)
    sizes = zip(bank.heights.tolist(), bank.widths.tolist(), bank.offsets.tolist(), strict=True)
    for height, width, offset in sizes:
        same[height, width].append(offset)
    for (height, width), offsets in same.items():
        most = max(1, MAX_PIXELS * bank.degradation.scale**2 // (height * width))
        for first in range(0, len(offsets), most):
            some = offsets[first : first + most]
            size = height * width * channels
            flat = torch.stack([bank.values[offset : offset + size] for offset in some])
            yield some, flat.view(-1, height, width, channels).permute(0, 3, 1, 2)
