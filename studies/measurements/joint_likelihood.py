"""Measure the likelihood of joint errors on benchmark sets, above that of independent errors.

``python -m studies.measurements.joint_likelihood edsr-baseline 4
studies/results/joint-likelihood-x4.json`` restores the pictures of
`studies.measurements.joint_sets`. The record holds for each set the gain of the middle part of each
picture, in nats per value, with the same mean and the same calibrated bars, and its standard error
over the pictures.
"""

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from musigma.evaluation.joint import held_out_pictures
from musigma.model import Model, load
from musigma.uncertainty.joint import JointErrors, StationaryErrors
from musigma.uncertainty.mixture import NOISE_SHARES, MixtureErrors
from studies.measurements.joint_sets import SETS, every, middle, save_record, standard_error


def gains_of(model: Model, text: str, *, crop: int) -> list[float]:
    """Return the likelihood gained over independent errors in each picture of a set."""
    dataset, protocol = every(model, text)
    correlation = model.require_joint().correlation
    gains = []
    for picture in held_out_pictures(model, dataset, [protocol], correlation):
        part = middle(tuple(picture.residual.shape), model.scale, crop)
        residual, errors = picture.residual[part], part_of(picture.errors, part)
        apart = diagonal_log_likelihood(residual, errors.std)
        gains.append(errors.log_likelihood(residual) - apart)
        print(picture.name, f"{gains[-1]:.3f}", flush=True)
    return gains


def part_of(errors: JointErrors, part: tuple[slice, ...]) -> JointErrors:
    """Return the errors of a part of a picture, without what its input says."""
    errors = getattr(errors, "errors", errors)
    if isinstance(errors, MixtureErrors):
        return MixtureErrors(errors.std[part], errors.weights[part], errors.bank)
    assert isinstance(errors, StationaryErrors)
    return StationaryErrors(errors.std[part], errors.correlation)


def diagonal_log_likelihood(residual: Tensor, std: Tensor) -> float:
    """Return the log density of independent normal errors per value."""
    ratio = (residual / std).double()
    density = -ratio.square() / 2 - std.double().log() - math.log(2 * math.pi) / 2
    return float(density.mean())


def summary(gains: list[float]) -> dict[str, Any]:
    """Return what the record says of a set.

    Example:
        >>> summary([1.0, -0.5])["num_negative_gains"]
        1
    """
    return {
        "num_images": len(gains),
        "gain": float(np.mean(gains)),
        "gain_error": standard_error(gains),
        "least_gain": min(gains),
        "num_negative_gains": sum(gain < 0 for gain in gains),
        "gains": gains,
    }


def main(name: str, scale: int, record: Path, *, sets: list[str], crop: int) -> None:
    """Measure all sets and write the record."""
    model = load(name, scale=scale)
    measured = {text.partition(":")[0]: summary(gains_of(model, text, crop=crop)) for text in sets}
    save_record(
        record,
        model,
        measured,
        sets=sets,
        protocol={"name": "joint-likelihood", "crop": crop, "noise_shares": list(NOISE_SHARES)},
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="name of shipped weights, or a weights file")
    parser.add_argument("scale", type=int)
    parser.add_argument("record", type=Path)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--crop", type=int, default=96, help="side of the part that is measured")
    main(**vars(parser.parse_args()))
