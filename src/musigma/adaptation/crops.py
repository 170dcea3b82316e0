"""Windows cut from the pictures: what is trained and measured on, small enough for the time."""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from musigma.adaptation.split import Part
from musigma.datasets.catalog import Item
from musigma.degradations.pairs import match_pair
from musigma.evaluation.restored_pairs import Progress
from musigma.images.decoding import declared_size
from musigma.images.image_io import open_image, write_image
from musigma.images.listing import image_error
from musigma.images.science.value_range import SMALL_SHARE
from musigma.types import DataError, ImageError

GRID = 16
"""Windows begin at multiples of this in the input, so that blocks of a JPEG stay where they are."""

MEASURED_SIDE = 384
"""Side of the windows of all parts but training: a second each for a network on two cores."""

TRAINING_SIDE = 1024
MAX_TRAINING_BYTES = 2**31
"""All training windows together are no larger in memory."""

LEAST_SIDE = 96
"""Side of the smallest picture, in pixels of the target, that can be adapted to."""


class Window(NamedTuple):
    """A part of an image, in its pixels."""

    top: int
    left: int
    height: int
    width: int

    def of(self, image: Tensor) -> Tensor:
        """Cut it from an image ``(1, C, H, W)``."""
        rows = slice(self.top, self.top + self.height)
        return image[..., rows, self.left : self.left + self.width]

    def times(self, scale: int) -> "Window":
        """Return the window in an image that is larger by `scale`."""
        return Window(*(scale * number for number in self))


def check_sizes(items: Iterable[Item], *, least: int = LEAST_SIDE) -> None:
    """Refuse pictures that are too small, all of them in one error; only headers are read."""
    small = []
    for item in items:
        size = declared_size(item.target)
        if min(size.height, size.width) < least:
            small.append(f"{item.target.name} ({size.width}x{size.height})")
    if small:
        shown = ", ".join(small[:5]) + (f" and {len(small) - 5} more" if len(small) > 5 else "")
        raise DataError(
            f"{len(small)} pictures are smaller than {least}x{least} pixels: {shown}; "
            "take them out of the folder"
        )


def choose_window(
    height: int, width: int, *, side: int, name: str, seed: int, grid: int = GRID
) -> Window:
    """Return the window of an image, which follows from name and seed.

    Args:
        height: Of the image.
        width: Of the image.
        side: Largest side of the window.
        name: Of the image.
        seed: Another seed gives another window.
        grid: The window begins at multiples of it.

    Example:
        >>> choose_window(100, 900, side=192, name="cat", seed=0).height
        100
    """
    digest = blake2b(f"window/{seed}/{name}".encode(), digest_size=8).digest()
    numbers = (int.from_bytes(digest[:4]), int.from_bytes(digest[4:]))
    sizes = [min(length, side) for length in (height, width)]
    starts = [
        number % ((length - size) // grid + 1) * grid
        for number, length, size in zip(numbers, (height, width), sizes, strict=True)
    ]
    return Window(*starts, *sizes)


def write_crops(
    parts: Mapping[Part, tuple[Item, ...]],
    folder: Path,
    *,
    scale: int,
    seed: int,
    both_ways: bool = False,
    value_range: tuple[float, float] | None = None,
    progress: Progress = lambda *_: None,
) -> None:
    """Cut a window from every picture and write it to the folder of its part.

    Pairs go to folders ``HR`` and ``LR``, as `musigma.datasets.catalog.find_dataset` finds them.

    Args:
        parts: The pictures, with their inputs where these are read.
        folder: Gets a folder for each part.
        scale: Zoom factor.
        seed: Decides the windows.
        both_ways: Whether each picture of a training pair is the input once: for noisy pairs.
        value_range: Values of the files that are black and white; by default those of their type.
        progress: Called before each picture.

    Raises:
        DataError: Gray and colored pictures are mixed.
        ImageError: A picture cannot be read, or the two of a pair do not fit; it names the file.
    """
    total = sum(map(len, parts.values()))
    gray: dict[bool, list[str]] = {True: [], False: []}
    number = 0
    for part, items in parts.items():
        side = MEASURED_SIDE if part != "training" else _training_side(len(items))
        for item in items:
            progress(number, total, item.name)
            number += 1
            images = _read(item, scale, value_range)
            gray[images[0].shape[1] == 1].append(item.name)
            swapped = both_ways and part == "training"
            _write(images, item.name, folder / part, side, scale, seed, swapped)
    if gray[True] and gray[False]:
        raise DataError(
            f"{len(gray[True])} pictures are gray (such as {gray[True][0]}) and "
            f"{len(gray[False])} are in color (such as {gray[False][0]}); put them into two "
            "folders and adapt to each"
        )


def _training_side(num_pictures: int) -> int:
    most = int((MAX_TRAINING_BYTES / 3 / num_pictures) ** 0.5)
    return max(LEAST_SIDE, min(TRAINING_SIDE, most) // 48 * 48)


def _read(item: Item, scale: int, value_range: tuple[float, float] | None) -> list[Tensor]:
    """Return the target of a picture and, for a pair, its input."""
    target = _read_in_range(item.target, value_range)
    if item.degraded is None:
        return [target]
    degraded = _read_in_range(item.degraded, value_range)
    if degraded.shape[1] != target.shape[1]:
        names = {1: "gray", 3: "in color"}
        raise image_error(
            item.degraded,
            f"is {names[degraded.shape[1]]}, and its target is {names[target.shape[1]]}; "
            "both must be the same",
        )
    try:
        pair = match_pair(degraded, target, scale=scale)
    except ImageError as error:
        raise image_error(
            item.degraded, f"{str(error).partition(';')[0]}; all pairs must have one --scale"
        ) from error
    return [pair.target, pair.degraded]


def _read_in_range(path: Path, value_range: tuple[float, float] | None) -> Tensor:
    """Return a picture on the scale of the network; windows hold 256 levels of the range."""
    samples = open_image(path).colors
    image = samples[:]
    if value_range is not None:
        low, high = value_range
        return (image * samples.full_scale - low) / (high - low)
    is_measured = samples.full_scale > 255 and image.shape[1] == 1
    if is_measured and samples.highest < SMALL_SHARE * samples.full_scale:
        text = f"its values reach {samples.highest:g} of {samples.full_scale}"
        raise image_error(path, f"{text}, and a window has 8 bits; give --range LOW,HIGH")
    return image


def _write(
    images: list[Tensor],
    name: str,
    folder: Path,
    side: int,
    scale: int,
    seed: int,
    both_ways: bool,
) -> None:
    height, width = (length // scale for length in images[0].shape[-2:])
    small = choose_window(height, width, side=side // scale, name=name, seed=seed)
    target = small.times(scale).of(images[0])
    if len(images) == 1:
        write_image(folder / f"{name}.png", target)
        return
    degraded = small.of(images[1])
    ways = [(target, degraded), (degraded, target)] if both_ways else [(target, degraded)]
    for number, (high, low) in enumerate(ways):
        stem = f"{name}-{number}" if both_ways else name
        write_image(folder / "HR" / f"{stem}.png", high)
        write_image(folder / "LR" / f"{stem}.png", low)
