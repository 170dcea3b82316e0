"""Training images that need no files: striped discs, drawn by the program."""

import torch
from torch import Tensor

NUM_IMAGES = 24
SIZE = 128
NUM_DISCS = 12


def draw_images(channels: int) -> list[Tensor]:
    """Draw images with edges, textures and plain areas: discs with stripes, one over the other.

    Args:
        channels: 3 for color, 1 for grey.

    Returns:
        Images ``(C, H, W)`` in uint8; the same at every call.

    Example:
        >>> images = draw_images(3)
        >>> len(images), images[0].shape, images[0].dtype
        (24, torch.Size([3, 128, 128]), torch.uint8)
    """
    generator = torch.Generator().manual_seed(0)
    return [_draw(channels, generator) for _ in range(NUM_IMAGES)]


def _draw(channels: int, generator: torch.Generator) -> Tensor:
    row, column = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    image = torch.rand(channels, 1, 1, generator=generator).expand(-1, SIZE, SIZE)
    for _ in range(NUM_DISCS):
        y, x, radius, down, across = torch.rand(5, generator=generator).tolist()
        inside = (row - SIZE * y) ** 2 + (column - SIZE * x) ** 2 < (SIZE * radius / 3) ** 2
        stripes = 0.7 + 0.3 * torch.sin(down * row + across * column)
        color = torch.rand(channels, 1, 1, generator=generator)
        image = torch.where(inside, color * stripes, image)
    return (255 * image).round().byte()
