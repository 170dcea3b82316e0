"""Weighted sums of a picture's numbers that tell the inputs of a calibration from spoiled ones.

No single number tells a smoothed picture from a picture of smooth things, but a sum of many does.
Its weights are Fisher's linear discriminant of the held-out inputs and the same inputs, spoiled;
`musigma.evaluation.spoiled_inputs` spoils them. Its limit is what hardly any input exceeds that
shows an image which the weights were not fitted on. JPEG changes most of the numbers, so pictures
with blocks and pictures without have sums of their own.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from musigma.functional.noise import MIN_BLOCK_EDGES
from musigma.functional.picture_statistics import PictureStatistics

NUM_FOLDS = 10
"""Parts of the images that are left out in turn to find a limit."""

LEAST_INPUTS = 20
"""Of fewer inputs no sum is fitted."""

BLOCKS = ", JPEG"
"""How the names of the sums for pictures with blocks end."""

COLOUR_NOISE = "colour_noise"
"""The name of the one sum that looks at colours, too; the others serve grey pictures alike."""

_SHRINKAGE = 0.003
_LEAST_SPREAD = 0.03
"""Numbers spread by at least so much; those of strong white noise hardly do."""

Matrix = NDArray[np.float64]


class FittedSum(NamedTuple):
    """Weights of the numbers of a picture, and the limit that inputs hardly exceed."""

    weights: tuple[float, ...]
    limit: float


def discriminant(inputs: Matrix, changed: Matrix, *, shrinkage: float = _SHRINKAGE) -> Matrix:
    """Return Fisher's linear discriminant, larger for `inputs`, of a standard deviation of 1.

    Args:
        inputs: A row for each input.
        changed: The same numbers of inputs that were changed.
        shrinkage: Share by which variances are enlarged, so that few inputs do not make wild
            weights.

    Example:
        >>> random = np.random.default_rng(0)
        >>> weights = discriminant(random.normal(1, 1, (99, 2)), random.normal(0, 1, (99, 2)))
        >>> bool((weights > 0).all())
        True
    """
    scatter = (np.cov(inputs.T) + np.cov(changed.T)) / 2
    scatter += shrinkage * np.diag(np.diag(scatter)) + _LEAST_SPREAD**2 * np.eye(len(scatter))
    weights = np.linalg.solve(scatter, inputs.mean(0) - changed.mean(0))
    return np.asarray(weights / (math.sqrt(weights @ scatter @ weights) or 1.0))


def fit_sums(
    inputs: Sequence[PictureStatistics],
    spoiled: Mapping[str, Sequence[PictureStatistics]],
    *,
    num_images: int,
    share: float,
    margin: float = 0.0,
) -> dict[str, FittedSum]:
    """Return a sum for each way of spoiling that is large for inputs spoiled in that way.

    Args:
        inputs: Held-out inputs; the i-th shows image ``i % num_images``.
        spoiled: The same, or some of them, by the name of what spoiled them. A name whose inputs
            are too few gets no sum.
        num_images: Number of different images. Those of one fold are left out of the fit, and their
            sums give the limit.
        share: Share of the inputs that may exceed a limit, before the margin.
        margin: How far limits are moved up, in standard deviations.
    """
    sums = {}
    for name, changed in spoiled.items():
        for ending in ("", BLOCKS):
            rows = [(i % num_images, _row(name + ending, s)) for i, s in enumerate(inputs)]
            changed_rows = [_row(name + ending, s) for s in changed]
            fitted = _fitted(
                np.array([image for image, row in rows if row]),
                np.array([row for _, row in rows if row]),
                np.array([row for row in changed_rows if row]),
                share,
            )
            if fitted is not None:
                limit = round(fitted.limit + margin, 3)
                sums[name + ending] = fitted._replace(limit=limit)
    return sums


def exceeded(sums: Mapping[str, FittedSum], statistics: PictureStatistics) -> list[str]:
    """Return the names of what a picture looks spoiled by, without the ending of pictures in JPEG.

    Args:
        sums: Those of `fit_sums`.
        statistics: What was measured in the picture.
    """
    names = []
    for name, fitted in sums.items():
        row = _row(name, statistics)
        if len(row) == len(fitted.weights) and np.dot(row, fitted.weights) > fitted.limit:
            names.append(name.removesuffix(BLOCKS))
    return names


def _row(name: str, statistics: PictureStatistics) -> tuple[float, ...]:
    """Return the numbers that a sum is made of; none for a picture that it is not made for."""
    has_blocks = statistics.block_edges > MIN_BLOCK_EDGES
    if not statistics.texture or has_blocks != name.endswith(BLOCKS):
        return ()
    row = (*statistics.spectrum, *statistics.texture, statistics.block_edges)
    if not name.startswith(COLOUR_NOISE):
        return row
    return (*row, *statistics.colours) if statistics.colours else ()


def _fitted(
    images: NDArray[np.int64], rows: Matrix, changed: Matrix, share: float
) -> FittedSum | None:
    if min(len(rows), len(changed)) < max(LEAST_INPUTS, rows.shape[-1]):
        return None
    excess = np.concatenate(
        [_left_out(rows, changed, images % NUM_FOLDS == fold) for fold in range(NUM_FOLDS)]
    )
    weights = np.round(-discriminant(rows, changed), 4)
    limit = float(rows.mean(0) @ weights + np.quantile(excess, 1 - share))
    return FittedSum(tuple(weights.tolist()), round(limit, 3))


def _left_out(rows: Matrix, changed: Matrix, is_out: NDArray[np.bool_]) -> Matrix:
    """Return the sums of inputs that were left out of the fit, above the mean of the others."""
    kept = rows[~is_out]
    return np.asarray((kept.mean(0) - rows[is_out]) @ discriminant(kept, changed))
