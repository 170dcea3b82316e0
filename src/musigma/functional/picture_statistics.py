"""What a picture went through, in a few numbers: noise, sharpness, blocks of JPEG.

Most numbers come from the discrete cosine transform of patches of 8 x 8 pixels; that of directions
comes from the Fourier transform of patches of 32 x 32. They are cut from at most sixteen windows
that are spread over the picture, so that a large picture costs no more than one of 512 x 512
pixels. `measure` reads the windows once; the functions beside it give one number each. A picture
that is too small or too flat to measure gets the number that a clean, sharp picture has.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Protocol

import torch
from torch import Tensor

from musigma.functional import picture_copies, picture_spectra, picture_traces
from musigma.types import ImageError

BLOCK = 8
"""Side of the patches, and of the blocks of JPEG."""

WINDOW = 128
"""Side of the windows of the picture that are looked at."""

WINDOWS_PER_SIDE = 4

MIN_SIDE = 24
"""A picture with a shorter side is too small to measure."""

CLEAN_SHARPNESS, CLEAN_ROLLOFF, CLEAN_SOFTEST = -5.8, -2.3, -5.6
"""What is said of a picture that is too small or too flat to tell: about the clean mean at x2."""

BANDS = ((1, 2.5), (2.5, 4), (4, 5.5), (5.5, 7), (7, 8.5), (8.5, 11))
"""Radii between which `PictureStatistics.spectrum` has the energies, out of 8 x 8 frequencies."""

_QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Of the sharpness of patches."""

_WHITE_EXCESS = 1.3
"""White noise may have so many times the variance in coarse details of what it has in fine ones."""

_STEP = 4
_FLAT_SHARE, _TEXTURED_SHARE = 1 / 20, 1 / 5
_FLAT_GROUPS = ((0.0, 0.1), (0.1, 0.2))
_MAX_GROWTH = 1.6
"""In noise, the standard deviation of one group of patches is at most so many times the other's."""

_LEAST_FLAT, _LEAST_TEXTURED = 32, 16
_CHI_MEDIAN = 0.4549
"""Median of the square of a standard normal variable."""

_ROUNDING = 0.05
"""Energy per coefficient that rounding to 8-bit levels leaves, in squared levels."""

_LEAST_ENERGY = 4.0
"""Patches whose coarse coefficients have less energy than this, in squared levels, are flat."""


class Windowed(Protocol):
    """A picture that is read in parts: a tensor, or the decoded samples of a file."""

    @property
    def shape(self) -> Any:
        """``(1, C, H, W)``."""

    def __getitem__(self, part: Any) -> Tensor:
        """Return a part as floats in ``[0, 1]``."""


@dataclass(frozen=True, kw_only=True)
class PictureStatistics:
    """What was measured in a picture.

    Attributes:
        noise_std: Standard deviation of white noise, in 8-bit levels.
        coarse_noise_std: The same from coarser details of the luma, which JPEG and smoothing leave
            when they remove the finest ones. It is not below `noise_std`, and equal to it where the
            coarse details are texture.
        sharpness: Energy of fine details over that of coarse ones, ``log2``; blur lowers it.
        rolloff: Energy of the very finest details over that of fine ones, ``log2``. A little blur
            before shrinking lowers it most.
        block_edges: How much quieter the blocks of the JPEG grid are than blocks between them; 0
            where there is no grid, 0.4 and more for JPEG.
        colour_grain_std: Noise of the colour differences that coarse details have and fine ones
            have not, in 8-bit levels; 0 for white noise and for grey pictures. Texture is mostly
            brightness, so that this is film grain, or noise after demosaicing.
        softest_direction: Energy of fine details over that of coarse ones, ``log2``, in the
            direction where it is least, plus how much less it is than the mean over directions.
            Blur lowers it, and blur in one direction, as by a moving camera, lowers it most.
        spectrum: Energies between `BANDS`, ``log2``: of the patches with the most coarse detail,
            then of all. Empty for a picture that is too small or too flat to tell.
        shifted_blocks: Blocks whose edges lie beside the JPEG grid, as
            `musigma.functional.picture_traces.shifted_blocks` finds them.
        period_of_two: How much every other row or column differs.
        lines: Noise that whole rows or columns share, in 8-bit levels.
        ripple: How far one fine frequency stands out from those around it, ``log2``.
        impulses: Pixels that stand alone, in parts of 10000, ``log2``.
        empty_levels: Share of the 8-bit levels that no pixel has.
        colour_shift: How far red and blue lie beside green, as
            `musigma.functional.picture_copies.colour_shift` finds it.
        echo: How much a second, weaker picture beside the first stands out.
        texture: What tells how a picture was processed, beside `spectrum`: typical energies between
            `BANDS` of the patches with the most coarse detail, of all, and of the flattest ones;
            correlations of slopes, coarse contrasts, differences between directions, and quantiles
            of the sharpness of patches. Empty where `spectrum` is.
        colours: Typical energies of the colour differences between `BANDS`, of all patches and of
            the flattest ones; empty for grey pictures too.
    """

    noise_std: float
    coarse_noise_std: float
    sharpness: float
    rolloff: float
    block_edges: float
    colour_grain_std: float = 0.0
    softest_direction: float = CLEAN_SOFTEST
    spectrum: tuple[float, ...] = ()
    shifted_blocks: float = 0.0
    period_of_two: float = 0.0
    lines: float = 0.0
    ripple: float = 0.0
    impulses: float = -1.0
    empty_levels: float = 0.0
    colour_shift: float = 0.0
    echo: float = 0.0
    texture: tuple[float, ...] = ()
    colours: tuple[float, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers by their names."""
        return asdict(self)


def measure(image: Windowed) -> PictureStatistics:
    """Measure noise, sharpness and blocks of a picture.

    Args:
        image: ``(1, C, H, W)`` in ``[0, 1]`` with C = 1 or 3: a tensor, or a picture that is read
            in parts by the same indices.

    Example:
        >>> grey = torch.full((1, 3, 64, 64), 0.5)
        >>> measure(grey).noise_std, measure(grey).block_edges
        (0.0, 0.0)
    """
    windows = list(_windows(image))
    if not windows:
        return PictureStatistics(
            noise_std=0.0,
            coarse_noise_std=0.0,
            sharpness=CLEAN_SHARPNESS,
            rolloff=CLEAN_ROLLOFF,
            block_edges=0.0,
        )
    mixed = [_mixed(window) for window in windows]
    luma = [planes[0] for planes in mixed]
    planes = [_energies([window[i] for window in mixed]) for i in range(len(mixed[0]))]
    energies, fine_std = planes[0], _noise_std(planes)
    powers, spectrum = picture_spectra.patch_powers(luma), _spectrum(energies)
    directions = picture_spectra.directions(powers)
    return PictureStatistics(
        noise_std=fine_std,
        coarse_noise_std=_coarse_noise_std(energies, fine_std=fine_std, num_planes=len(planes)),
        sharpness=_sharpness(energies),
        rolloff=_rolloff(energies),
        block_edges=_block_edges(luma),
        colour_grain_std=_colour_grain_std(planes),
        softest_direction=CLEAN_SOFTEST
        if directions is None
        else picture_spectra.softest(directions),
        spectrum=spectrum,
        shifted_blocks=picture_traces.shifted_blocks(luma),
        period_of_two=picture_traces.period_of_two(luma),
        lines=picture_traces.lines(luma),
        ripple=picture_spectra.ripple(powers),
        impulses=picture_traces.impulses(luma),
        empty_levels=picture_traces.empty_levels(windows),
        colour_shift=picture_copies.colour_shift(windows),
        echo=picture_copies.echo(luma),
        texture=_texture(luma, energies, directions) if spectrum else (),
        colours=_colours(planes) if spectrum else (),
    )


def noise_std(image: Windowed) -> float:
    """Return the standard deviation of white noise in 8-bit levels.

    It is read off the finest details of the flattest patches. In colour the level is the median
    over brightness and two colour differences: texture of the picture is mostly brightness, white
    noise is as strong in all three.

    Args:
        image: As for `measure`.

    Example:
        >>> from musigma.functional.sensor_noise import sensor_noise
        >>> grey, generator = torch.full((1, 3, 96, 96), 0.5), torch.Generator().manual_seed(0)
        >>> 9 < noise_std(sensor_noise(grey, std=10, generator=generator)) < 11
        True
    """
    return measure(image).noise_std


def sharpness(image: Windowed) -> float:
    """Return the energy of fine details over that of coarse ones, as a logarithm to base 2.

    Args:
        image: As for `measure`.

    Example:
        >>> image = torch.rand(1, 1, 96, 96, generator=torch.Generator().manual_seed(0))
        >>> sharpness(image) > sharpness(torch.nn.functional.avg_pool2d(image, 3, 1))
        True
    """
    return measure(image).sharpness


def block_edges(image: Windowed) -> float:
    """Return how much quieter the blocks of the JPEG grid are than blocks between them.

    JPEG rounds most fine coefficients of its blocks to 0. A block that lies across the grid has the
    edges between blocks in it, so that its coefficients are not 0. The number is the mean of
    ``log2(|coefficient| + 1/2)`` between the grid minus that on the grid. The grid must begin at
    the upper left corner of the picture.

    Args:
        image: As for `measure`.

    Example:
        >>> from musigma.functional.jpeg import jpeg
        >>> image = torch.rand(1, 1, 64, 64, generator=torch.Generator().manual_seed(0))
        >>> abs(block_edges(image)) < 0.1 < block_edges(jpeg(image, quality=30))
        True
    """
    return measure(image).block_edges


def window_slices(height: int, width: int) -> list[tuple[slice, slice]]:
    """Return rows and columns of the windows of a picture, which begin at multiples of 8.

    Example:
        >>> window_slices(100, 300)[-1]
        (slice(0, 100, None), slice(168, 296, None))
    """
    return [(rows, columns) for rows in _spread(height) for columns in _spread(width)]


def _spread(length: int) -> list[slice]:
    number = min(WINDOWS_PER_SIDE, -(-length // WINDOW))
    last = max(0, length - WINDOW)
    starts = {last * i // max(1, number - 1) // BLOCK * BLOCK for i in range(number)}
    return [slice(start, min(length, start + WINDOW)) for start in sorted(starts)]


def _windows(image: Windowed) -> Iterator[Tensor]:
    """Yield windows ``(1 or 3, H, W)`` in 8-bit levels."""
    shape = tuple(image.shape)
    if len(shape) != 4 or shape[0] != 1 or shape[1] not in (1, 3):
        raise ImageError(f"expected one image (1, 1 or 3, H, W) in [0, 1], got {shape}")
    if min(shape[2:]) < MIN_SIDE:
        return
    for rows, columns in window_slices(*shape[2:]):
        yield image[:, :, rows, columns][0].detach().float().cpu() * 255


def _mixed(window: Tensor) -> Tensor:
    """Return a window as orthogonal planes, brightness first."""
    return window if len(window) == 1 else torch.einsum("pc,chw->phw", _planes(), window)


@lru_cache(maxsize=1)
def _planes() -> Tensor:
    """Return the weights of JPEG's luma and of two colour differences, the latter of length 1."""
    red_blue, green_rest = (1, 0, -1), (1, -2, 1)
    rows: list[tuple[float, ...]] = [(0.299, 0.587, 0.114)]
    rows += [tuple(v / math.hypot(*row) for v in row) for row in (red_blue, green_rest)]
    return torch.tensor(rows)


LUMA_NORM = math.hypot(0.299, 0.587, 0.114)
"""Standard deviation of the luma of white noise of level 1 in all channels."""


@lru_cache(maxsize=1)
def _transform() -> Tensor:
    k = torch.arange(BLOCK, dtype=torch.float64)
    matrix = torch.cos(math.pi * (2 * k + 1) * k[:, None] / (2 * BLOCK)) * math.sqrt(2 / BLOCK)
    matrix[0] /= math.sqrt(2)
    return matrix.float()


@lru_cache(maxsize=1)
def _radii() -> Tensor:
    k = torch.arange(BLOCK, dtype=torch.float32)
    return torch.hypot(k[:, None], k)


def _band(low: float, high: float) -> Tensor:
    """Return which of the 8 x 8 frequencies lie at a radius from `low` to below `high`."""
    radii = _radii()
    return (radii >= low) & (radii < high)


def _coefficients(plane: Tensor, *, top: int = 0, left: int = 0, step: int = BLOCK) -> Tensor:
    """Return the transformed patches of a plane, ``(N, 8, 8)``."""
    patches = plane[top:, left:].unfold(0, BLOCK, step).unfold(1, BLOCK, step)
    matrix = _transform()
    return matrix @ patches.reshape(-1, BLOCK, BLOCK) @ matrix.T


def _energies(planes: list[Tensor]) -> Tensor:
    """Return the squared coefficients of overlapping patches of several planes, ``(N, 8, 8)``."""
    return torch.cat([_coefficients(plane, step=_STEP).square() for plane in planes])


def _flattest(coarse: Tensor) -> Tensor:
    """Return the indices of the patches with the least energy in coarse details."""
    number = min(len(coarse), max(_LEAST_FLAT, int(len(coarse) * _FLAT_SHARE)))
    return coarse.topk(number, largest=False).indices


def _robust_std(energies: Tensor, band: Tensor) -> float:
    """Return the standard deviation at the median frequency of a band, for the median patch.

    Texture has a direction: its energy lies in a few of the frequencies.
    """
    return math.sqrt(float(energies[:, band].median(0).values.quantile(0.5)) / _CHI_MEDIAN)


def _noise_std(planes: list[Tensor]) -> float:
    finest = torch.zeros(BLOCK, BLOCK, dtype=torch.bool)
    finest[BLOCK // 2 :, BLOCK // 2 :] = True
    coarse = sum((energies[:, _band(1, 4)].sum(1) for energies in planes), torch.zeros(()))
    flat = _flattest(coarse)
    levels = [_robust_std(energies[flat], finest) for energies in planes]
    if len(levels) == 1:
        return levels[0]
    levels[0] /= LUMA_NORM
    return sorted(levels)[1]


def _coarse_noise_std(energies: Tensor, *, fine_std: float, num_planes: int) -> float:
    """Return the level in coarse details, or `fine_std` where these are texture.

    Patches are ordered by one half of their frequencies and measured in the other: white noise is
    independent in both, texture is not. Noise is as strong in the next patches as in the flattest
    ones, texture grows.
    """
    half = _checkerboard()
    order = energies[:, _band(1, 6) & half].sum(1).argsort()
    flat, next_flat = (
        energies[order[int(low * len(order)) : max(_LEAST_FLAT, int(high * len(order)))]]
        for low, high in _FLAT_GROUPS
    )
    band = _band(3, 5.1) & ~half
    level = _robust_std(flat, band) / (1 if num_planes == 1 else LUMA_NORM)
    is_texture = _robust_std(next_flat, band) > _MAX_GROWTH * _robust_std(flat, band)
    return fine_std if is_texture else max(level, fine_std)


def _colour_grain_std(planes: list[Tensor]) -> float:
    """Return the excess of coarse over fine details in flat patches, of the lower colour plane."""
    if len(planes) == 1:
        return 0.0
    half = _checkerboard()
    order = torch.stack([energies[:, _band(1, 6) & half].sum(1) for energies in planes]).sum(0)
    flat = order.argsort()[: max(_LEAST_FLAT, int(_FLAT_GROUPS[0][1] * len(order)))]
    coarse, fine = (
        [_robust_std(energies[flat], _band(*band) & ~half) for energies in planes[1:]]
        for band in ((3, 5.1), (5, 7.1))
    )
    excess = (c**2 - _WHITE_EXCESS * f**2 for c, f in zip(coarse, fine, strict=True))
    return math.sqrt(max(0.0, min(excess)))


@lru_cache(maxsize=1)
def _checkerboard() -> Tensor:
    k = torch.arange(BLOCK)
    return (k[:, None] + k) % 2 == 0


def _textured(energies: Tensor) -> Tensor:
    """Return the patches with the most coarse detail; none where even these are flat."""
    coarse = energies[:, _band(1, 4)].mean(1)
    number = min(len(coarse), max(_LEAST_TEXTURED, int(len(coarse) * _TEXTURED_SHARE)))
    best = coarse.topk(number)
    return energies[best.indices[best.values >= _LEAST_ENERGY]]


def _log_energy(energies: Tensor, low: float, high: float) -> float:
    return math.log2(float(energies[:, _band(low, high)].mean()) + _ROUNDING)


def _sharpness(energies: Tensor) -> float:
    textured = _textured(energies)
    if not len(textured):
        return CLEAN_SHARPNESS
    return _log_energy(textured, 5, 8) - _log_energy(textured, 1, 3)


def _rolloff(energies: Tensor) -> float:
    textured = _textured(energies)
    if not len(textured):
        return CLEAN_ROLLOFF
    return _log_energy(textured, 7, 8) - _log_energy(textured, 4, 6)


def _spectrum(energies: Tensor) -> tuple[float, ...]:
    textured = _textured(energies)
    if not len(textured):
        return ()
    return tuple(_log_energy(part, *band) for part in (textured, energies) for band in BANDS)


def _texture(luma: list[Tensor], energies: Tensor, directions: Tensor | None) -> tuple[float, ...]:
    """Return the numbers that tell processing; `directions` are level where there are none."""
    if directions is None:
        directions = torch.zeros(picture_spectra.NUM_DIRECTIONS)
    mean = float(directions.mean())
    turns = (mean, mean - float(directions.min()), float(directions.max()) - mean)
    typical = (*_typical(_textured(energies)), *_typical(energies), *_floors(energies))
    slopes = (*picture_traces.correlations(luma), *picture_traces.coarse_contrasts(luma))
    return (*typical, *slopes, *turns, *_spread_of_sharpness(energies))


def _spread_of_sharpness(energies: Tensor) -> list[float]:
    """Return quantiles of fine over coarse energy in the half with more coarse detail."""
    fine, coarse = (
        (energies[:, _band(*band)].mean(1) + _ROUNDING).log2() for band in ((4, 7), (1, 4))
    )
    ratios = (fine - coarse)[coarse >= coarse.median()]
    return ratios.quantile(torch.tensor(_QUANTILES)).tolist()


def _colours(planes: list[Tensor]) -> tuple[float, ...]:
    """Return the means over both colour differences."""
    both = [(*_typical(energies), *_floors(energies)) for energies in planes[1:]]
    return tuple(sum(pair) / len(pair) for pair in zip(*both, strict=True))


def _typical(energies: Tensor) -> list[float]:
    """Return the mean logarithms of the energies between `BANDS`."""
    logs = (energies + _ROUNDING).log2().mean(0)
    return [float(logs[_band(*band)].mean()) for band in BANDS]


def _floors(energies: Tensor) -> list[float]:
    """Return the energies of the flattest patches between `BANDS`, ``log2``."""
    flat = energies[_flattest(energies[:, _band(1, 4)].sum(1))].median(0).values / _CHI_MEDIAN
    return [math.log2(float(flat[_band(*band)].mean()) + _ROUNDING) for band in BANDS]


def _block_edges(planes: list[Tensor]) -> float:
    half = BLOCK // 2
    aligned = torch.cat([_coefficients(plane) for plane in planes])
    shifts = ((0, half), (half, 0), (half, half))
    between = torch.cat(
        [_coefficients(plane, top=top, left=left) for plane in planes for top, left in shifts]
    )
    return _mean_log(between) - _mean_log(aligned)


def _mean_log(coefficients: Tensor) -> float:
    fine = coefficients[:, _band(2.5, 2 * BLOCK)]
    return float((fine.abs() + 0.5).log2().mean())
