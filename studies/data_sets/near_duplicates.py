"""Is a training picture nearly the same as a test picture?

``python -m studies.data_sets.near_duplicates RECORD --train BSD400 cuts --test Set5 Set14 B100
Urban100`` compares difference hashes of whole pictures, as they are and mirrored, and writes the
record. Other sizes, JPEG compression, brightness and small cuts at the borders hardly change such a
hash. A part of a picture has another hash than the whole: a small cut out of a test picture is not
found.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps

from musigma.datasets.catalog import Dataset, data_hash, find_dataset
from musigma.evaluation.record import Record, provenance

SIDE = 16
"""A hash has the square of it in bits."""

LIMIT = 32
"""Pictures whose hashes differ in at most this many of the 256 bits are taken for the same."""

Hash = NDArray[np.bool_]


def difference_hash(image: Image.Image) -> Hash:
    """Return for each cell of a small gray copy whether the cell to its right is brighter.

    Example:
        >>> ramp = Image.fromarray(np.arange(34, dtype=np.uint8).repeat(34).reshape(34, 34).T)
        >>> int(difference_hash(ramp).sum()), int(difference_hash(ImageOps.mirror(ramp)).sum())
        (256, 0)
    """
    small = image.convert("L").resize((SIDE + 1, SIDE), Image.Resampling.BOX)
    cells = np.asarray(small, dtype=np.int16)
    return (cells[:, 1:] > cells[:, :-1]).ravel()


def hashes_of(dataset: Dataset, *, mirrored: bool = False) -> NDArray[np.bool_]:
    """Return the hashes of the pictures of a set, ``(N, 256)``."""
    hashes = []
    for item in dataset.items:
        with Image.open(item.target) as image:
            hashes.append(difference_hash(ImageOps.mirror(image) if mirrored else image))
    return np.stack(hashes)


def distances(train: NDArray[np.bool_], test: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return in how many bits each training hash differs from each test hash, ``(N, M)``."""
    ours, theirs = train.astype(np.float32), test.astype(np.float32)
    return np.rint(ours @ (1 - theirs.T) + (1 - ours) @ theirs.T).astype(np.int64)


def near_duplicates(train: Sequence[Dataset], test: Sequence[Dataset]) -> dict[str, Any]:
    """Compare each training set with each test set.

    Returns:
        For each pair of sets the smallest distance, and the names and the distance of each pair of
        pictures that are taken for the same.
    """
    hashes = {dataset.name: hashes_of(dataset) for dataset in train}
    result: dict[str, Any] = {}
    for theirs in test:
        known = [hashes_of(theirs, mirrored=mirrored) for mirrored in (False, True)]
        for ours in train:
            apart = np.minimum(*(distances(hashes[ours.name], each) for each in known))
            result[f"{ours.name}, {theirs.name}"] = {
                "num_training": len(ours.items),
                "smallest_distance": int(apart.min()),
                "pairs": [
                    [ours.items[row].name, theirs.items[column].name, int(apart[row, column])]
                    for row, column in np.argwhere(apart <= LIMIT)
                ],
            }
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare the sets, write the record, and say which pairs are the same."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("record", type=Path)
    parser.add_argument("--train", nargs="+", required=True)
    parser.add_argument("--test", nargs="+", required=True)
    options = parser.parse_args(arguments)
    train, test = (
        [find_dataset(name) for name in names] for names in (options.train, options.test)
    )
    result = near_duplicates(train, test)
    for names, values in result.items():
        print(f"{names}: nearest {values['smallest_distance']} bits; same: {values['pairs']}")
    items = tuple(item for dataset in (*train, *test) for item in dataset.items)
    name = "+".join(dataset.name for dataset in (*train, *test))
    Record(
        kind="benchmark",
        model={"name": "none", "scale": 1, "params": 0, "digest": ""},
        protocol={"name": "near-duplicates", "bits": SIDE**2, "limit": LIMIT},
        data={"name": name, "num_images": len(items), "hash": data_hash(Dataset(name, items))},
        result=result,
        provenance=provenance(torch.device("cpu")),
    ).save(options.record)


if __name__ == "__main__":
    main()
