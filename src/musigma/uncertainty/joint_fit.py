"""Estimate the correlation of errors from held-out images."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pixel_unshuffle

from musigma.types import DataError
from musigma.uncertainty.joint import (
    Correlation,
    channel_transform,
    check_reach,
    pair_classes,
)

REACH = {1: 8, 2: 6, 3: 3, 4: 3}
"""Radius of the correlations by scale, in input pixels; at least 8 result pixels."""

LARGEST = 5.0
"""Larger errors, in standard deviations, count as this one: a few would outweigh all others."""

TRIMMED = 0.1
"""Share of the images at either end that each number of a fit leaves out.

In a few nearly flat pictures all errors are alike; they would set the numbers for all others.
"""

SHRINKAGE = 0.05
"""Share of independent errors in a fit, so that no direction has hardly any error at all."""


class HeldOutErrors:
    """Mean products of errors of held-out images: a few thousand numbers for each.

    Args:
        scale: Zoom factor.
        channels: Channels of the pictures.
        radius: Reach in input pixels; by default that of `REACH`.
    """

    def __init__(self, *, scale: int, channels: int, radius: int | None = None) -> None:
        self.scale, self.channels = scale, channels
        self.radius = REACH.get(scale, 2) if radius is None else radius
        check_reach(scale, self.radius)
        self.near: list[NDArray[np.float64]] = []
        self.far: list[NDArray[np.float64]] = []

    def update(self, field: Tensor) -> None:
        """Add an image: residuals over standard deviations, ``(C, H, W)``.

        Every image counts alike, and is scaled so that its mean square is one.
        """
        clipped = field.clamp(-LARGEST, LARGEST)
        clipped = clipped / clipped.square().mean().sqrt().clamp_min(1e-6)
        phases = pixel_unshuffle(clipped[:, None], self.scale)
        planes = torch.einsum("kc,cphw->kphw", channel_transform(self.channels), phases)
        if min(planes.shape[-2:]) <= 2 * self.radius + 2:
            raise DataError(
                f"an image of {tuple(field.shape)} values is too small for correlations that reach "
                f"over {self.radius} input pixels"
            )
        products = mean_products(planes, self.radius).numpy()
        classes = pair_classes(self.scale, self.radius)
        self.near.append(np.stack([classes.average(part) for part in products]))
        self.far.append(far_products(planes.mean(1), self.radius).numpy())

    @property
    def num_images(self) -> int:
        """The number of images seen."""
        return len(self.far)

    def fit(self) -> Correlation:
        """Return the correlation of all images seen."""
        if not self.num_images:
            raise DataError("a correlation needs at least one held-out image")
        common = _trimmed_mean(np.stack(self.far)).clip(min=0).round(6)
        rows = _trimmed_mean(np.stack(self.near)) - common[:, None]
        none = Correlation.independent(
            scale=self.scale, radius=self.radius, channels=self.channels
        ).values
        mixed = [
            ((1 - SHRINKAGE) * row + SHRINKAGE * np.array(other)).round(5).tolist()
            for row, other in zip(rows, none, strict=True)
        ]
        return Correlation(
            scale=self.scale,
            radius=self.radius,
            values=tuple(map(tuple, mixed)),
            common=tuple(common.tolist()),
        )


def mean_products(planes: Tensor, radius: int) -> Tensor:
    """Return mean products at each offset, ``(K, 2 radius + 1, 2 radius + 1, P, P)``.

    Args:
        planes: ``(K, P, H, W)``.
        radius: The largest offset; a product is of a place and of the place that offset away.
    """
    channels, phases, height, width = planes.shape
    side = 2 * radius + 1
    products = planes.new_zeros(channels, side, side, phases, phases, dtype=torch.float64)
    for down in range(-radius, radius + 1):
        for right in range(-radius, radius + 1):
            first = planes[..., max(-down, 0) : height - max(down, 0), :]
            second = planes[..., max(down, 0) : height + min(down, 0), :]
            first = first[..., max(-right, 0) : width - max(right, 0)].flatten(2)
            second = second[..., max(right, 0) : width + min(right, 0)].flatten(2)
            mean = first @ second.transpose(1, 2) / first.shape[-1]
            products[:, down + radius, right + radius] = mean
    return products


def far_products(planes: Tensor, radius: int) -> Tensor:
    """Return the mean product of places more than `radius` and at most twice that apart, ``(K,)``.

    Args:
        planes: ``(K, H, W)``.
        radius: Of the correlations that are known one by one.
    """
    reach = min(2 * radius + 1, min(planes.shape[-2:]) - 1)
    near, wide = (mean_products(planes[:, None], side) for side in (radius, reach))
    sums = wide.sum((1, 2, 3, 4)) - near.sum((1, 2, 3, 4))
    return sums / ((2 * reach + 1) ** 2 - (2 * radius + 1) ** 2)


def _trimmed_mean(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean over the first axis without its least and its largest values."""
    left_out = int(TRIMMED * len(rows))
    kept: NDArray[np.float64] = np.sort(rows, axis=0)[left_out : len(rows) - left_out]
    return kept.mean(axis=0)
