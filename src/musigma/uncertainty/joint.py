"""How the errors of a picture are correlated between neighbors and between channels.

A standard deviation per pixel says nothing about the error of a sum of pixels. A joint model of the
errors does. `JointErrors` is what every such model offers. `StationaryErrors` needs no training: it
is the standard deviation of each value times a Gaussian field. The correlation of the field is the
same in all pictures and everywhere, apart from the position inside an input pixel. `Correlation`
holds that correlation, as it is stored with the weights.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad, pixel_shuffle, pixel_unshuffle

from musigma.types import ConfigError, ImageError
from musigma.uncertainty.stored_table import checked_table, real, whole

BAND = 32
"""Rows and columns of input pixels that are computed at a time, so that memory stays fixed."""

MAX_BLOCK = 32
"""Side in result pixels of the blocks whose likelihood is computed as a whole."""

MAX_REACH = 64
"""Largest side of the square of result pixels, around an input pixel, that correlations reach."""

_LEAST_POWER = 1e-3
"""Least power of a field in any direction: rounding alone keeps it above zero."""


class JointErrors(Protocol):
    """A joint distribution of the errors of one picture, ``target - mean``.

    Attributes:
        std: Standard deviation of each value, ``(C, H, W)``.
        shift: Expected error of each value, which broadcasts to the same shape; mostly zero.
    """

    std: Tensor
    shift: Tensor

    def to(self, device: torch.device) -> "JointErrors":
        """Return the same model on a device, where it then draws samples; some stay on the CPU."""
        ...

    def variance_of(self, weights: Tensor) -> float:
        """Return the variance of the weighted sum of all errors; weights are ``(C, H, W)``."""
        ...

    def sample(self, num_samples: int, generator: torch.Generator) -> Tensor:
        """Draw errors, ``(num_samples, C, H, W)``; the generator is on the device of `std`."""
        ...

    def log_likelihood(self, residual: Tensor) -> float:
        """Return the log density of a residual ``(C, H, W)`` in nats, divided by its size."""
        ...


@dataclass(frozen=True, kw_only=True)
class Correlation:
    """The covariance of errors that were divided by their standard deviation.

    Channels are turned into sums and differences first (a cosine transform), which hardly
    correlate. For each of them `values` has one number for each pair of result pixels, of which the
    first lies in an input pixel and the second at most `radius` input pixels away. Pairs that a
    flip, a quarter turn or an exchange of the two turns into each other share a number.

    Attributes:
        scale: Result pixels to an input pixel, along a side.
        radius: Reach in input pixels. Beyond it errors share `common` alone.
        values: A row for each transformed channel, without what is common.
        common: For each transformed channel the covariance of values that are far from each other:
            a part of the error that a whole region shares.

    Example:
        >>> independent = Correlation.independent(scale=2, radius=1, channels=3)
        >>> len(independent.values), len(independent.values[0])
        (3, 16)
    """

    scale: int
    radius: int
    values: tuple[tuple[float, ...], ...]
    common: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse what no fit would give: the numbers may come from a file."""
        check_reach(self.scale, self.radius)
        expected = pair_classes(self.scale, self.radius).num_classes
        if not 1 <= len(self.values) <= 4 or any(len(row) != expected for row in self.values):
            raise ConfigError(
                f"correlations of scale {self.scale} and radius {self.radius} have 1 to 4 rows of "
                f"{expected} numbers, got {[len(row) for row in self.values][:8]}"
            )
        rows = np.array(self.values, np.float64)
        if len(self.common) != len(rows) or not all(0 <= part <= 100 for part in self.common):
            raise ConfigError("correlations have a common part from 0 to 100 for each row")
        if not (np.isfinite(rows).all() and (np.abs(rows) <= 100).all()):
            raise ConfigError("correlations must be finite numbers from -100 to 100")
        if not (
            self.covariances().diagonal(axis1=-2, axis2=-1)[:, self.radius, self.radius] > 0
        ).all():
            raise ConfigError("the variance of a field must be positive")

    @classmethod
    def independent(cls, *, scale: int, radius: int, channels: int) -> "Correlation":
        """Return the covariance of independent errors."""
        check_reach(scale, radius)
        row = pair_classes(scale, radius).average(_identity(scale, radius))
        values, common = (tuple(row.tolist()),) * channels, (0.0,) * channels
        return cls(scale=scale, radius=radius, values=values, common=common)

    @property
    def channels(self) -> int:
        """The number of channels of a picture."""
        return len(self.values)

    def covariances(self) -> NDArray[np.float64]:
        """Return all covariances, ``(channels, 2 radius + 1, 2 radius + 1, scale^2, scale^2)``."""
        classes = pair_classes(self.scale, self.radius)
        return np.stack([np.array(row)[classes.class_of] for row in self.values])

    @property
    def filters(self) -> "FieldFilters":
        """The filters that make such a field from white noise."""
        return _make_filters(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        values = [[round(value, 5) for value in row] for row in self.values]
        common = [round(value, 6) for value in self.common]
        return {"scale": self.scale, "radius": self.radius, "values": values, "common": common}

    @classmethod
    def from_dict(cls, data: Any) -> "Correlation":
        """Return what `to_dict` described, or say what is wrong with it."""
        table = checked_table(data, {"scale", "radius", "values", "common"}, "correlations")
        scale, radius = (whole(table[key]) for key in ("scale", "radius"))
        check_reach(scale, radius)
        try:
            values = tuple(tuple(map(real, row)) for row in table["values"])
            common = tuple(map(real, table["common"]))
        except TypeError as error:
            raise ConfigError("the values of correlations are rows of numbers") from error
        return cls(scale=scale, radius=radius, values=values, common=common)


class PairClasses(NamedTuple):
    """Which pairs of result pixels share a number.

    Attributes:
        class_of: Number of the class of each pair, in the shape of a covariance.
        num_classes: How many classes there are.
    """

    class_of: NDArray[np.int64]
    num_classes: int

    def average(self, covariance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the mean of a covariance over each class."""
        flat = self.class_of.ravel()
        sums = np.bincount(flat, weights=covariance.ravel(), minlength=self.num_classes)
        return sums / np.bincount(flat, minlength=self.num_classes)


@lru_cache(maxsize=16)
def pair_classes(scale: int, radius: int) -> PairClasses:
    """Return the classes of pairs that flips, quarter turns and exchange leave alike.

    Example:
        >>> pair_classes(1, 1).num_classes  # the same pixel, one beside it, one across the corner
        3
    """
    side = 2 * radius + 1
    offsets = np.stack(np.meshgrid(*[np.arange(side) - radius] * 2, indexing="ij"), -1)
    phases = np.stack(np.meshgrid(*[np.arange(scale)] * 2, indexing="ij"), -1).reshape(-1, 2)
    shape = (side, side, scale**2, scale**2, 2)
    first = np.broadcast_to(phases[:, None], shape)
    second = np.broadcast_to(phases + scale * offsets[:, :, None, None], shape)
    swapped = (second % scale, first - scale * (second // scale))
    codes = [
        _pair_code(_turned(a, turn, scale), _turned(b, turn, scale), scale, radius)
        for a, b in ((first, second), swapped)
        for turn in range(8)
    ]
    names, index = np.unique(np.min(codes, axis=0), return_inverse=True)
    return PairClasses(index.reshape(shape[:-1]), len(names))


def _turned(points: NDArray[np.int64], turn: int, scale: int) -> NDArray[np.int64]:
    """Flip and transpose points around the middle of the input pixel at the origin."""
    rows, columns = points[..., 0], points[..., 1]
    rows = scale - 1 - rows if turn & 1 else rows
    columns = scale - 1 - columns if turn & 2 else columns
    return np.stack((columns, rows) if turn & 4 else (rows, columns), -1)


def _pair_code(
    first: NDArray[np.int64], second: NDArray[np.int64], scale: int, radius: int
) -> NDArray[np.int64]:
    reach = scale * (2 * radius + 1)
    rows, columns = (second[..., axis] + scale * radius for axis in (0, 1))
    code: NDArray[np.int64] = (first[..., 0] * scale + first[..., 1]) * reach**2
    return code + rows * reach + columns


def _identity(scale: int, radius: int) -> NDArray[np.float64]:
    side = 2 * radius + 1
    covariance = np.zeros((side, side, scale**2, scale**2))
    covariance[radius, radius] = np.eye(scale**2)
    return covariance


def channel_transform(channels: int) -> Tensor:
    """Return the orthonormal cosine transform of channels: the sum first, then differences.

    Example:
        >>> channel_transform(3)[0]
        tensor([0.5774, 0.5774, 0.5774])
    """
    k, c = torch.arange(channels)[:, None], torch.arange(channels)
    rows = torch.cos(math.pi * k * (2 * c + 1) / (2 * channels))
    return rows / rows.norm(dim=1, keepdim=True)


class FieldFilters(NamedTuple):
    """What makes a correlated field from white noise, with a standard deviation of one.

    Attributes:
        kernels: Filters on the grid of input pixels, ``(channels, scale^2, scale^2, K, K)`` with K
            odd: from the noise at each position in an input pixel to the field at each.
        stds: Standard deviation of the field before it is scaled to one, ``(channels, scale^2)``,
            for the channels of the picture.
        common: Standard deviation of what all values share, ``(channels,)``, transformed.
    """

    kernels: Tensor
    stds: Tensor
    common: Tensor


@lru_cache(maxsize=8)
def _make_filters(correlation: Correlation) -> FieldFilters:
    side = 4 * correlation.radius + 3
    covariances = torch.from_numpy(correlation.covariances())
    radius = correlation.radius
    padded = pad(covariances.permute(0, 3, 4, 1, 2), [radius + 1] * 4)
    spectrum = torch.fft.fft2(padded.roll((-(side // 2),) * 2, (-2, -1))).permute(0, 3, 4, 1, 2)
    # A covariance that was cut off may have negative powers; these become the least power.
    powers, vectors = torch.linalg.eigh((spectrum + spectrum.mH) / 2)
    least = _LEAST_POWER * float(powers.abs().mean())
    roots = vectors * powers.clamp_min(least).sqrt()[..., None, :] @ vectors.mH
    kernels = torch.fft.ifft2(roots.permute(0, 3, 4, 1, 2)).real
    kernels = kernels.roll((side // 2,) * 2, (-2, -1))
    common = torch.tensor(correlation.common, dtype=torch.float64)
    variances = kernels.square().sum((2, 3, 4)) + common[:, None]
    mixed = channel_transform(correlation.channels).double().square().T @ variances
    return FieldFilters(kernels.float().contiguous(), mixed.sqrt().float(), common.sqrt().float())


class StationaryErrors:
    """Standard deviations times a Gaussian field with a fixed correlation.

    Args:
        std: Standard deviation of each value, ``(C, H, W)``; sides are multiples of the scale.
        correlation: Of the errors in units of their standard deviation.

    Example:
        >>> std = torch.full((3, 8, 8), 0.1)
        >>> errors = StationaryErrors(std, Correlation.independent(scale=2, radius=1, channels=3))
        >>> round(errors.variance_of(torch.full((3, 8, 8), 1 / 192)) ** 0.5 * 192**0.5, 4)
        0.1
    """

    def __init__(self, std: Tensor, correlation: Correlation) -> None:
        expected, scale = correlation.channels, correlation.scale
        if std.ndim != 3 or len(std) != expected or std.shape[1] % scale or std.shape[2] % scale:
            raise ImageError(
                f"expected standard deviations ({expected}, H, W) with sides that are multiples of "
                f"{scale}, got {tuple(std.shape)}"
            )
        self.std, self.correlation = std.detach().float().cpu(), correlation
        self.shift = torch.zeros(1)

    def to(self, device: torch.device) -> "StationaryErrors":  # noqa: ARG002
        """Return itself: this model computes on the CPU."""
        return self

    def variance_of(self, weights: Tensor) -> float:
        """Return the variance of the weighted sum of all errors.

        Args:
            weights: ``(C, H, W)``, such as one over the number of pixels inside a box and zero
                outside. Only the part that is not zero takes time.
        """
        if weights.shape != self.std.shape:
            raise ImageError(
                f"expected weights of shape {tuple(self.std.shape)}, got {tuple(weights.shape)}"
            )
        rows, columns = support(weights, self.correlation.scale)
        scaled = weights[:, rows, columns].float() * self.std[:, rows, columns]
        return float(filtered_power(scaled[None], self.correlation))

    def sample(self, num_samples: int, generator: torch.Generator) -> Tensor:
        """Draw errors, ``(num_samples, C, H, W)``, one after the other."""
        shape = tuple(self.std.shape)
        return torch.stack(
            [draw_field(shape, self.correlation, generator) * self.std for _ in range(num_samples)]
        )

    def log_likelihood(self, residual: Tensor) -> float:
        """Return the log density of a residual in nats, divided by its number of values.

        The picture is cut into blocks of `MAX_BLOCK` pixels, which count as independent of each
        other. So memory stays fixed, and the density still has an integral of one.
        """
        field = residual.float() / self.std
        total = field_log_density(field, self.correlation) - float(self.std.double().log().sum())
        return total / field.numel()


def support(weights: Tensor, scale: int = 1) -> tuple[slice, slice]:
    """Return the rows and columns, in whole input pixels, outside of which weights are zero.

    Example:
        >>> weights = torch.zeros(3, 8, 8)
        >>> weights[0, 3, 5:7] = 1
        >>> support(weights, 2)
        (slice(2, 4, None), slice(4, 8, None))
    """
    parts = []
    places = (weights != 0).any(0)
    for other_axis in (1, 0):
        used = places.any(other_axis).nonzero().flatten()
        first, last = (int(used[0]), int(used[-1])) if len(used) else (0, 0)
        parts.append(slice(first // scale * scale, (last // scale + 1) * scale))
    return parts[0], parts[1]


def _transformed(planes: Tensor, correlation: Correlation, factors: Tensor) -> Tensor:
    """Split into positions inside an input pixel, scale, and transform the channels."""
    phases = pixel_unshuffle(planes[..., None, :, :], correlation.scale)
    transform = channel_transform(correlation.channels)
    return torch.einsum("kc,...cphw->...kphw", transform, phases * factors[..., None, None])


def filtered_power(scaled: Tensor, correlation: Correlation) -> Tensor:
    """Return the variance of sums of a field times `scaled`, ``(N, C, H, W)``, for each of N."""
    kernels, stds, common = correlation.filters
    reach = kernels.shape[-1] // 2
    planes = _transformed(scaled, correlation, 1 / stds)
    shared = planes.double().sum((-3, -2, -1)) * common
    total = shared.square().sum(1)
    for part in _windows(pad(planes, [2 * reach] * 4), reach):
        for channel, kernel in enumerate(kernels):
            # The adjoint of the filter: positions exchanged, and the kernel turned around.
            response = filter_inside(part[:, channel], kernel.transpose(0, 1).flip(-1, -2))
            total += response.double().square().sum((-3, -2, -1))
    return total


def draw_field(
    shape: tuple[int, ...], correlation: Correlation, generator: torch.Generator
) -> Tensor:
    """Draw a field with a standard deviation of one, ``(C, H, W)``."""
    kernels, stds, common = correlation.filters
    scale, reach = correlation.scale, kernels.shape[-1] // 2
    size = (shape[1] // scale + 2 * reach, shape[2] // scale + 2 * reach)
    fields = []
    for kernel, shared in zip(kernels, common, strict=True):
        noise = torch.randn(1, scale**2, *size, generator=generator)
        fields.append(_filtered(noise, kernel) + shared * torch.randn(1, generator=generator))
    transform = channel_transform(correlation.channels)
    mixed = torch.einsum("kc,kphw->cphw", transform, torch.stack(fields))
    return pixel_shuffle(mixed / stds[..., None, None], scale)[:, 0]


def _filtered(noise: Tensor, kernel: Tensor) -> Tensor:
    """Filter by bands of rows, and return ``(positions, rows, columns)``."""
    reach = kernel.shape[-1] // 2
    rows = noise.shape[-2] - 2 * reach
    bands = [
        filter_inside(noise[:, :, top : min(top + BAND, rows) + 2 * reach], kernel)
        for top in range(0, rows, BAND)
    ]
    return torch.cat(bands, 2)[0]


def filter_inside(planes: Tensor, kernel: Tensor) -> Tensor:
    """Do what ``torch.nn.functional.conv2d`` does, by Fourier transforms: kernels are large here.

    Args:
        planes: ``(N, P, H, W)``.
        kernel: ``(Q, P, K, K)``.

    Example:
        >>> planes, kernel = torch.rand(2, 4, 20, 17), torch.rand(3, 4, 5, 5)
        >>> expected = torch.nn.functional.conv2d(planes, kernel)
        >>> torch.allclose(filter_inside(planes, kernel), expected, rtol=1e-3)
        True
    """
    size, side = (planes.shape[-2], planes.shape[-1]), kernel.shape[-1]
    responses = torch.fft.rfft2(kernel, s=size).conj()  # the kernel is not turned around
    waves = torch.einsum("qphw,nphw->nqhw", responses, torch.fft.rfft2(planes))
    filtered = torch.fft.irfft2(waves, s=size)
    return filtered[..., : size[0] - side + 1, : size[1] - side + 1]


def _windows(planes: Tensor, reach: int) -> Iterator[Tensor]:
    """Yield parts with a border of `reach`, so that filtering them gives every place once."""
    height, width = (side - 2 * reach for side in planes.shape[-2:])
    for top in range(0, height, BAND):
        for left in range(0, width, BAND):
            bottom, right = min(top + BAND, height), min(left + BAND, width)
            yield planes[..., top : bottom + 2 * reach, left : right + 2 * reach]


def field_log_density(field: Tensor, correlation: Correlation) -> float:
    """Return the log density of a field ``(C, H, W)`` in nats, as a sum over independent blocks."""
    stds = correlation.filters.stds
    planes = _transformed(field, correlation, stds).double()
    positions = planes.shape[-2] * planes.shape[-1]
    total = float(stds.double().log().sum()) * positions
    side = max(1, MAX_BLOCK // correlation.scale)
    for rows in torch.split(planes, side, 2):
        whole_blocks = rows.shape[3] // side * side
        for part, width in ((rows[..., :whole_blocks], side), (rows[..., whole_blocks:], None)):
            if part.shape[3]:
                total += _row_log_density(part, correlation, width or part.shape[3])
    return total - field.numel() * math.log(2 * math.pi) / 2


def _row_log_density(rows: Tensor, correlation: Correlation, width: int) -> float:
    """Return the log density of a row of blocks ``(channels, positions, h, n w)`` up to 2 pi."""
    blocks = rows.reshape(*rows.shape[:3], -1, width).permute(0, 1, 2, 4, 3).flatten(1, 3)
    factors, log_determinant = _block_factors(correlation, (rows.shape[2], width))
    whitened = torch.linalg.solve_triangular(factors, blocks, upper=False)
    return -0.5 * (float(whitened.square().sum()) + log_determinant * blocks.shape[-1])


@lru_cache(maxsize=4)
def _block_factors(correlation: Correlation, size: tuple[int, int]) -> tuple[Tensor, float]:
    """Return Cholesky factors of the covariance of a block, ``(channels, n, n)``, and its log det.

    Values are ordered by position inside an input pixel, row and column.
    """
    covariance = _model_covariance(correlation)
    middle = covariance.shape[-1] // 2
    ahead = [
        (torch.arange(side) - torch.arange(side)[:, None]).clamp(-middle, middle) + middle
        for side in size
    ]
    dense = covariance[:, :, :, ahead[0][:, None, :, None], ahead[1][None, :, None, :]]
    dense = dense.permute(0, 1, 3, 4, 2, 5, 6).flatten(4, 6).flatten(1, 3)
    dense = dense + torch.tensor(correlation.common, dtype=dense.dtype)[:, None, None]
    nugget = _LEAST_POWER * _LEAST_POWER * torch.eye(dense.shape[-1], dtype=dense.dtype)
    factors = torch.linalg.cholesky(dense + nugget)
    return factors, 2 * float(factors.diagonal(dim1=-2, dim2=-1).log().sum())


def _model_covariance(correlation: Correlation) -> Tensor:
    """Return what the filters make of white noise, ``(channels, positions, positions, K, K)``.

    The last offset on each side is zero, and stands for all those that are farther.
    """
    kernels = correlation.filters.kernels.double()
    side = 2 * kernels.shape[-1] + 1
    responses = torch.fft.fft2(kernels, s=(side, side)).permute(0, 3, 4, 1, 2)
    power = (responses @ responses.mH).permute(0, 3, 4, 1, 2)
    return torch.fft.ifft2(power).real.roll((side // 2,) * 2, (-2, -1))


def check_reach(scale: int, radius: int) -> None:
    """Refuse a scale or a radius that would take too much memory, or makes no sense."""
    if not (1 <= scale <= 8 and radius >= 0 and scale * (2 * radius + 1) <= MAX_REACH):
        raise ConfigError(
            f"correlations have a scale from 1 to 8 and reach over at most {MAX_REACH} pixels, got "
            f"scale {scale} and radius {radius}"
        )
