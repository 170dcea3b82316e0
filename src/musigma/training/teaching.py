"""What a teacher predicts for the whole training images, computed once before the first step.

Asked in every step, a teacher costs about as much as the network that learns from it, and it sees
no more than a patch. Here it sees whole images. The grid of the input can lie on an image in
several ways. Each image has one of them, on which its patches begin.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from musigma.datasets.patch_bank import Bank, grid_start
from musigma.functional.color import to_uint8
from musigma.functional.geometry import pad
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
    predictions, device = torch.empty_like(bank.values), bank.device
    teacher = teacher.to(device, memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
    if device.type == "cuda":
        teacher = _in_half_precision(teacher, bank)
    num_done = 0
    for stack in _stacks(bank):
        for offset, image in zip(stack.offsets, _predicted(teacher, bank, stack), strict=True):
            flat = image.permute(1, 2, 0).reshape(-1)
            predictions[offset : offset + len(flat)] = flat
        num_done += len(stack.offsets)
        if progress:
            progress(num_done, bank.num_images)
    return replace(bank, taught=predictions)


class _Stack(NamedTuple):
    """Images of one size whose inputs lie on them alike.

    Attributes:
        offsets: Where each begins in the bank.
        images: ``(N, C, H, W)``, as bytes.
        start: Row and column of the first whole pixel of the input.
    """

    offsets: list[int]
    images: Tensor
    start: tuple[int, int]


def _predicted(teacher: Network, bank: Bank, stack: _Stack) -> Tensor:
    """Return the predictions for a stack, as bytes.

    Images are mirrored at their borders, so that those of one size have inputs of one size,
    wherever the grid begins. A GPU takes a while to prepare for each new size.
    """
    scale, images = bank.degradation.scale, stack.images
    height, width = images.shape[-2:]
    more = [-side % scale + scale for side in (height, width)]
    above, beside = (-start % scale for start in stack.start)  # pixels before the image
    whole = pad(
        images.float().div(255),
        (beside, more[1] - beside, above, more[0] - above),
        mode="symmetric",
    )
    mean = _ask(teacher, bank.degradation(whole, _no_draws(bank, images)))
    return to_uint8(mean.float())[..., above : above + height, beside : beside + width]


def _ask(teacher: Network, degraded: Tensor) -> Tensor:
    dtype = next(teacher.parameters(), degraded).dtype
    with torch.inference_mode():
        mean: Tensor = teacher(degraded.to(dtype, memory_format=torch.channels_last))[0]
    return mean


def _in_half_precision(teacher: Network, bank: Bank) -> Network:
    """Return a copy of a teacher in half precision, unless its predictions differ by a level."""
    side = 64 * bank.degradation.scale
    images = next(_stacks(bank)).images[:4, :, :side, :side].float().div(255)
    degraded = bank.degradation(images, _no_draws(bank, images))
    copy = deepcopy(teacher).half()
    difference = (_ask(copy, degraded).float() - _ask(teacher, degraded)).abs().max()
    return copy if difference < 1 / 255 else teacher


def _no_draws(bank: Bank, images: Tensor) -> Tensor:
    return torch.zeros(len(images), bank.degradation.num_draws, device=images.device)


def _stacks(bank: Bank) -> Iterator[_Stack]:
    """Yield all images of a bank, as many at once as the teacher looks at."""
    channels, scale = bank.orders.shape[1], bank.degradation.scale
    numbers = torch.arange(bank.num_images)
    columns = (bank.heights, bank.widths, *grid_start(numbers, scale), bank.offsets)
    same: dict[tuple[int, int, int, int], list[int]] = defaultdict(list)
    for height, width, top, left, offset in zip(*(c.tolist() for c in columns), strict=True):
        same[height, width, top, left].append(offset)
    for (height, width, top, left), offsets in same.items():
        most = max(1, MAX_PIXELS * scale**2 // (height * width))
        for first in range(0, len(offsets), most):
            some = offsets[first : first + most]
            size = height * width * channels
            flat = torch.stack([bank.values[offset : offset + size] for offset in some])
            images = flat.view(-1, height, width, channels).permute(0, 3, 1, 2)
            yield _Stack(some, images, (top, left))
