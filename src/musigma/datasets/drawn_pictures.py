"""Training pictures without files: facades, bricks, railings and letters, drawn by the program.

A picture is a pile of leaves: bars, boxes and ellipses of any size, one over the other, the lowest
of which fills it. Each leaf is a piece of a plane seen in perspective, with a pattern on it. Every
pixel is the mean of several samples, so that edges are those of a sharp photograph.

What is drawn follows from a key alone, by tensor operations on any device. A run draws its pictures
before the first step; inside a compiled step, the compiler would take minutes for these operations.
"""

import math
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from musigma.functional.hashing import splitmix64, uniform, unit

SAMPLES = 4
"""Samples per pixel, down and across."""

NUM_LEAVES = 16
"""Leaves of a picture at most."""

SHORTEST_PERIOD, LONGEST_PERIOD = 4.0, 48.0
"""Of the pattern of a plane, in pixels."""

WINDOWS, BRICKS, BARS, LETTERS, PLAIN = range(5)
KINDS = (0.32, 0.14, 0.24, 0.12, 0.18)
"""How likely a leaf has each of the patterns above."""


class Leaf(NamedTuple):
    """The parameters of leaves, each ``(N, K)``; those of the leaf of each sample, ``(N, H, W)``.

    Attributes:
        key: Decides what differs from cell to cell of the pattern.
        row: Of the center, in pixels from that of the picture.
        column: Likewise.
        height: Half of it, in pixels.
        width: Likewise.
        angle: By which the leaf is turned.
        is_round: Whether it is an ellipse; else it is a box.
        kind: Of the pattern.
        turn: Angle of the pattern.
        period: Of the pattern, in pixels.
        aspect: Height of a cell of the pattern over its width.
        share: Of a cell that its main part takes.
        line: Width of thin lines, as a share of the cell.
        down: How much the plane leans back towards the bottom, per pixel.
        across: How much it leans back towards the right, per pixel.
        start: Where in the pattern the picture begins.
        light: Of the three colors, from 0 to 1; the second and the third are those of the parts.
        light2: See `light`.
        light3: See `light`.
        warmth: Red against blue, of the first color.
        warmth2: Likewise, of the others.
        green: Green against the others, of all.
        grain: Strength of the irregular part of the brightness.
    """

    key: Tensor
    row: Tensor
    column: Tensor
    height: Tensor
    width: Tensor
    angle: Tensor
    is_round: Tensor
    kind: Tensor
    turn: Tensor
    period: Tensor
    aspect: Tensor
    share: Tensor
    line: Tensor
    down: Tensor
    across: Tensor
    start: Tensor
    light: Tensor
    light2: Tensor
    light3: Tensor
    warmth: Tensor
    warmth2: Tensor
    green: Tensor
    grain: Tensor


class Cell(NamedTuple):
    """Where in the cells of its pattern a sample lies; all ``(N, H, W)``.

    Attributes:
        row: Number of the cell, counted down.
        down: Place in the cell, from 0 to 1.
        across: Likewise.
        hashes: A random number of the cell.
    """

    row: Tensor
    down: Tensor
    across: Tensor
    hashes: Tensor


class Paint(NamedTuple):
    """What a pattern gives a sample.

    Attributes:
        color: 0, 1 or 2: which of the colors of the leaf.
        shade: Factor on its brightness.
    """

    color: Tensor
    shade: Tensor


def draw_pictures(key: Tensor, *, size: int, channels: int = 3) -> Tensor:
    """Draw a picture for each key.

    Args:
        key: 64-bit integers, ``(N,)``; the same key gives the same picture.
        size: Height and width in pixels.
        channels: 3 for color, 1 for gray.

    Returns:
        Bytes, ``(N, size, size, channels)``.

    Example:
        >>> pictures = draw_pictures(torch.tensor([1, 2]), size=32)
        >>> pictures.shape, pictures.dtype
        (torch.Size([2, 32, 32, 3]), torch.uint8)
    """
    side = (torch.arange(size * SAMPLES, device=key.device) + 0.5) / SAMPLES - size / 2
    row, column = side.view(1, -1, 1), side.view(1, 1, -1)
    leaves = _leaves(key, size)
    top = _topmost(leaves, row, column)
    picture = torch.arange(len(key), device=key.device).view(-1, 1, 1)
    leaf = Leaf(*(values[picture, top] for values in leaves))
    colors = _colors(leaf, *_painted(leaf, row, column))
    means = avg_pool2d(colors, SAMPLES).clamp(0, 1)
    if channels == 1:
        means = means.mean(1, keepdim=True)
    return means.mul(255).round().byte().permute(0, 2, 3, 1)


def draw_images(
    count: int, *, size: int, channels: int, device: torch.device | None = None
) -> list[Tensor]:
    """Draw training images, the same ones at every call, with the numbers from 0 as keys.

    Args:
        count: How many.
        size: Height and width in pixels.
        channels: 3 for color, 1 for gray.
        device: Where to draw; the images come back to the CPU.

    Returns:
        Images ``(C, H, W)`` in uint8.

    Example:
        >>> images = draw_images(2, size=16, channels=3)
        >>> len(images), images[0].shape, images[0].dtype
        (2, torch.Size([3, 16, 16]), torch.uint8)
    """
    images = []
    for number in range(count):  # one at a time, which takes less memory
        key = torch.tensor([number], device=device)
        picture = draw_pictures(key, size=size, channels=channels)[0]
        images.append(picture.permute(2, 0, 1).contiguous().cpu())
    return images


def _leaves(key: Tensor, size: int) -> Leaf:
    scene = uniform(splitmix64(key), 3)
    base, count, main_period = scene.unsqueeze(-1).unbind(1)
    number = torch.arange(NUM_LEAVES, device=key.device)
    keys = splitmix64(splitmix64(key + 1).unsqueeze(-1) + number)
    u = uniform(keys, 24).unbind(-1)
    # Few leaves every other time: then one plane fills most of the picture.
    count = torch.where(count < 0.5, 8 * count, (2 * count - 1) * NUM_LEAVES)
    is_there = number <= count
    # Boxes of any size look alike when the picture is enlarged: the law of dead leaves, r^-3.
    smallest, largest = 0.06 * size, 0.7 * size
    radius = (u[0] * smallest**-2 + (1 - u[0]) * largest**-2).rsqrt()
    aspect = torch.where(u[1] < 0.5, 1 + u[1], torch.exp(5 * (u[1] - 0.5)))
    # Most lines of a building have the same two directions.
    straight = (base - 0.5) * 0.6 + torch.where(u[2] < 0.5, 0.0, math.pi / 2)
    angle = torch.where(u[3] < 0.7, straight, 2 * math.pi * u[3])
    period = SHORTEST_PERIOD * (LONGEST_PERIOD / SHORTEST_PERIOD) ** ((u[4] + main_period) / 2)
    lean = torch.where(u[5] < 0.3, 0.0, 1.1 / size)
    light = 0.08 + 0.84 * u[6]
    return Leaf(
        key=keys,
        row=(u[7] - 0.5) * size,
        column=(u[8] - 0.5) * size,
        height=torch.where(number == 0, 2.0 * size, torch.where(is_there, radius / aspect, 0.0)),
        width=torch.where(number == 0, 2.0 * size, radius * aspect),
        angle=angle,
        is_round=((u[9] < 0.25) & (number > 0)).float(),
        kind=_kind(torch.where(number == 0, u[10] * (1 - KINDS[PLAIN]), u[10])),
        turn=torch.where(u[11] < 0.8, straight - torch.where(u[2] < 0.5, 0.0, math.pi / 2), angle),
        period=period,
        aspect=0.5 + 1.2 * u[12],
        share=0.3 + 0.6 * u[13],
        line=0.04 + 0.14 * u[14],
        down=(u[15] - 0.5) * lean,
        across=(u[16] - 0.5) * lean,
        start=100 * u[17],
        light=light,
        # Parts are visibly darker or lighter than the ground.
        light2=_apart(light, u[18]),
        light3=_apart(light, u[19]),
        warmth=3 * (u[20] - 0.5) ** 3,
        warmth2=3 * (u[21] - 0.5) ** 3,
        green=(u[22] - 0.5) ** 3,
        grain=0.3 * u[23] ** 3,
    )


def _kind(number: Tensor) -> Tensor:
    edges = accumulate(KINDS[:-1])
    return sum(((number >= edge).float() for edge in edges), torch.zeros_like(number))


def _apart(light: Tensor, number: Tensor) -> Tensor:
    """Return another brightness, at some distance from the first."""
    gap = 0.05
    other = number * (1 - 2 * gap)
    return torch.where(other < light - gap, other, (other + 2 * gap).clamp_max(1.0))


def _topmost(leaves: Leaf, row: Tensor, column: Tensor) -> Tensor:
    """Return the number of the uppermost leaf at each sample, ``(N, H, W)``; the lowest is 0."""
    leaf = Leaf(*(values.view(*values.shape, 1, 1) for values in leaves))
    down, across = _turned(row - leaf.row, column - leaf.column, leaf.angle)
    down, across = down.abs() / leaf.height, across.abs() / leaf.width
    distance = torch.where(
        leaf.is_round > 0, down.square() + across.square(), torch.maximum(down, across)
    )
    number = torch.arange(leaves.key.shape[1], device=row.device).view(-1, 1, 1)
    return torch.where(distance < 1, number, 0).amax(1)


def _turned(row: Tensor, column: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
    cos, sin = angle.cos(), angle.sin()
    return row * cos - column * sin, row * sin + column * cos


def _painted(leaf: Leaf, row: Tensor, column: Tensor) -> Paint:
    """Return what the pattern of its leaf gives each sample."""
    nearness = 1 + leaf.down * row + leaf.across * column
    down, across = _turned(row / nearness, column / nearness, leaf.turn)
    down = down / (leaf.period * leaf.aspect) + leaf.start
    across = across / leaf.period + leaf.start
    cell = _cell(leaf, down, across)
    color, shade = torch.zeros_like(down), torch.ones_like(down)
    for kind, pattern in enumerate((_windows, _bricks, _bars, _letters)):
        paint = pattern(leaf, cell)
        color = torch.where(leaf.kind == kind, paint.color, color)
        shade = torch.where(leaf.kind == kind, paint.shade, shade)
    grain = _grain(leaf.key, row * 0.5, column * 0.5) + _grain(leaf.key, row * 0.12, column * 0.12)
    return Paint(color, shade * (1 + leaf.grain * (grain - 1)))


def _cell(leaf: Leaf, down: Tensor, across: Tensor) -> Cell:
    row = down.floor()
    # Every other row of bricks is moved by half a brick; the cells of letters are narrow.
    across = torch.where(leaf.kind == BRICKS, across / 2 + 0.5 * (row % 2), across)
    across = torch.where(leaf.kind == LETTERS, across * 1.6, across)
    column = across.floor()
    return Cell(row, down - row, across - column, _hashes(leaf.key, row, column))


def _hashes(key: Tensor, row: Tensor, column: Tensor) -> Tensor:
    return splitmix64(key + row.long() * 65537 + column.long())


def _windows(leaf: Leaf, cell: Cell) -> Paint:
    """Frames with bars around panes, each pane of its own brightness; a ledge below some rows."""
    down = (cell.down - 0.5) / (0.5 * leaf.share + 0.05)
    across = (cell.across - 0.5) / (0.25 + 0.25 * leaf.share)
    border = torch.maximum(down.abs(), across.abs())
    num_panes = 1 + (leaf.key & 3) % 3
    pane = (0.5 + 0.5 * across) * num_panes
    to_bar = (pane - pane.round()).abs()
    is_frame = (border > 1 - 2 * leaf.line) | (to_bar < leaf.line * num_panes / 2)
    is_frame = is_frame | (((leaf.key & 4) > 0) & (down.abs() < leaf.line))
    color = torch.where(border < 1, torch.where(is_frame, 1.0, 2.0), 0.0)
    color = torch.where(((leaf.key & 24) == 0) & (cell.down > 0.9), 1.0, color)
    glass = 0.55 + 0.7 * unit(cell.hashes) - 0.2 * down
    return Paint(color, torch.where(color == 2, glass, 1.0))


def _bricks(leaf: Leaf, cell: Cell) -> Paint:
    """Rows of bricks of slightly different brightness, with joints between them."""
    is_joint = (cell.down < 1.5 * leaf.line) | (cell.across < 0.75 * leaf.line)
    return Paint(is_joint.float(), torch.where(is_joint, 1.0, 0.8 + 0.4 * unit(cell.hashes)))


def _bars(leaf: Leaf, cell: Cell) -> Paint:
    """Bars beside one another, flat or round, and rails across every few of their cells."""
    place = cell.across / leaf.share
    is_bar = place < 1
    is_rail = ((leaf.key & 3) == 0) & (cell.row % 5 == 0) & (cell.down < 2 * leaf.line)
    color = torch.where(is_rail, 2.0, is_bar.float())
    is_shaded = is_bar & ~is_rail & ((leaf.key & 4) > 0)
    return Paint(color, torch.where(is_shaded, 0.6 + 1.6 * place * (1 - place), 1.0))


def _letters(leaf: Leaf, cell: Cell) -> Paint:
    """Signs of a few strokes each, of which some are left out, in lines of text with gaps."""
    down, across = (cell.down - 0.15) / 0.7, (cell.across - 0.12) / 0.76
    width = 0.08 + 0.5 * leaf.line
    distances = (
        (across - 0.15).abs(),  # upright strokes: left, right, middle
        (across - 0.85).abs(),
        (across - 0.5).abs(),
        (down - 0.1).abs(),  # level strokes: top, bottom, middle
        (down - 0.9).abs(),
        (down - 0.5).abs(),
        (down - across).abs() * 0.7,
        (((down - 0.5).square() + (across - 0.5).square()).sqrt() - 0.36).abs(),
    )
    ink = torch.zeros_like(down, dtype=torch.bool)
    for number, distance in enumerate(distances):
        # Few letters have a middle stroke, a slanted or a round one.
        rare = 3 if number in (2, 6, 7) else 1
        ink = ink | (((cell.hashes >> (3 * number)) & rare == rare) & (distance < width))
    inside = (down > 0) & (down < 1) & (across > 0) & (across < 1)
    is_gap = ((cell.hashes >> 30) & 7) == 0
    return Paint((ink & inside & ~is_gap).float(), torch.ones_like(down))


def _grain(key: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """Smooth random numbers: hashes of a grid, interpolated between its points."""
    top, left = row.floor(), column.floor()
    down, across = (_eased(place) for place in (row - top, column - left))
    near, far = (
        torch.lerp(
            unit(_hashes(key, top + step, left)), unit(_hashes(key, top + step, left + 1)), across
        )
        for step in (0, 1)
    )
    return torch.lerp(near, far, down)


def _eased(place: Tensor) -> Tensor:
    return place * place * (3 - 2 * place)


def _colors(leaf: Leaf, color: Tensor, shade: Tensor) -> Tensor:
    """Return red, green and blue of each sample, ``(N, 3, H, W)``."""
    light = torch.where(color == 0, leaf.light, torch.where(color == 1, leaf.light2, leaf.light3))
    light = (light * shade).clamp(0, 1)
    warmth = torch.where(color == 0, leaf.warmth, leaf.warmth2)
    channels = (1 + warmth - leaf.green, 1 + leaf.green, 1 - warmth - leaf.green)
    return torch.stack([light * factor for factor in channels], dim=1)
