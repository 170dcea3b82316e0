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

from musigma.functional.color import match_channels, to_uint8
from musigma.functional.resize import resize
from musigma.images.image_io import read_image
from musigma.types import DataError

Progress = Callable[[int, int], None]


class Patches(NamedTuple):
    """A batch.

    Attributes:
        degraded: Input, ``(N, C, h, w)``; the target itself where noise is added later.
        target: What the network should return, ``(N, C, scale h, scale w)``.
        level: A number in ``[0, 1)`` for each patch, by which a noise level is chosen, ``(N,)``.
    """

    degraded: Tensor
    target: Tensor
    level: Tensor


class Cuts(NamedTuple):
    """What patches are made of.

    Attributes:
        pixels: Targets and their margins as bytes, ``(N, H, W, C)``.
        level: As in `Patches`.
    """

    pixels: Tensor
    level: Tensor


@dataclass(frozen=True, kw_only=True)
class Bank:
    """Images on one device, flattened to bytes in the order row, column, channel.

    Input patches are not kept but made, from wherever a patch happens to lie: given those of one
    grid alone, a network learns the pictures by heart (docs/training.md).

    Attributes:
        values: The bytes of all images.
        offsets: Where each image begins.
        heights: Of each image.
        widths: Of each image.
        ends: Running sum of their pixels, by which an image is found.
        scale: Zoom factor; at 1, for denoising, the input is left to be made from the target.
        patch: Side of a patch of the input.
        orders: The orders in which the channels may come, ``(K, C)``.
        shrinking: Makes a column of the input from one of the target and its margins.
    """

    values: Tensor
    offsets: Tensor
    heights: Tensor
    widths: Tensor
    ends: Tensor
    scale: int
    patch: int
    orders: Tensor
    shrinking: Tensor

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

        An image is as likely as it has pixels, and in an image every position. Built from tensor
        operations alone, so that the whole of it can be compiled and captured.

        Args:
            step: Number of the step, an integer tensor on the bank's device.
            batch: How many patches.
            seed: Which of the random sequences.
            first: Number of the first patch within the step; other processes take other numbers.

        Returns:
            The patches, float32 in ``[0, 1]`` and in channels-last order.
        """
        return finish(self.cut(step, batch=batch, seed=seed, first=first), self.shrinking)

    def cut(self, step: Tensor, *, batch: int, seed: int | Tensor, first: int = 0) -> Cuts:
        """Gather what `finish` makes the patches of; arguments as those of `sample`."""
        numbers = torch.arange(first, first + batch, device=self.device)
        key = mix(mix(step + (seed << 32)) + numbers)
        turn = mix(key) & 7
        level = (mix(key + 1) & _24_BITS).float() / (_24_BITS + 1)
        image = torch.searchsorted(self.ends, _below(self.ends[-1], key), right=True)
        size = self.patch * self.scale
        row = _below(self.heights[image] - size + 1, mix(key + 2))
        column = _below(self.widths[image] - size + 1, mix(key + 3))
        order = _below(len(self.orders), mix(key + 4))
        margin = _margin(self.shrinking)
        return Cuts(
            self._gather(
                image, row - margin, column - margin, turn=turn, order=order, size=size + 2 * margin
            ),
            level,
        )

    def _gather(
        self, image: Tensor, row: Tensor, column: Tensor, *, turn: Tensor, order: Tensor, size: int
    ) -> Tensor:
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
        return self.values[pixel.unsqueeze(-1) + channel.view(len(channel), 1, 1, -1)]


def finish(cuts: Cuts, shrinking: Tensor) -> Patches:
    """Make patches, wherever their pixels lie now; `shrinking` is the bank's."""
    margin = _margin(shrinking)
    size = cuts.pixels.shape[1] - 2 * margin
    target = _unit(cuts.pixels[:, margin : margin + size, margin : margin + size])
    return Patches(_unit(_shrink(cuts.pixels, shrinking)) if margin else target, target, cuts.level)


def _shrink(pixels: Tensor, shrinking: Tensor) -> Tensor:
    # To the bit what `bicubic_down` makes: double precision, rounded after each pass.
    number, side, _, channels = pixels.shape
    degraded = (shrinking @ pixels.double().view(number, side, -1) + 0.5).floor().clamp(0, 255)
    degraded = degraded.view(number, -1, side, channels).transpose(1, 2).reshape(number, side, -1)
    degraded = (shrinking @ degraded + 0.5).floor().clamp(0, 255)
    return degraded.view(number, len(shrinking), len(shrinking), channels).transpose(1, 2)


def _margin(shrinking: Tensor) -> int:
    """Return how many pixels of the target lie beyond each end, of which the input is made."""
    small, side = shrinking.shape
    scale = side // (small + 2 * _REACH)
    return _REACH * scale if scale > 1 else 0


_REACH = 2
"""A pixel of the input is made of less than two pixels of its own size to each side."""

_POSITIVE = (1 << 62) - 1
_24_BITS = (1 << 24) - 1


def mix(value: Tensor) -> Tensor:
    """Hash 64-bit integers so that neighbours become unrelated (the finaliser of SplitMix64)."""
    value = value * -7046029254386353131
    value = (value ^ _shift(value, 30)) * -4658895280553007687
    value = (value ^ _shift(value, 27)) * -7723592293110705685
    return value ^ _shift(value, 31)


def _shift(value: Tensor, bits: int) -> Tensor:
    # A right shift of a signed integer repeats its sign; the mask makes it a logical one.
    return (value >> bits) & ((1 << (64 - bits)) - 1)


def _below(number: Tensor | int, key: Tensor) -> Tensor:
    return key.bitwise_and(_POSITIVE) % number


def _mirrored(place: Tensor, length: Tensor) -> Tensor:
    """Return a place inside the image for one a little outside, as imresize does at borders."""
    place = torch.where(place < 0, -1 - place, place)
    return torch.where(place < length, place, 2 * length - 1 - place)


def _unit(pixels: Tensor) -> Tensor:
    return pixels.float().div(255).contiguous().permute(0, 3, 1, 2)


def build_bank(
    images: Iterable[Tensor],
    *,
    scale: int,
    patch: int,
    device: torch.device,
    swap_channels: bool = False,
) -> Bank:
    """Make a bank of uint8 images ``(C, H, W)``.

    Args:
        images: The images; all of one number of channels.
        scale: Zoom factor between a target and the input, made by MATLAB's imresize in 8 bits.
        patch: Side of an input patch.
        device: Where the bytes go.
        swap_channels: Whether patches come with their channels in any order.
    """
    fitting = [image for image in images if min(image.shape[-2:]) >= patch * scale]
    if not fitting:
        raise DataError(
            f"no training image has room for a patch of {patch * scale}x{patch * scale} pixels; "
            "use larger images or a smaller patch"
        )
    channels = {image.shape[0] for image in fitting}
    if len(channels) > 1:
        raise DataError(f"training images have {sorted(channels)} channels; they must agree")
    sizes = torch.tensor([image.shape for image in fitting])
    num_values = sizes.prod(1)
    orders = list(permutations(range(channels.pop())))
    return Bank(
        values=torch.cat([image.permute(1, 2, 0).reshape(-1) for image in fitting]).to(device),
        offsets=(num_values.cumsum(0) - num_values).to(device),
        heights=sizes[:, 1].to(device),
        widths=sizes[:, 2].to(device),
        ends=(sizes[:, 1] * sizes[:, 2]).cumsum(0).to(device),
        scale=scale,
        patch=patch,
        orders=torch.tensor(orders if swap_channels else orders[:1]).to(device),
        shrinking=_shrinking(patch, scale).to(device),
    )


def _shrinking(patch: int, scale: int) -> Tensor:
    """Return imresize away from borders as a matrix, ``(patch, (patch + 2 * reach) * scale)``."""
    small = patch + 2 * _REACH
    unit = torch.eye(small * scale, dtype=torch.float64)
    return resize(unit[None, None], size=(small, small * scale))[0, 0, _REACH:-_REACH]


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


def _read_bytes(path: Path, num_channels: int) -> Tensor:
    image, _ = read_image(path)
    return to_uint8(match_channels(image, num_channels))[0]
