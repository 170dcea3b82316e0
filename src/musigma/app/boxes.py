"""The mean of a box of a result, as the API and the page tell it."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from musigma.app.restorer import Restorer, RestoreRequest, Result
from musigma.images.image_io import open_image, read_image
from musigma.model import Model
from musigma.restoration.error_maps import read_error_map
from musigma.restoration.measure import predict_around
from musigma.types import ConfigError
from musigma.uncertainty.box_statistics import box_statistics, in_words
from musigma.uncertainty.quantities import parse_box

KEPT_INPUT, KEPT_REQUEST = "input", "request.json"
MAX_BOX_PIXELS = 2**18
"""Largest box whose interval by the joint errors is told; it takes some seconds."""


def describe_box(result: Result, text: str) -> dict[str, Any]:
    """Return the mean of a box and what is known about its error, as plain JSON values."""
    if result.calibration is None or "sigma" not in result.files:
        raise ConfigError("the weights have no calibrated error; leave the box out")
    mean, _ = read_image(result.files["picture"])
    sigma = read_error_map(result.files["sigma"], "sigma").values
    statistics = box_statistics(mean, result.calibration.half_width(sigma), parse_box(text))
    return {**statistics._asdict(), "unit": "levels of 255", "text": in_words(statistics)}


def joint_box(
    model: Model, source: Path, text: str, *, noise_std: float | None = None
) -> dict[str, Any] | None:
    """Return the mean of a box with its interval by the joint errors, in levels of 255.

    `None` where the weights do not say how errors belong together, or need a noise level.
    """
    unknown_noise = model.takes_noise_level and noise_std is None
    if model.calibration is None or model.calibration.joint is None or unknown_noise:
        return None
    colors = open_image(source).colors
    prediction, (box,) = predict_around(model, colors, [parse_box(text)], noise_std=noise_std)
    channels = range(prediction.mean.shape[1])
    quantities = [prediction.mean_over(box, channel=channel) for channel in channels]
    return {
        name: [255 * getattr(quantity, name) for quantity in quantities]
        for name in ("value", "low", "high")
    } | {"coverage": quantities[0].coverage}


def small_joint_box(
    model: Model, source: Path, text: str, *, noise_std: float | None = None
) -> dict[str, Any] | None:
    """Return what `joint_box` returns, or `None` for a box that would take too long."""
    if num_pixels_of(text) > MAX_BOX_PIXELS:
        return None
    return joint_box(model, source, text, noise_std=noise_std)


def keep_for_boxes(folder: Path, source: Path, request: RestoreRequest) -> str:
    """Keep what intervals of boxes need beside a result, and return the address that tells them."""
    shutil.copy(source, folder / KEPT_INPUT)
    (folder / KEPT_REQUEST).write_text(json.dumps(asdict(request)))
    return f"/results/{folder.name}/box"


def measure_kept_box(restorer: Restorer, source: Path, request: Path, text: str) -> dict[str, Any]:
    """Return the interval of the mean of a box of a result that was kept."""
    if num_pixels_of(text) > MAX_BOX_PIXELS:
        raise ConfigError(f"a box has at most {MAX_BOX_PIXELS} pixels here; see 'musigma measure'")
    asked = RestoreRequest(**json.loads(request.read_text()))
    model = restorer.model(asked.weights, asked.scale)
    content = joint_box(model, source, text, noise_std=asked.noise_std)
    if content is None:
        raise ConfigError(f"{asked.weights} does not say how its errors belong together")
    return content


def num_pixels_of(text: str) -> int:
    """Return the number of pixels of a box."""
    box = parse_box(text)
    return box.width * box.height
