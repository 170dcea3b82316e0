"""Measure regions of a picture without restoring all of it."""

import math
from collections.abc import Sequence

from musigma.model import Model
from musigma.networks.joint_head import MAX_REACH
from musigma.prediction.predict import Image
from musigma.restoration.whole_picture import RESULT_BYTES
from musigma.types import ConfigError
from musigma.uncertainty.given_input import MARGIN
from musigma.uncertainty.joint_prediction import JointPrediction
from musigma.uncertainty.quantities import Box


def predict_around(
    model: Model,
    image: Image,
    boxes: Sequence[Box],
    *,
    noise_std: float | None = None,
    memory: int | None = None,
) -> tuple[JointPrediction, list[Box]]:
    """Restore the part of a picture that matters to some boxes, with its joint errors.

    Args:
        model: With joint errors.
        image: The input, ``(1, C, H, W)``, or an object that reads a part of it when it is indexed.
        boxes: In pixels of the result.
        noise_std: As for `Model.predict`.
        memory: Bytes that are allowed; boxes that need more are refused.

    Returns:
        The prediction of the part, and where the boxes lie in it.
    """
    height, width = image.shape[-2:]
    for box in boxes:
        _check_inside(box, model.scale * height, model.scale * width)
    rows = _span([(box.y, box.y + box.height) for box in boxes], height, model)
    columns = _span([(box.x, box.x + box.width) for box in boxes], width, model)
    if memory is not None:
        _check_memory(rows, columns, model.scale, memory)
    part = image[..., rows, columns]
    prediction = model.predict_joint(part, noise_std=noise_std)
    left, top = model.scale * columns.start, model.scale * rows.start
    return prediction, [box._replace(x=box.x - left, y=box.y - top) for box in boxes]


def _check_memory(rows: slice, columns: slice, scale: int, memory: int) -> None:
    num_pixels = scale**2 * (rows.stop - rows.start) * (columns.stop - columns.start)
    needed, allowed = (math.ceil(n / 2**20) for n in (num_pixels * RESULT_BYTES, memory))
    if needed > allowed:
        raise ConfigError(
            f"what lies around the boxes needs {needed} MiB of memory, and {allowed} are allowed; "
            f"choose smaller boxes, or set `memory` to {needed}MiB"
        )


def _check_inside(box: Box, height: int, width: int) -> None:
    inside = box.x + box.width <= width and box.y + box.height <= height
    if not inside or min(box.width, box.height) < 1 or min(box.x, box.y) < 0:
        raise ConfigError(
            f"the box {','.join(map(str, box))} does not lie inside the result of {width} x "
            f"{height} pixels"
        )


def _span(ends: Sequence[tuple[int, int]], length: int, model: Model) -> slice:
    """Return the input pixels that matter to result pixels along one axis."""
    network, scale = model.network, model.scale
    if network.receptive_radius is None:
        return slice(0, length)
    # The kernel of bicubic shrinking reaches over two more input pixels.
    border = network.receptive_radius + 2 * (MARGIN + 2) + -(-MAX_REACH // scale)
    multiple = network.size_multiple
    first = max(0, min(first for first, _ in ends) // scale - border) // multiple * multiple
    return slice(first, min(length, -(-max(last for _, last in ends) // scale) + border))
