"""What a teacher predicts for the whole training images, computed once before the first step.

Asked in every step, a teacher costs about as much as the network that learns from it, and it sees
no more than a patch. Here it sees whole images. The grid of the input can lie on an image in
several ways, of which each has predictions of its own, so that patches may still begin anywhere.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace

import torch
from torch import Tensor

from musigma.datasets.patch_bank import Bank, grid_step
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
    scale, device = bank.degradation.scale, bank.device
    starts = range(0, scale, grid_step(scale))
    predictions = torch.empty(len(starts) ** 2, len(bank.values), dtype=torch.uint8, device=device)
    teacher = teacher.to(device, memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
    if device.type == "cuda":
        teacher = _in_half_precision(teacher, bank)
    num_done = 0
    for offsets, images in _stacks(bank):
        for number, (top, left) in enumerate((top, left) for top in starts for left in starts):
            predicted = _predicted(teacher, bank, images, top, left)
            for offset, image in zip(offsets, predicted, strict=True):
                flat = image.permute(1, 2, 0).reshape(-1)
                predictions[number, offset : offset + len(flat)] = flat
        num_done += len(offsets)
        if progress:
            progress(num_done, bank.num_images)
    return replace(bank, taught=predictions)


def _predicted(teacher: Network, bank: Bank, images: Tensor, top: int, left: int) -> Tensor:
    """Return the predictions for a grid that begins at a row and a column, as bytes.

    Images are mirrored at their borders, so that those of one size have inputs of one size,
    wherever the grid begins. A GPU takes a while to prepare for each new size.
    """
    scale = bank.degradation.scale
    height, width = images.shape[-2:]
    more = [-side % scale + scale for side in (height, width)]
    above, beside = -top % scale, -left % scale  # pixels of the grid that lie before the image
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
    _, images = next(_stacks(bank))
    side = 64 * bank.degradation.scale
    images = images[:4, :, :side, :side].float().div(255)
    degraded = bank.degradation(images, _no_draws(bank, images))
    copy = deepcopy(teacher).half()
    difference = (_ask(copy, degraded).float() - _ask(teacher, degraded)).abs().max()
    return copy if difference < 1 / 255 else teacher


def _no_draws(bank: Bank, images: Tensor) -> Tensor:
    return torch.zeros(len(images), bank.degradation.num_draws, device=images.device)


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
