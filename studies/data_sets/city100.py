"""City100 for training and calibration: pairs 001 to 085, and 086 to 095, of both cameras.

``python -m studies.data_sets.city100 SOURCE TARGET`` reads ``SOURCE/City100_CAMERA/{HR,LR}`` and
writes ``TARGET/City100_CAMERA_train`` and ``TARGET/City100_CAMERA_calibration``. Of each pair for
training the 512x512 pixels with the most detail are kept. Pairs 096 to 100 are for testing and stay
away.

``python -m studies.data_sets.city100 --middle REAL`` cuts the middle 320x320 pixels of every pair
for testing and calibration in ``REAL`` into sets of their own, ``..._middle``: a study of many runs
without a GPU cannot restore the whole pictures each time.
"""

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

CAMERAS = ("NikonD5500", "iPhoneX")
LAST_FOR_TRAINING, LAST_FOR_CALIBRATION = 85, 95
TRAINING_SIDE, CALIBRATION_SIDE, MIDDLE_SIDE = 512, 600, 320
CALIBRATION = {camera: f"City100_{camera}_calibration" for camera in CAMERAS}
TESTS, MIDDLE = ("City100_test", "RealSR_ntire2019"), "_middle"
STEP = 8
"""The corner of a cut lies at a multiple of it."""

Box = tuple[int, int, int, int]


def most_detailed(image: Image.Image, side: int) -> Box:
    """Return the square of an image in which neighbors differ most."""
    grey = np.asarray(image.convert("L"), dtype=np.float64)
    detail = np.zeros_like(grey)
    detail[1:, 1:] = abs(grey[1:, 1:] - grey[:-1, 1:]) + abs(grey[1:, 1:] - grey[1:, :-1])
    sums = _box_sums(detail, side)[::STEP, ::STEP]
    top, left = (STEP * int(index) for index in np.unravel_index(sums.argmax(), sums.shape))
    return left, top, left + side, top + side


def middle(image: Image.Image, side: int) -> Box:
    """Return the square in the middle of an image."""
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return left, top, left + side, top + side


def cut_pair(source: Path, target: Path, camera: str, number: int) -> None:
    """Write the cut of one pair, without loss."""
    training = number <= LAST_FOR_TRAINING
    folder = target / f"City100_{camera}_{'train' if training else 'calibration'}"
    pair = {side: _read(source, camera, side, number) for side in ("HR", "LR")}
    sharp = pair["HR"]
    box = most_detailed(sharp, TRAINING_SIDE) if training else middle(sharp, CALIBRATION_SIDE)
    for side, image in pair.items():
        (folder / side).mkdir(parents=True, exist_ok=True)
        image.crop(box).save(folder / side / f"{number:03}.webp", lossless=True)


def main(source: Path, target: Path) -> None:
    """Cut all pairs."""
    for camera in CAMERAS:
        for number in range(1, LAST_FOR_CALIBRATION + 1):
            cut_pair(source, target, camera, number)


def cut_middles(real: Path) -> None:
    """Write the middle of every pair for testing and calibration, without loss."""
    for name in (*TESTS, *CALIBRATION.values()):
        for path in sorted((real / name).glob("[HL]R/*.webp")):
            image = _read_rgb(path)
            target = real / f"{name}{MIDDLE}" / path.parent.name / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            image.crop(middle(image, MIDDLE_SIDE)).save(target, lossless=True)


def _read(source: Path, camera: str, side: str, number: int) -> Image.Image:
    return _read_rgb(source / f"City100_{camera}" / side / f"{number:03}.png")


def _read_rgb(path: Path) -> Image.Image:
    with Image.open(path) as image:
        return image.convert("RGB")


def _box_sums(values: NDArray[np.float64], side: int) -> NDArray[np.float64]:
    total = np.pad(values.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    return np.asarray(
        total[side:, side:] - total[:-side, side:] - total[side:, :-side] + total[:-side, :-side]
    )


if __name__ == "__main__":
    if sys.argv[1] == "--middle":
        cut_middles(Path(sys.argv[2]))
    else:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
