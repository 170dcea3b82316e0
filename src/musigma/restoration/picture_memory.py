"""How much memory a picture and its result take, and what they leave for tiles."""

import math

from musigma.images.image_io import OpenedImage
from musigma.images.listing import ImageSource, format_of, image_error
from musigma.model import Model
from musigma.prediction.tiling import least_memory_for_tiles
from musigma.restoration.options import Options


def output_bytes(model: Model, source: ImageSource, options: Options, num_pixels: int) -> int:
    """Estimate the memory of a result that is in memory as a whole, besides its rows in progress.

    Args:
        model: What restores it.
        source: The file and the name of its result, which tells the format.
        options: How it is restored.
        num_pixels: Of the source.
    """
    per_pixel = {"JPEG": 10, "WEBP": 16, "BMP": 12}.get(format_of(source.name), 0)
    if options.size is not None:  # the float result before and after it is resized, and between
        per_pixel += 3 * 4 * model.network.out_channels * (1 + model.has_sigma)
    return per_pixel * num_pixels * model.scale**2


def memory_for_tiles(
    model: Model, source: ImageSource, picture: OpenedImage, options: Options
) -> int:
    """Return what a picture and its result leave of the memory, which the tiles may use."""
    height, width = picture.colors.shape[2:]
    taken = sum(part.num_bytes for part in (picture.colors, picture.alpha) if part is not None)
    taken += output_bytes(model, source, options, height * width)
    rest = options.memory - max(taken, options.picture_memory)
    least = least_memory_for_tiles(model.network, width=width)
    if options.tile is None and rest < least:
        needed = math.ceil((taken + least) / 2**20)
        text = f"{width} x {height} pixels, their result and one tile need {needed} MiB of memory"
        raise image_error(source.path, f"{text}; set `memory` to that or more")
    return max(rest, 1)
