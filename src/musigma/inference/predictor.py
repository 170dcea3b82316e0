"""From an image to its prediction: the one path that commands, evaluation and training share."""

from collections.abc import Callable

import torch
from torch import Tensor

from musigma.functional.color import match_channels
from musigma.inference.canvas import Canvas
from musigma.inference.tiling import (
    SMALL,
    Tile,
    border_of,
    bytes_per_pixel,
    plan_tiles,
    tile_for_memory,
)
from musigma.models import Network
from musigma.types import ConfigError, ImageError, Prediction

DEFAULT_MEMORY = 2 * 2**30
Progress = Callable[[int, int], None]


def predict(
    network: Network,
    image: Tensor,
    *,
    tile: int | None = None,
    memory: int = DEFAULT_MEMORY,
    progress: Progress | None = None,
) -> Prediction:
    """Restore one image, tile by tile; image and result stay in host memory.

    A grey image goes through a colour network as three equal channels and comes back grey.

    Args:
        network: In evaluation mode, on the device where it should run.
        image: ``(1, C, H, W)`` float32 in ``[0, 1]``, a noise map included where the network
            takes one.
        tile: Largest side of a tile; by default what `memory` allows.
        memory: Bytes that the forward pass of a tile may need.
        progress: Called after each tile with the number done and the number in all.
    """
    if image.ndim != 4 or image.shape[0] != 1 or not image.numel():
        raise ImageError(f"expected one image (1, C, H, W), got shape {tuple(image.shape)}")
    image, grey = _fit_channels(network, image)
    side = tile_for_memory(network, memory=memory) if tile is None else tile
    height, width = image.shape[-2:]
    tiles = plan_tiles(
        height,
        width,
        tile=side,
        border=border_of(network),
        multiple=network.size_multiple,
        least=max(1, min(SMALL + 1, memory // bytes_per_pixel(network))),
    )
    canvas = Canvas(network, height, width)
    for number, piece in enumerate(tiles, 1):
        canvas.paste(piece, _run(network, image, piece))
        if progress:
            progress(number, len(tiles))
    return canvas.prediction(grey=grey)


def with_noise_map(image: Tensor, noise_std: float) -> Tensor:
    """Append a channel that holds the noise level, on the scale of the image."""
    level = torch.full_like(image[:, :1], noise_std / 255)
    return torch.cat([image, level], dim=1)


def _fit_channels(network: Network, image: Tensor) -> tuple[Tensor, bool]:
    """Repeat a grey channel for a colour network; say whether that was done."""
    num_maps = network.in_channels - network.out_channels
    num_colours = image.shape[1] - num_maps
    if num_colours == 1 and network.out_channels == 3:
        repeated = match_channels(image[:, :1], 3)
        return torch.cat([repeated, image[:, 1:]], dim=1), True
    if num_colours == 3 and network.out_channels == 1:
        raise ImageError(
            "the image has colours and the network is for grey ones; use a network for colour, "
            "such as drunet, or turn the image into grey"
        )
    if image.shape[1] != network.in_channels:
        maps = ", a noise map (with_noise_map) among them," if num_maps else ""
        raise ImageError(
            f"the network takes {network.in_channels} channels{maps} and the image has "
            f"{image.shape[1]}"
        )
    return image, False


@torch.inference_mode()
def _run(network: Network, image: Tensor, tile: Tile) -> Prediction:
    rows, columns = tile.rows, tile.columns
    piece = image[..., rows.read_start : rows.read_stop, columns.read_start : columns.read_stop]
    device = next((p.device for p in network.parameters()), image.device)
    try:
        return network(piece.to(device))
    except torch.OutOfMemoryError as error:
        size = f"{piece.shape[-1]} x {piece.shape[-2]}"
        raise ConfigError(
            f"a tile of {size} pixels, border included, is too large for {device}; "
            "give less --memory, or a smaller --tile"
        ) from error
