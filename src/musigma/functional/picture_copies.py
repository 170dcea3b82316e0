"""Displaced copies in a picture: colours that a lens shifts, and a second picture beside the first.

The functions look at windows of a picture in 8-bit levels, as
`musigma.functional.picture_statistics.measure` cuts them out.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

_STEPS = ((0, 1), (1, 0), (1, 1), (1, -1))
"""Rows and columns by which `colour_shift` moves one colour against another."""

_BORDER = 4
_LEAST_DETAIL = 1.0
"""Windows whose green has less fine detail than this, in squared levels, tell no shift."""

_REACH, _NEAREST, _AROUND = 12, 3.0, 2
_LEAST_SIDE = 2 * (2 * _REACH + _AROUND + 1)
_GRID = 8
_ROUNDING = 0.25
"""Variance that hides echoes in what is too faint to be seen, in squared levels."""


def colour_shift(windows: Sequence[Tensor]) -> float:
    """Return how much better red and blue fit green when they are moved, in opposite directions.

    A lens that enlarges red less than blue does this, with the same sign along a direction in each
    window, so that the mean of the windows' largest numbers counts. It is about 0.05 where colours
    lie upon each other, and 2 for a pixel to either side. JPEG with coarse colours hides it.

    Args:
        windows: ``(C, H, W)`` each; the number is 0 for grey ones.

    Example:
        >>> picture = 255 * torch.rand(1, 64, 64, generator=torch.Generator().manual_seed(0))
        >>> moved = torch.cat([picture.roll(1, 2), picture, picture.roll(-1, 2)])
        >>> colour_shift([moved]) > 1 > colour_shift([picture.expand(3, 64, 64)])
        True
    """
    shifts = [_shift(window) for window in windows if len(window) > 1]
    told = [shift for shift in shifts if shift is not None]
    return sum(told) / len(told) if told else 0.0


def _shift(window: Tensor) -> float | None:
    fine = window - avg_pool2d(window[None], 3, 1, 1, count_include_pad=False)[0]
    red, green, blue = fine
    inner = green[_BORDER:-_BORDER, _BORDER:-_BORDER]
    if float(inner.square().mean()) < _LEAST_DETAIL:
        return None
    gains = [
        [_fit(colour, inner, *step) - _fit(colour, inner, *(-s for s in step)) for step in _STEPS]
        for colour in (red, blue)
    ]
    return max(abs(of_red - of_blue) for of_red, of_blue in zip(*gains, strict=True))


def _fit(colour: Tensor, green: Tensor, down: int, right: int) -> float:
    """Return the correlation of a moved colour with the inner part of another."""
    height, width = green.shape
    top, left = _BORDER + down, _BORDER + right
    part = colour[top : top + height, left : left + width]
    length = (part.square().sum() * green.square().sum()).sqrt() + 1
    return float((part * green).sum() / length)


def echo(planes: Sequence[Tensor]) -> float:
    """Return how much one displacement stands out by which the picture repeats itself.

    Reflections, double exposures and frames that were averaged leave a second, weaker picture
    beside the first. Its weight over that of the first is the height of a peak in the cepstrum (the
    spectrum of the logarithm of the spectrum) at its displacement, here of 3 to 12 pixels. The
    number is the largest height above all values around a peak, less the height at twice the
    displacement, which patterns have. Multiples of 8 pixels are left out, where the blocks of JPEG
    have peaks. It is 0 for windows that are too small to tell.

    Args:
        planes: Brightness of the windows, ``(H, W)`` each.

    Example:
        >>> picture = 255 * torch.rand(64, 64, generator=torch.Generator().manual_seed(0))
        >>> echo([0.7 * picture + 0.3 * picture.roll(5, 1)]) > 0.2 > echo([picture])
        True
    """
    if min(planes[0].shape) < _LEAST_SIDE:
        return 0.0
    mean = torch.stack([_cepstrum(plane) for plane in planes]).mean(0)
    side = 2 * _AROUND + 1
    places = mean.unfold(0, side, 1).unfold(1, side, 1)
    around = places.clone()
    around[:, :, 1:-1, 1:-1] = -torch.inf  # the peak itself may be two pixels wide
    peaks = places[:, :, _AROUND, _AROUND] - around.amax((2, 3))
    # A pattern repeats itself at twice the distance, too, where an echo has no peak.
    heights = peaks[_REACH:-_REACH, _REACH:-_REACH] - peaks[::2, ::2].clamp_min(0)
    line = torch.arange(-_REACH, _REACH + 1)
    is_near = torch.hypot(line[:, None].float(), line.float()) < _NEAREST
    is_on_grid = (line[:, None] % _GRID == 0) & (line % _GRID == 0)
    return max(0.0, float(heights[~is_near & ~is_on_grid].max()))


def _cepstrum(plane: Tensor) -> Tensor:
    """Return the cepstrum at displacements as far as `echo` looks, none in the middle."""
    height, width = plane.shape
    taper = torch.outer(*(torch.hann_window(side, periodic=False) for side in plane.shape))
    power = torch.fft.rfft2((plane - plane.mean()) * taper).abs().square()
    faint = _ROUNDING * float(taper.square().sum())
    cepstrum = torch.fft.fftshift(torch.fft.irfft2((power + faint).log(), s=(height, width)))
    reach = 2 * _REACH + _AROUND
    rows, columns = (slice(n // 2 - reach, n // 2 + reach + 1) for n in (height, width))
    return cepstrum[rows, columns]
