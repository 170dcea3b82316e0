"""The most detailed parts of photographs, as a training set.

``python -m studies.data_sets.detailed_cuts FOLDER... -o CUTS`` takes up to so many squares of each
photograph that do not overlap, in the order of their detail, and writes them as JPEG files without
chroma subsampling. Whole photographs are mostly sky and blur, from which little is learned. With
``--shrink 2`` photographs are shrunk first; most are soft at the size at which a camera gave them.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from musigma.datasets.detail_table import CELL, detail_of_windows
from musigma.images.listing import FORMAT_OF_SUFFIX

BLOCK = 2
"""Side of the blocks whose loss is the detail, as for patches at x2."""


def cuts(image: Image.Image, *, side: int, most: int, least_detail: float) -> list[Image.Image]:
    """Return the most detailed squares of a photograph, none of which overlap.

    Args:
        image: The photograph.
        side: Of a square, in pixels.
        most: How many at most.
        least_detail: Squares with less are left out, in levels of 255.
    """
    if min(image.size) < side:
        return []
    pixels = torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)
    detail = detail_of_windows(pixels, side=side, block=BLOCK)
    found = []
    for top, left in _places(detail, side=side, most=most, least_detail=least_detail):
        top, left = min(top, image.height - side), min(left, image.width - side)
        found.append(image.crop((left, top, left + side, top + side)))
    return found


def _places(
    detail: Tensor, *, side: int, most: int, least_detail: float
) -> Iterator[tuple[int, int]]:
    """Yield the upper left corners in pixels, the most detailed square first."""
    detail, cells = detail.clone(), side // CELL
    for _ in range(most):
        best = int(detail.argmax())
        row, column = divmod(best, detail.shape[1])
        if detail[row, column] < least_detail:
            return
        yield row * CELL, column * CELL
        rows = slice(max(0, row - cells + 1), row + cells)
        detail[rows, max(0, column - cells + 1) : column + cells] = -1


def main() -> None:
    """Write the cuts of all photographs in some folders."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--side", type=int, default=512)
    parser.add_argument("--most", type=int, default=8)
    parser.add_argument("--least-detail", type=float, default=0.0)
    parser.add_argument("--shrink", type=float, default=1.0)
    parser.add_argument("--quality", type=int, default=90)
    args = parser.parse_args()
    Image.MAX_IMAGE_PIXELS = None
    args.output.mkdir(parents=True, exist_ok=True)
    for folder in args.folders:
        for path in sorted(p for p in folder.rglob("*") if p.suffix.lower() in FORMAT_OF_SUFFIX):
            image = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
            if args.shrink > 1:
                size = (round(image.width / args.shrink), round(image.height / args.shrink))
                image = image.resize(size, Image.Resampling.LANCZOS)
            some = cuts(image, side=args.side, most=args.most, least_detail=args.least_detail)
            for number, cut in enumerate(some):
                name = f"{folder.name}-{path.stem}-{number}.jpg"
                cut.save(args.output / name, quality=args.quality, subsampling=0, optimize=True)


if __name__ == "__main__":
    main()
