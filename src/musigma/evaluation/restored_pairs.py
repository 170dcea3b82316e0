"""The loop over a data set that every measurement shares: read, degrade, restore."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from musigma.datasets.catalog import Dataset, Item
from musigma.degradations.pairs import Pair
from musigma.evaluation.protocol import Protocol
from musigma.images.image_io import read_image
from musigma.images.listing import image_error
from musigma.networks import Network
from musigma.prediction.engines import Engine
from musigma.prediction.predict import DEFAULT_MEMORY, predict
from musigma.types import DataError, ImageError, Prediction

Progress = Callable[[int, int, str], None]
"""Called before each image with its number, the number of all images, and its name."""


class RestoredPair(NamedTuple):
    """What became of an image.

    Attributes:
        item: The image.
        prediction: What the network made of its input.
        target: What it should have made.
    """

    item: Item
    prediction: Prediction
    target: Tensor


def restored_pairs(
    network: Network,
    dataset: Dataset,
    protocol: Protocol,
    *,
    engine: Engine | None = None,
    tile: int | None = None,
    memory: int = DEFAULT_MEMORY,
    progress: Progress | None = None,
) -> Iterator[RestoredPair]:
    """Restore every image of a data set.

    Args:
        network: In evaluation mode, on its device.
        dataset: The images. Where they bring their inputs, these are used; otherwise the inputs are
            made as the protocol says.
        protocol: How inputs are made.
        engine: Runs the network; by default PyTorch in float32.
        tile: Largest side of a tile.
        memory: Bytes that a tile may need.
        progress: Called before each image.

    Raises:
        ConfigError: The protocol cannot measure this network.
        DataError: The data set is empty.
        ImageError: An image cannot be read or restored; the error names its file.
    """
    protocol.check(network)
    if not dataset.items:
        raise DataError(f"{dataset.name} holds no images to evaluate on")
    for number, item in enumerate(dataset.items):
        if progress:
            progress(number, len(dataset.items), item.name)
        degraded, target = read_pair(item, protocol)
        with errors_name(item.target):
            prediction = predict(
                network,
                degraded,
                noise_std=protocol.noise_level(network, item.name),
                engine=engine,
                tile=tile,
                memory=memory,
            )
        yield RestoredPair(item, prediction, target)


def read_pair(item: Item, protocol: Protocol) -> Pair:
    """Read the target of an image, and read its input or make it."""
    target = read_image(item.target)[0]
    degraded = None if item.degraded is None else read_image(item.degraded)[0]
    with errors_name(item.target if item.degraded is None else item.degraded):
        return protocol.pair(target, item.name, degraded)


@contextmanager
def errors_name(path: Path) -> Iterator[None]:
    """Put the name of a file before every `ImageError` of the block."""
    try:
        yield
    except ImageError as error:
        raise image_error(path, str(error)) from error
