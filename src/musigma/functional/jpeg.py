"""JPEG as tensor operations: what a picture looks like after libjpeg has saved and read it.

The steps are those of libjpeg with its default, the accurate integer transform: fixed-point
constants, and the same rounding of colors, of the chroma average, of the quantization tables,
between the two passes of a transform and in the chroma interpolation. Sums of more than 24 bits are
not exact in float32, which moves a value in some thousands by a level.

Nothing depends on the values of a tensor but other values, so that the whole can be compiled and
captured in a CUDA graph, and every image of a batch may have its own quality.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from musigma.functional.geometry import pad
from musigma.types import ImageError

BLOCK = 8
"""Side of the blocks that are transformed and quantized."""

# Annex K of the JPEG standard, for quality 50.
_LUMA_TABLE = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
_CHROMA_TABLE = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    (99, 99, 99, 99, 99, 99, 99, 99),
    (99, 99, 99, 99, 99, 99, 99, 99),
    (99, 99, 99, 99, 99, 99, 99, 99),
    (99, 99, 99, 99, 99, 99, 99, 99),
)


def jpeg(image: Tensor, *, quality: float | Tensor, subsampling: bool | Tensor = True) -> Tensor:
    """Return images as they are after saving them as JPEG and reading them again.

    Args:
        image: ``(N, 3, H, W)`` or ``(N, 1, H, W)``, float in ``[0, 1]``; rounded to 8 bits first.
        quality: libjpeg's, 1 to 100, rounded to an integer; a number, or one per image, ``(N,)``.
        subsampling: Whether the color planes are stored at half the size (4:2:0) or in full
            (4:4:4); one for all, or one per image, ``(N,)``, bool. Gray images have no such planes.

    Returns:
        The images, of the same shape, on 8-bit levels.

    Example:
        >>> image = torch.full((1, 3, 20, 30), 0.5)
        >>> jpeg(image, quality=75).mul(255).unique()
        tensor([128.])
    """
    _check(image)
    levels = (image.float().clamp(0, 1) * 255 + 0.5).floor()
    luma_table, chroma_table = quantization_tables(quality, len(image), image.device)
    if image.shape[1] == 1:
        (luma,) = _code([levels], [luma_table])
        return luma.div(255).to(image.dtype)
    luma, chroma = _ycc_from_rgb(levels)
    stored = [luma, *_stored_chroma(chroma, subsampling)]
    luma, *coded = _code(stored, [luma_table] + [chroma_table] * (len(stored) - 1))
    chroma = _shown_chroma(coded, luma.shape, subsampling)
    return _rgb_from_ycc(luma, chroma).div(255).to(image.dtype)


def quantization_tables(
    quality: float | Tensor, num_images: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return libjpeg's tables for luma and chroma, each ``(N, 64)`` in float32.

    Example:
        >>> luma, chroma = quantization_tables(75, 1, torch.device("cpu"))
        >>> luma[0, :8].int().tolist()
        [8, 6, 5, 8, 12, 20, 26, 31]
    """
    if not isinstance(quality, Tensor):
        quality = torch.full((num_images,), float(quality), device=device)
    # Integers: a division that is off in the last bit would move an entry by one.
    quality = quality.round().int().clamp(1, 100)
    percent = torch.where(quality < 50, 5000 // quality, 200 - 2 * quality)
    standard = _standard_tables(device)
    tables = ((standard * percent.view(-1, 1, 1) + 50) // 100).clamp(1, 255).float()
    return tables[:, 0], tables[:, 1]


def _check(image: Tensor) -> None:
    if image.ndim != 4 or image.shape[1] not in (1, 3) or not image.is_floating_point():
        raise ImageError(
            f"expected float images (N, 3 or 1, H, W) in [0, 1] for JPEG, "
            f"got {tuple(image.shape)} {image.dtype}"
        )


def _ycc_from_rgb(levels: Tensor) -> tuple[Tensor, Tensor]:
    # The coefficients are multiples of 2^-16 as in libjpeg: all sums are exact in float32.
    red, green, blue = levels[:, :1], levels[:, 1:2], levels[:, 2:]
    luma = _fixed(0.299) * red + _fixed(0.587) * green + _fixed(0.114) * blue
    cb = -_fixed(0.168735892) * red - _fixed(0.331264108) * green + 0.5 * blue
    cr = 0.5 * red - _fixed(0.418687589) * green - _fixed(0.081312411) * blue
    # libjpeg rounds exact halves of the color differences down.
    below_half = 0.5 - 2.0**-16
    chroma = torch.cat([cb, cr], dim=1) + (128 + below_half)
    return (luma + 0.5).floor(), chroma.floor()


def _rgb_from_ycc(luma: Tensor, chroma: Tensor) -> Tensor:
    cb, cr = chroma[:, :1] - 128, chroma[:, 1:] - 128
    red = (_fixed(1.402) * cr + 0.5).floor()
    green = (-_fixed(0.344136286) * cb - _fixed(0.714136286) * cr + 0.5).floor()
    blue = (_fixed(1.772) * cb + 0.5).floor()
    return (luma + torch.cat([red, green, blue], dim=1)).clamp(0, 255)


def _fixed(value: float) -> float:
    return math.floor(value * 65536 + 0.5) / 65536


def _stored_chroma(chroma: Tensor, subsampling: bool | Tensor) -> list[Tensor]:
    """Return the color planes at half size, in full, or both where images differ."""
    if isinstance(subsampling, Tensor):
        return [_halve(chroma), chroma]
    return [_halve(chroma) if subsampling else chroma]


def _shown_chroma(
    coded: Sequence[Tensor], shape: Sequence[int], subsampling: bool | Tensor
) -> Tensor:
    if not isinstance(subsampling, Tensor):
        return _enlarged(coded[0], shape) if subsampling else coded[0]
    return torch.where(subsampling.view(-1, 1, 1, 1), _enlarged(coded[0], shape), coded[1])


def _enlarged(half: Tensor, shape: Sequence[int]) -> Tensor:
    height, width = shape[-2:]
    # What lies beyond the edge was stored to fill blocks; it does not take part.
    half = half[..., : (height + 1) // 2, : (width + 1) // 2]
    return _double(half)[..., :height, :width]


def _code(planes: Sequence[Tensor], tables: Sequence[Tensor]) -> list[Tensor]:
    """Transform, quantize and transform back; integer levels to integer levels.

    Args:
        planes: Each ``(N, C, H, W)``; the results have the same shapes. Blocks beyond an edge are
            filled with the last row and column.
        tables: For each of the planes, ``(N, 64)``.
    """
    padded = [_pad_end(p, -p.shape[-2] % BLOCK, -p.shape[-1] % BLOCK) for p in planes]
    blocks = [_to_blocks(plane) for plane in padded]
    # All planes in one go: on a GPU the number of operations counts, not their size.
    counts = [block.shape[1] for block in blocks]
    table = [t[:, None].expand(-1, count, -1) for t, count in zip(tables, counts, strict=True)]
    coded = torch.split(_code_blocks(torch.cat(blocks, 1), torch.cat(table, 1)), counts, 1)
    return [
        _from_blocks(block, whole.shape)[..., : plane.shape[-2], : plane.shape[-1]]
        for block, whole, plane in zip(coded, padded, planes, strict=True)
    ]


def _code_blocks(blocks: Tensor, table: Tensor) -> Tensor:
    """Take blocks ``(..., 64)`` of levels through quantization by a table of that shape."""
    transform = _transform(blocks.device)
    # Eight times the coefficients as integers, which libjpeg divides by eight times the table.
    work = _rounded((blocks - 128) @ transform.rows)
    work = _rounded(work @ transform.columns)
    # Halves go away from zero. The quarter decides nothing; it guards the exact halves against a
    # division that is off in the last bit.
    steps = ((work.abs() + 4 * table + 0.25) / (8 * table)).floor()
    work = torch.sign(work) * steps * table
    work = _rounded(work @ transform.inverse_columns)
    return (_rounded(work @ transform.inverse_rows) + 128).clamp(0, 255)


def _rounded(values: Tensor) -> Tensor:
    return (values + 0.5).floor()


def _to_blocks(planes: Tensor) -> Tensor:
    """Return ``(N, number of blocks, 64)``."""
    num, channels, height, width = planes.shape
    split = planes.reshape(num, channels, height // BLOCK, BLOCK, width // BLOCK, BLOCK)
    return split.transpose(3, 4).reshape(num, -1, BLOCK * BLOCK)


def _from_blocks(blocks: Tensor, shape: Sequence[int]) -> Tensor:
    num, channels, height, width = shape
    split = blocks.reshape(num, channels, height // BLOCK, width // BLOCK, BLOCK, BLOCK)
    return split.transpose(3, 4).reshape(num, channels, height, width)


def _halve(planes: Tensor) -> Tensor:
    """Average 2x2 pixels as libjpeg does, and fill up to whole blocks."""
    height, width = planes.shape[-2:]
    # libjpeg repeats the last column before it averages, but the last row after.
    planes = _pad_end(planes, height % 2, -width % (2 * BLOCK))
    total = planes[..., ::2, :] + planes[..., 1::2, :]
    total = total[..., ::2] + total[..., 1::2]
    # Halves are rounded down and up in turn, so that the plane does not drift.
    turn = 1 + torch.arange(total.shape[-1], device=planes.device) % 2
    return ((total + turn) / 4).floor()


def _double(planes: Tensor) -> Tensor:
    """Interpolate to twice the size: a triangle of 3/4 and 1/4 of the nearest two pixels."""
    if planes.shape[-1] <= 2:  # libjpeg repeats pixels where a plane is that narrow
        return planes.repeat_interleave(2, -1).repeat_interleave(2, -2)
    above = torch.cat([planes[..., :1, :], planes[..., :-1, :]], -2)
    below = torch.cat([planes[..., 1:, :], planes[..., -1:, :]], -2)
    rows = torch.stack([3 * planes + above, 3 * planes + below], -2).flatten(-3, -2)
    left = torch.cat([rows[..., :1], rows[..., :-1]], -1)
    right = torch.cat([rows[..., 1:], rows[..., -1:]], -1)
    columns = [3 * rows + left + 8, 3 * rows + right + 7]
    return (torch.stack(columns, -1) / 16).floor().flatten(-2)


def _pad_end(planes: Tensor, bottom: int, right: int) -> Tensor:
    return pad(planes, (0, right, 0, bottom), mode="replicate")


class _Transform(NamedTuple):
    """The four passes as matrices that multiply flattened blocks ``(..., 64)`` from the right."""

    rows: Tensor
    columns: Tensor
    inverse_columns: Tensor
    inverse_rows: Tensor


# A compiler takes what these return as constants; a captured graph finds them in place.
@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _transform(device: torch.device) -> _Transform:
    return _cached_transform(device)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _standard_tables(device: torch.device) -> Tensor:
    return _cached_tables(device)


@lru_cache(maxsize=8)
def _cached_transform(device: torch.device) -> _Transform:
    # Cached tensors outlive the caller's inference mode.
    with torch.inference_mode(False):
        forward = _integer_transform()
        # The inverse runs the same network backwards, which is the transposed matrix.
        backward = forward.T.contiguous()
        same = torch.eye(BLOCK, dtype=torch.float64)
        # Between the passes numbers carry two bits more, and sqrt(8) more after each forward pass.
        matrices = (
            torch.kron(same, backward) * 4,
            torch.kron(backward, same) / 4,
            torch.kron(forward, same) * 4,
            torch.kron(same, forward) / 32,
        )
        return _Transform(*(matrix.float().to(device) for matrix in matrices))


def _integer_transform() -> Tensor:
    """Return libjpeg's transform of a line, ``sqrt(8)`` times orthonormal.

    It is a network of sums and of products with constants of 13 bits.
    """
    fixed = {name: math.floor(name * 8192 + 0.5) / 8192 for name in _CONSTANTS}
    unit = torch.eye(BLOCK, dtype=torch.float64)
    total, difference = unit[:4] + unit.flip(0)[:4], unit[:4] - unit.flip(0)[:4]
    outer, inner = total[0] + total[3], total[1] + total[2]
    even_outer, even_inner = total[0] - total[3], total[1] - total[2]
    shared = fixed[0.541196100] * (even_outer + even_inner)
    odd = _odd_part(difference.flip(0), fixed)
    return torch.stack(
        [
            outer + inner,
            odd[3],
            shared + fixed[0.765366865] * even_outer,
            odd[2],
            outer - inner,
            odd[1],
            shared - fixed[1.847759065] * even_inner,
            odd[0],
        ]
    )


def _odd_part(lines: Tensor, fixed: dict[float, float]) -> list[Tensor]:
    """Return the odd frequencies 7, 5, 3, 1 of the differences of pixels 3-4, 2-5, 1-6, 0-7."""
    z1, z2 = lines[0] + lines[3], lines[1] + lines[2]
    z3, z4 = lines[0] + lines[2], lines[1] + lines[3]
    z5 = fixed[1.175875602] * (z3 + z4)
    z1, z2 = -fixed[0.899976223] * z1, -fixed[2.562915447] * z2
    z3, z4 = z5 - fixed[1.961570560] * z3, z5 - fixed[0.390180644] * z4
    return [
        fixed[0.298631336] * lines[0] + z1 + z3,
        fixed[2.053119869] * lines[1] + z2 + z4,
        fixed[3.072711026] * lines[2] + z2 + z3,
        fixed[1.501321110] * lines[3] + z1 + z4,
    ]


_CONSTANTS = (
    0.298631336,
    0.390180644,
    0.541196100,
    0.765366865,
    0.899976223,
    1.175875602,
    1.501321110,
    1.847759065,
    1.961570560,
    2.053119869,
    2.562915447,
    3.072711026,
)
"""Sums and differences of cosines in the fast transform of Loeffler, Ligtenberg and Moschytz."""


@lru_cache(maxsize=8)
def _cached_tables(device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        tables = torch.tensor([_LUMA_TABLE, _CHROMA_TABLE], dtype=torch.int32)
        return tables.view(1, 2, BLOCK * BLOCK).to(device)
