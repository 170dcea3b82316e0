"""The bank: whole training images as bytes in memory, from which random patches are gathered.

A patch is chosen by a hash of (seed, step, number in the batch), not by a generator that has to be
carried along. So a resumed run goes on with the very patches it would have had, a CPU and a GPU
take the same ones, and several processes share a batch by taking different numbers of it.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from musigma.data.io import read_image
from musigma.functional.color import match_channels, to_uint8
from musigma.functional.geometry import crop_to_multiple
from musigma.functional.resize import bicubic_down
from musigma.types import DataError

Progress = Callable[[int, int], None]


class Patches(NamedTuple):
    """A batch.

    Attributes:
        low: Input, ``(N, C, h, w)``; the target itself where the input is made by adding noise.
        target: What the network should return, ``(N, C, scale h, scale w)``.
        level: A number in ``[0, 1)`` for each patch, by which a noise level is chosen, ``(N,)``.
    """

    low: Tensor
    target: Tensor
    level: Tensor


@dataclass(frozen=True, kw_only=True)
class Plane:
    """Images of one resolution, flattened to bytes in the order row, column, channel."""

    values: Tensor
    offsets: Tensor
    widths: Tensor


@dataclass(frozen=True, kw_only=True)
class Bank:
    """Pairs of images on one device.

    Attributes:
        target: The images to restore.
        low: The same, made small; `None` for denoising, where the input is made from the target.
        scale: Zoom factor between the two.
        patch: Side of a patch of the input.
        columns: How many positions a patch can take in a row of each image.
        ends: Running sum of the positions, by which an image is found for a position.
        num_channels: 1 or 3.
    """

    target: Plane
    low: Plane | None
    scale: int
    patch: int
    columns: Tensor
    ends: Tensor
    num_channels: int

    @property
    def num_images(self) -> int:
        """How many images the bank holds."""
        return len(self.ends)

    @property
    def num_bytes(self) -> int:
        """Memory the images take."""
        return self.target.values.numel() + (self.low.values.numel() if self.low else 0)

    @property
    def device(self) -> torch.device:
        """Where the images lie."""
        return self.ends.device

    def sample(self, step: Tensor, *, batch: int, seed: int | Tensor, first: int = 0) -> Patches:
        """Gather the patches of a step, each turned or mirrored in one of eight ways.

        Every position of every image is equally likely. Built from tensor operations alone, so
        that the whole of it can be compiled and captured.

        Args:
            step: Number of the step, an integer tensor on the bank's device.
            batch: How many patches.
            seed: Which of the random sequences.
            first: Number of the first patch within the step; other processes take other numbers.

        Returns:
            The patches, float32 in ``[0, 1]`` and in channels-last order.
        """
        numbers = torch.arange(first, first + batch, device=self.device)
        key = mix(mix(step + (seed << 32)) + numbers)
        position = key.bitwise_and(_POSITIVE) % self.ends[-1]
        image = torch.searchsorted(self.ends, position, right=True)
        before = torch.where(image > 0, self.ends[image - 1], 0)
        inside = position - before
        row, column = inside // self.columns[image], inside % self.columns[image]
        turn = mix(key) & 7
        size = self.patch * self.scale
        target = self._gather(self.target, image, row * self.scale, column * self.scale, turn, size)
        low = target
        if self.low is not None:
            low = self._gather(self.low, image, row, column, turn, self.patch)
        level = (mix(key + 1) & _24_BITS).float() / (_24_BITS + 1)
        return Patches(low, target, level)

    def _gather(
        self, plane: Plane, image: Tensor, row: Tensor, column: Tensor, turn: Tensor, size: int
    ) -> Tensor:
        side = torch.arange(size, device=self.device)
        down, right = side.view(1, -1, 1), side.view(1, 1, -1)
        bit = [((turn >> k) & 1).bool().view(-1, 1, 1) for k in range(3)]
        down, right = torch.where(bit[0], right, down), torch.where(bit[0], down, right)
        down = torch.where(bit[1], size - 1 - down, down)
        right = torch.where(bit[2], size - 1 - right, right)
        pixel = (row.view(-1, 1, 1) + down) * plane.widths[image].view(-1, 1, 1)
        pixel = pixel + column.view(-1, 1, 1) + right
        start = plane.offsets[image].view(-1, 1, 1) + pixel * self.num_channels
        channel = torch.arange(self.num_channels, device=self.device)
        values = plane.values[start.unsqueeze(-1) + channel]
        return values.permute(0, 3, 1, 2).float() / 255


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


def build_bank(
    images: Iterable[Tensor], *, scale: int, patch: int, device: torch.device, with_low: bool = True
) -> Bank:
    """Make a bank of uint8 images ``(C, H, W)``.

    Args:
        images: The images; all of one number of channels.
        scale: Zoom factor; sides are cropped to multiples of it.
        patch: Side of an input patch.
        device: Where the bytes go.
        with_low: Whether to make the low-resolution images, by MATLAB's imresize in 8 bits.
    """
    targets: list[Tensor] = []
    lows: list[Tensor] = []
    for image in images:
        if min(image.shape[-2:]) < patch * scale:
            continue
        target = crop_to_multiple(image.unsqueeze(0).to(device), scale)
        targets.append(target[0])
        if with_low and scale > 1:
            lows.append(bicubic_down(target, scale)[0])
    if not targets:
        raise DataError(
            f"no training image has room for a patch of {patch * scale}x{patch * scale} pixels; "
            "use larger images or a smaller patch"
        )
    channels = {image.shape[0] for image in targets}
    if len(channels) > 1:
        raise DataError(f"training images have {sorted(channels)} channels; they must agree")
    sizes = [(image.shape[1] // scale, image.shape[2] // scale) for image in targets]
    rows = torch.tensor([height - patch + 1 for height, _ in sizes])
    columns = torch.tensor([width - patch + 1 for _, width in sizes])
    return Bank(
        target=_plane(targets, device),
        low=_plane(lows, device) if lows else None,
        scale=scale,
        patch=patch,
        columns=columns.to(device),
        ends=(rows * columns).cumsum(0).to(device),
        num_channels=channels.pop(),
    )


def _plane(images: Sequence[Tensor], device: torch.device) -> Plane:
    sizes = torch.tensor([image.numel() for image in images])
    flat = torch.cat([image.permute(1, 2, 0).reshape(-1) for image in images])
    return Plane(
        values=flat.to(device),
        offsets=(sizes.cumsum(0) - sizes).to(device),
        widths=torch.tensor([image.shape[2] for image in images]).to(device),
    )


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
