"""Traces that programs and devices leave in a picture: patterns, lines, dots, missing levels.

The functions look at windows of a picture, each ``(H, W)`` in 8-bit levels, as
`musigma.functional.picture_statistics.measure` cuts them out; they give one number each, or a few.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, unfold

BLOCK = 8
LAGS = (1, 2, 3, 4, 6, 8)
"""Distances, in pixels, at which `correlations` compares slopes."""

_GRID = (5, 6, 7)
"""Steps to the next column that the JPEG grid changes, out of eight; 6 crosses it."""

_LEAST_SIDE = 96
_IMPULSE_EXCESS = 10.0
"""An impulse lies so many levels further from its neighbours than these from each other."""

_LEAST_RANGE = 16
_MIDDLE = (0.05, 0.95)
_ROUNDING = 0.05
_NEIGHBOURS = (0, 1, 2, 3, 5, 6, 7, 8)
"""Places around the middle of 3 x 3 pixels."""


def shifted_blocks(planes: Sequence[Tensor]) -> float:
    """Return how much steps stand out that repeat every eight pixels beside the JPEG grid.

    They are the edges of blocks in a picture that was cut after it was saved, or in one of another
    codec. The number is the lesser of rows and columns; about 0.05 where there are none, and 0 for
    windows of fewer than 96 pixels, in which few blocks are.

    Example:
        >>> steps = 8.0 * ((torch.arange(128) + 3) // 8 % 2).expand(128, 128)
        >>> shifted_blocks([steps + steps.T]) > 1
        True
    """
    if min(planes[0].shape) < _LEAST_SIDE:
        return 0.0
    profiles = [_step_profile(planes, across=across) for across in (False, True)]
    kept = [i for i in range(BLOCK) if i not in _GRID]
    return min(float(p[kept].max() - p[kept].median()) for p in profiles)


def period_of_two(planes: Sequence[Tensor]) -> float:
    """Return how differently every other column or row is, beyond what JPEG blocks explain.

    Interpolated colours of a camera, pixels that were doubled and fields of video alternate.

    Example:
        >>> doubled = torch.rand(32, 32, generator=torch.Generator().manual_seed(0))
        >>> doubled = 99 * doubled.repeat_interleave(2, 0).repeat_interleave(2, 1)
        >>> period_of_two([doubled]) > 1
        True
    """
    alternating = []
    for across in (False, True):
        for profile in (_step_profile, _bend_profile):
            spectrum = torch.fft.rfft(profile(planes, across=across)).abs() / BLOCK
            # Blocks raise all multiples of 1/8 alike, alternation only the last one.
            alternating.append(float(spectrum[-1] - spectrum[1:-1].max()))
    return max(alternating)


def _step_profile(planes: Sequence[Tensor], *, across: bool) -> Tensor:
    """Return how much steps between columns exceed those beside them, by the place out of 8.

    A grid goes through the whole picture, what is shown hardly does: of both halves of a window the
    lesser counts.
    """
    profiles = []
    for plane in planes:
        steps = _log(torch.diff(plane.T if across else plane, dim=1))
        excess = steps[:, 1:-1] - (steps[:, :-2] + steps[:, 2:]) / 2
        halves = [_by_place(half.mean(0)) for half in excess.chunk(2)]
        profiles.append(torch.minimum(*halves))
    return torch.stack(profiles).mean(0)


def _bend_profile(planes: Sequence[Tensor], *, across: bool) -> Tensor:
    """Return how much values bend at columns, by the place out of 8."""
    profiles = []
    for plane in planes:
        bends = _log(torch.diff(plane.T if across else plane, n=2, dim=1)).mean(0)
        profiles.append(_by_place(bends[1:] - bends[:-1]) / 2)
    return torch.stack(profiles).mean(0)


def _log(values: Tensor) -> Tensor:
    return (values.abs() + 0.5).log2()


def _by_place(line: Tensor) -> Tensor:
    """Return the medians of a line's values at each place out of 8."""
    return line[: len(line) // BLOCK * BLOCK].view(-1, BLOCK).median(0).values


def lines(planes: Sequence[Tensor]) -> float:
    """Return how much typical rows or columns as a whole bend away from both neighbours, in levels.

    Few things that are shown are as wide as a window: of the medians over its left half and over
    its right half, the lesser counts where both have the same sign.

    Example:
        >>> noise = 5 * torch.randn(64, 1, generator=torch.Generator().manual_seed(0))
        >>> lines([100 + noise.expand(64, 64)]) > 3 > lines([torch.rand(64, 64)])
        True
    """
    ways = []
    for across in (False, True):
        bends = [_shared_bends(plane.T if across else plane) for plane in planes]
        ways.append(float(torch.cat(bends).median()))
    return max(ways)


def _shared_bends(plane: Tensor) -> Tensor:
    bends = torch.diff(plane, n=2, dim=0)
    half = bends.shape[1] // 2
    left, right = (part.median(1).values for part in (bends[:, :half], bends[:, half:]))
    return torch.minimum(left.abs(), right.abs()) * (left * right > 0)


def impulses(planes: Sequence[Tensor]) -> float:
    """Return the share of pixels that stand alone, in parts of 10000 as ``log2(parts + 1/2)``.

    Example:
        >>> dots = torch.full((64, 64), 100.0)
        >>> dots[::8, ::8] = 255
        >>> round(impulses([dots]))
        7
    """
    parts = [float(_is_impulse(plane).float().mean()) for plane in planes]
    return math.log2(10_000 * sum(parts) / len(parts) + 0.5)


def _is_impulse(plane: Tensor) -> Tensor:
    around = unfold(plane[None, None], 3)[0]
    middle, neighbours = around[4], around[list(_NEIGHBOURS)]
    low, high = neighbours.amin(0), neighbours.amax(0)
    return torch.maximum(middle - high, low - middle) > high - low + _IMPULSE_EXCESS


def empty_levels(windows: Sequence[Tensor]) -> float:
    """Return the share of 8-bit levels between the darkest and brightest that no pixel has.

    Args:
        windows: ``(C, H, W)`` each; the number is that of the median channel.

    Example:
        >>> levels = torch.arange(256.0).view(1, 16, 16)
        >>> empty_levels([levels]), round(empty_levels([levels // 8 * 8]), 2)
        (0.0, 0.87)
    """
    shares = sorted(
        _empty_share(torch.cat([window[channel].flatten() for window in windows]))
        for channel in range(len(windows[0]))
    )
    return shares[len(shares) // 2]


def _empty_share(values: Tensor) -> float:
    counts = torch.bincount(values.round().clamp(0, 255).long(), minlength=256)
    below = counts.cumsum(0) / counts.sum()
    low, high = (int((below < share).sum()) for share in _MIDDLE)
    if high - low < _LEAST_RANGE:
        return 0.0
    return float((counts[low : high + 1] == 0).float().mean())


def correlations(planes: Sequence[Tensor]) -> tuple[float, ...]:
    """Return how alike slopes are that lie `LAGS` apart; a halo around edges makes them opposite.

    Example:
        >>> ramp = torch.arange(64.0).expand(64, 64)
        >>> all(value > 0.9 for value in correlations([ramp + ramp.T]))
        True
    """
    sums = torch.zeros(1 + len(LAGS))
    for plane in planes:
        smooth = avg_pool2d(plane[None, None], 2, 1)[0, 0]
        for lines in (smooth, smooth.T):
            slopes = torch.diff(lines, dim=1)
            width = slopes.shape[1]
            products = [(slopes[:, : width - lag] * slopes[:, lag:]).mean() for lag in (0, *LAGS)]
            sums += torch.stack(products)
    return tuple((sums[1:] / (sums[0] + _ROUNDING)).tolist())


def coarse_contrasts(planes: Sequence[Tensor]) -> tuple[float, ...]:
    """Return the contrast of areas of 4 pixels over that of 8, and of 2 over that of 4, ``log2``.

    Example:
        >>> ramp = torch.arange(64.0).expand(64, 64)
        >>> [round(value, 1) for value in coarse_contrasts([ramp])]
        [-1.9, -1.8]
    """
    logs = []
    for side in (8, 4, 2):
        energies = []
        for plane in planes:
            means = avg_pool2d(plane[None, None], side)[0, 0]
            energies.append(sum(torch.diff(means, dim=dim).square().mean() for dim in (0, 1)))
        logs.append(math.log2(float(sum(energies)) / len(energies) + 1))
    return logs[1] - logs[0], logs[2] - logs[1]
