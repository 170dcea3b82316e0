"""Which planes of a scientific file a network sees together, and the values that it sees."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from musigma.images.listing import image_error
from musigma.images.science.image import ScienceImage, Values
from musigma.images.science.value_range import ValueRange
from musigma.model import Model

SMALL_PLANE = 64 * 64
"""Pixels of the largest planes that a network gets together: a call costs as much as such a one."""

STACK_PIXELS = 8 * SMALL_PLANE
"""Pixels that it gets together, at most."""


class NormalisedPlanes:
    """Planes of a file as a network sees them: ``(1, C, H, W)`` float32, the range is ``[0, 1]``.

    Values beyond the range are not clipped. Missing values are replaced by the middle value of
    their plane.
    """

    def __init__(
        self,
        image: ScienceImage,
        planes: tuple[int, ...],
        ranges: dict[int, ValueRange],
        fills: dict[int, float],
    ) -> None:
        self.image, self.planes, self.ranges, self.fills = image, planes, ranges, fills
        self.shape = (1, len(planes), *image.shape[1:])

    def __getitem__(self, part: Any) -> Tensor:
        """Return rows and columns, which are the last two indices, of all planes."""
        rows, columns = (_plain(s, n) for s, n in zip(part[-2:], self.shape[2:], strict=True))
        parts = [
            self.normalized(plane, self.image.read(plane, rows, columns)) for plane in self.planes
        ]
        return torch.from_numpy(np.stack(parts)[None])

    def normalized(self, plane: int, values: Values) -> NDArray[np.float32]:
        """Return values of a plane on the scale of the network."""
        filled = np.where(np.isfinite(values), values, self.fills[plane])
        low, span = self.ranges[plane].low, self.ranges[plane].span
        return ((filled - low) / span).astype(np.float32)

    def first_plane(self) -> "NormalisedPlanes":
        """Return the first of the planes alone."""
        return NormalisedPlanes(self.image, self.planes[:1], self.ranges, self.fills)


class StackedPlanes:
    """Single planes one below the other, ``(1, 1, N H, W)``, so that a network gets many at once.

    Args:
        members: The planes; each is a group of its own.
    """

    def __init__(self, members: Sequence[NormalisedPlanes]) -> None:
        self.members = members
        _, num_channels, self.height, width = members[0].shape
        self.shape = (1, num_channels, len(members) * self.height, width)

    def __getitem__(self, part: Any) -> Tensor:
        """Return rows and columns; the rows must be those of one plane."""
        rows, columns = part[-2:]
        index, top = divmod(rows.start, self.height)
        return self.members[index][..., top : top + rows.stop - rows.start, columns]


def stacks(
    groups: Sequence[NormalisedPlanes], *, together: bool
) -> Iterator[list[NormalisedPlanes]]:
    """Yield groups that a network may get together: small planes that it sees one by one.

    Args:
        groups: In the order in which they are restored.
        together: Whether any may be joined.
    """
    waiting: list[NormalisedPlanes] = []
    for group in groups:
        num_pixels = group.shape[2] * group.shape[3]
        fits = together and group.shape[1] == 1 and num_pixels <= SMALL_PLANE
        if waiting and (not fits or len(waiting) * num_pixels >= STACK_PIXELS):
            yield waiting
            waiting = []
        waiting.append(group)
        if not fits:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def plan_groups(model: Model, image: ScienceImage) -> tuple[list[tuple[int, ...]], str]:
    """Return which planes the network sees together, and the same in words.

    Args:
        model: What restores them.
        image: The file.

    Raises:
        ImageError: If the network takes a number of channels that the file does not have.
    """
    network, planes = model.network, image.value_planes
    num_colors = network.in_channels - network.takes_noise_level
    if not planes:
        raise image_error(image.path, "holds no plane of values to restore")
    if num_colors > 1 and (num_colors != 3 or "bands" in model.metadata):
        return _joint_groups(model, image, num_colors)
    joint = [triple for triple in image.joint if num_colors == 3]
    members = {plane for triple in joint for plane in triple}
    single = [(plane,) for plane in planes if plane not in members]
    words = ["red, green and blue jointly"] if joint else []
    if single:
        repeated = " (each as three equal channels, of which the mean is taken)"
        words.append(f"band by band{repeated if num_colors == 3 else ''}")
    return [*joint, *single], "; other bands ".join(words)


def _joint_groups(
    model: Model, image: ScienceImage, num_channels: int
) -> tuple[list[tuple[int, ...]], str]:
    """Return the sets of planes for a network that sees all channels of a picture together."""
    planes = image.value_planes
    sets = [tuple(p for p in each if p in planes) for each in image.channel_sets] or [planes]
    # A network may also take all pictures of a stack as its channels.
    if len(sets) > 1 and len(planes) == num_channels:
        sets = [planes]
    numbers = {len(each) for each in sets}
    if numbers != {num_channels}:
        where = "" if len(sets) == 1 else f" at each of {len(sets)} places of its stack"
        text = f"has {max(numbers)} planes{where}, and {model.name} takes {num_channels} channels"
        advice = "choose another `model`: one of 1 channel goes band by band over any file"
        raise image_error(image.path, f"{text}, all at once; {advice}")
    words = f"all {num_channels} bands jointly"
    return sets, words if len(sets) == 1 else f"{words}, {len(sets)} pictures of a stack in turn"


def _plain(part: slice, length: int) -> slice:
    start, stop, _ = part.indices(length)
    return slice(start, stop)
