"""The bank: whole training images as bytes in memory, from which random patches are gathered.

A patch is chosen by a hash of (seed, step, number in the batch), not by a generator that has to be
carried along. So a resumed run goes on with the very patches it would have had, a CPU and a GPU
take the same ones, and several processes share a batch by taking different numbers of it.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from musigma.datasets.detail_table import DetailTable, build_table
from musigma.degradations import Degradation
from musigma.degradations.pairs import StoredInput, match_pair, stack_pair
from musigma.functional.color import match_channels, to_uint8
from musigma.functional.hashing import below, splitmix64, uniform
from musigma.images.image_io import read_image
from musigma.types import DataError, ImageError

Progress = Callable[[int, int], None]


class Patches(NamedTuple):
    """A batch.

    Attributes:
        degraded: Input of the network, ``(N, C, h, w)``.
        target: What the network should return, ``(N, C, scale h, scale w)``.
        noise_level: Standard deviation of the noise of each patch in 8-bit levels, ``(N,)``, where
            white noise is all that was done to it; else `None`.
        counted: 1 where the loss counts and 0 elsewhere, as the target; `None` for everywhere.
        taught: What a teacher predicts for the input, as the target, where the bank holds it.
    """

    degraded: Tensor
    target: Tensor
    noise_level: Tensor | None
    counted: Tensor | None = None
    taught: Tensor | None = None


class RawPatches(NamedTuple):
    """What patches are made of.

    Attributes:
        pixels: Targets and their margins as bytes, ``(N, H, W, C)``.
        draws: Uniform numbers in ``[0, 1)`` that decide the degradation, ``(N, num_draws)``.
        taught: Predictions of a teacher as bytes, without margins; empty if the bank has none.
    """

    pixels: Tensor
    draws: Tensor
    taught: Tensor


@dataclass(frozen=True, kw_only=True)
class Bank:
    """Images on one device, flattened to bytes in the order row, column, channel.

    Input patches are not stored. They are made from wherever a patch happens to lie: given those of
    one grid alone, a network learns the pictures by heart (docs/training.md).

    Attributes:
        values: The bytes of all images.
        offsets: Where each image begins.
        heights: Of each image.
        widths: Of each image.
        ends: Running sum of their pixels, by which an image is chosen.
        patch: Side of an input patch.
        orders: The orders in which the channels may come, ``(K, C)``.
        degradation: Makes an input from its target.
        num_drawn: How many of the images were drawn; they are the last ones.
        drawn_every: One patch in this many comes from them.
        candidates: Places that are drawn for a patch, of which the most detailed is taken.
        detail: Of each place, where there are several candidates.
        taught: What a teacher predicts for every image, as `values`; `None` without a teacher. With
            it the patches of an image begin on its `grid_start`.
    """

    values: Tensor
    offsets: Tensor
    heights: Tensor
    widths: Tensor
    ends: Tensor
    patch: int
    orders: Tensor
    degradation: Degradation
    num_drawn: int = 0
    drawn_every: int = 1
    candidates: int = 1
    detail: DetailTable | None = None
    taught: Tensor | None = None

    @property
    def num_images(self) -> int:
        """How many images the bank holds."""
        return len(self.ends)

    @property
    def num_bytes(self) -> int:
        """Memory the images take."""
        return self.values.numel()

    @property
    def device(self) -> torch.device:
        """Where the images lie."""
        return self.ends.device

    def sample(self, step: Tensor, *, batch: int, seed: int | Tensor, first: int = 0) -> Patches:
        """Make the patches of a step, each turned or mirrored in one of eight ways.

        An image is as likely as it has pixels, and in an image every position, unless the most
        detailed of several candidates is taken. Drawn images have a share of their own. Built from
        tensor operations alone, so that the whole of it can be compiled and captured.

        Args:
            step: Number of the step, an integer tensor on the bank's device.
            batch: How many patches.
            seed: Which of the random sequences.
            first: Number of the first patch within the step; other processes take other numbers.

        Returns:
            The patches, float32 in ``[0, 1]`` and in channels-last order.
        """
        raw = self.cut(step, batch=batch, seed=seed, first=first)
        return to_patches(raw, self.degradation)

    def cut(self, step: Tensor, *, batch: int, seed: int | Tensor, first: int = 0) -> RawPatches:
        """Gather what `to_patches` makes the patches of; arguments as those of `sample`."""
        numbers = torch.arange(first, first + batch, device=self.device)
        key = splitmix64(splitmix64(step + (seed << 32)) + numbers)
        turn = splitmix64(key) & 7
        image, row, column = self._best_place(key, numbers)
        margin = self.degradation.margin
        order = below(len(self.orders), splitmix64(key + 4))
        where = self._positions(
            image,
            row - margin,
            column - margin,
            turn=turn,
            order=order,
            size=self._side + 2 * margin,
        )
        draws = uniform(key, self.degradation.num_draws, first=5)
        inner = slice(margin, margin + self._side)
        taught = self.values[:0] if self.taught is None else self.taught[where[:, inner, inner]]
        return RawPatches(self.values[where], draws, taught)

    @property
    def _side(self) -> int:
        return self.patch * self.degradation.scale

    def _best_place(self, key: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return image, row and column of a patch: the most detailed of several candidates."""
        more = torch.arange(1, self.candidates, device=self.device) << 40
        keys = torch.cat([key.unsqueeze(1), splitmix64(key.unsqueeze(1) + more)], dim=1)
        places = self._place(keys, numbers.unsqueeze(1))
        if self.detail is None:
            best = torch.zeros_like(numbers).unsqueeze(1)
        else:
            best = self.detail.at(*places).argmax(1, keepdim=True)
        image, row, column = (values.gather(1, best).squeeze(1) for values in places)
        return image, row, column

    def _place(self, key: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        pixel = below(self._num_photographed, key)
        if self.num_drawn:
            drawn = self._num_photographed + below(self.ends[-1] - self._num_photographed, key)
            pixel = torch.where((numbers + 1) % self.drawn_every == 0, drawn, pixel)
        image = torch.searchsorted(self.ends, pixel, right=True)
        grid = self.degradation.grid
        top = left = torch.zeros_like(image)
        if self.taught is not None:
            grid = self.degradation.scale
            top, left = grid_start(image, grid)
        row = top + self._start(self.heights[image] - top, splitmix64(key + 2), grid)
        column = left + self._start(self.widths[image] - left, splitmix64(key + 3), grid)
        return image, row, column

    @property
    def _num_photographed(self) -> Tensor:
        """How many pixels the images have that were not drawn."""
        return self.ends[-1 - self.num_drawn]

    def _start(self, length: Tensor, key: Tensor, grid: int) -> Tensor:
        """Draw where a patch begins in a length; one that does not fit is mirrored at the end."""
        return below(((length - self._side) // grid + 1).clamp(min=1), key) * grid

    def _positions(
        self, image: Tensor, row: Tensor, column: Tensor, *, turn: Tensor, order: Tensor, size: int
    ) -> Tensor:
        """Return where in the bytes of the bank each value of the patches is."""
        side = torch.arange(size, device=self.device)
        down, right = side.view(1, -1, 1), side.view(1, 1, -1)
        bit = [((turn >> k) & 1).bool().view(-1, 1, 1) for k in range(3)]
        down, right = torch.where(bit[0], right, down), torch.where(bit[0], down, right)
        down = torch.where(bit[1], size - 1 - down, down)
        right = torch.where(bit[2], size - 1 - right, right)
        height, width = (sides[image].view(-1, 1, 1) for sides in (self.heights, self.widths))
        down = _mirrored(row.view(-1, 1, 1) + down, height)
        right = _mirrored(column.view(-1, 1, 1) + right, width)
        channel = self.orders[order]
        pixel = self.offsets[image].view(-1, 1, 1) + (down * width + right) * channel.shape[1]
        return pixel.unsqueeze(-1) + channel.view(len(channel), 1, 1, -1)


def grid_start(image: Tensor, scale: int) -> tuple[Tensor, Tensor]:
    """Return row and column of the first whole pixel of the input, on images by their numbers.

    A teacher is asked about one input of each image. All ways in which the grid of the input can
    lie on an image are as frequent, so that a bank of many images has patches of every way.

    Example:
        >>> [values.tolist() for values in grid_start(torch.arange(5), 2)]
        [[0, 1, 0, 1, 0], [0, 0, 1, 1, 0]]
    """
    return image % scale, image // scale % scale


def to_patches(raw: RawPatches, degradation: Degradation) -> Patches:
    """Degrade targets with their margins, and cut the margins off."""
    margin, scale = degradation.margin, degradation.scale
    whole = raw.pixels.float().div(255).permute(0, 3, 1, 2)
    degraded, target, counted = degradation.training_pair(whole, raw.draws)
    degraded = _without_border(degraded, margin // scale)
    target = _without_border(target, margin)
    return Patches(
        degraded.contiguous(memory_format=torch.channels_last),
        target.contiguous(memory_format=torch.channels_last),
        degradation.noise_level(raw.draws),
        None if counted is None else _without_border(counted, margin),
        raw.taught.float().div(255).permute(0, 3, 1, 2) if len(raw.taught) else None,
    )


def _without_border(image: Tensor, border: int) -> Tensor:
    height, width = image.shape[-2:]
    return image[..., border : height - border, border : width - border]


def _mirrored(position: Tensor, length: Tensor) -> Tensor:
    """Return a position inside the image for any outside, mirrored as imresize does at borders."""
    position = torch.remainder(position, 2 * length)
    return torch.minimum(position, 2 * length - 1 - position)


def build_bank(
    images: Iterable[Tensor],
    *,
    degradation: Degradation,
    patch: int,
    device: torch.device,
    swap_channels: bool = False,
    drawn: Sequence[Tensor] = (),
    drawn_every: int = 1,
    candidates: int = 1,
) -> Bank:
    """Make a bank of uint8 images ``(C, H, W)``.

    Args:
        images: The images; all of one number of channels.
        degradation: Makes an input from its target.
        patch: Side of an input patch.
        device: Where the bytes go.
        swap_channels: Whether patches come with their channels in any order.
        drawn: Further images, as large as a patch at least, that were drawn.
        drawn_every: One patch in this many comes from them.
        candidates: How many places are drawn for a patch; the most detailed of them is taken.
    """
    side = patch * degradation.scale
    fitting = [image for image in images if min(image.shape[-2:]) >= side]
    if not fitting:
        raise DataError(
            f"no training image has room for a patch of {side}x{side} pixels; "
            "use larger images or a smaller patch"
        )
    fitting += drawn
    channels = {image.shape[0] for image in fitting}
    if len(channels) > 1:
        raise DataError(f"training images have {sorted(channels)} channels; they must agree")
    sizes = torch.tensor([image.shape for image in fitting])
    num_values = sizes.prod(1)
    orders = _channel_orders(channels.pop(), paired=isinstance(degradation, StoredInput))
    return Bank(
        values=torch.cat([image.permute(1, 2, 0).reshape(-1) for image in fitting]).to(device),
        offsets=(num_values.cumsum(0) - num_values).to(device),
        heights=sizes[:, 1].to(device),
        widths=sizes[:, 2].to(device),
        ends=(sizes[:, 1] * sizes[:, 2]).cumsum(0).to(device),
        patch=patch,
        orders=torch.tensor(orders if swap_channels else orders[:1]).to(device),
        degradation=degradation,
        num_drawn=len(drawn),
        drawn_every=drawn_every,
        candidates=candidates,
        detail=(
            build_table(fitting, side=side, block=max(2, degradation.scale), device=device)
            if candidates > 1
            else None
        ),
    )


def _channel_orders(channels: int, *, paired: bool) -> list[tuple[int, ...]]:
    """Return the orders in which channels may come, the same for both images of a pair."""
    half = channels // 2 if paired else channels
    orders = list(permutations(range(half)))
    return [(*order, *(half + n for n in order)) for order in orders] if paired else orders


def load_images(
    paths: Sequence[Path],
    *,
    num_channels: int,
    progress: Progress | None = None,
    num_workers: int | None = None,
) -> list[Tensor]:
    """Read files as uint8 ``(C, H, W)``, several at once; a file that cannot be read is named."""
    workers = num_workers or min(16, os.cpu_count() or 1)
    images: list[Tensor] = []
    with ThreadPoolExecutor(workers) as pool:
        for image in pool.map(lambda path: _read_bytes(path, num_channels), paths):
            images.append(image)
            if progress:
                progress(len(images), len(paths))
    return images


def load_pairs(
    paths: Sequence[tuple[Path, Path]],
    *,
    num_channels: int,
    scale: int,
    progress: Progress | None = None,
) -> list[Tensor]:
    """Read files of inputs and their targets as `stack_pair` puts them, uint8 ``(2 C, H, W)``."""
    inputs = load_images([low for low, _ in paths], num_channels=num_channels, progress=progress)
    targets = load_images([high for _, high in paths], num_channels=num_channels, progress=progress)
    stacked = []
    for (path, _), degraded, target in zip(paths, inputs, targets, strict=True):
        try:
            stacked.append(stack_pair(match_pair(degraded[None], target[None], scale=scale))[0])
        except ImageError as error:
            raise DataError(f"{path}: {error}") from error
    return stacked


def _read_bytes(path: Path, num_channels: int) -> Tensor:
    image, _ = read_image(path)
    return to_uint8(match_channels(image, num_channels))[0]
