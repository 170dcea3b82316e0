"""Tiles cover every pixel once, read what they depend on, and fit the memory they are given."""

import re

import pytest
import torch

from musigma.inference.tiling import (
    GLOBAL_BORDER,
    LARGEST,
    border_of,
    bytes_per_pixel,
    bytes_per_row,
    plan_tiles,
    tile_for_memory,
)
from musigma.models import create, with_sigma
from musigma.types import ConfigError


def test_tiles_of_random_sizes_keep_every_promise():
    generator = torch.Generator().manual_seed(0)

    def draw(high):
        return int(torch.randint(1, high, (), generator=generator))

    for _ in range(300):
        height, width, tile, border, multiple = draw(90), draw(90), draw(60), draw(20), draw(9)
        least = draw(2000)
        options = {"tile": tile, "border": border, "multiple": multiple, "least": least}
        covered = torch.zeros(height, width, dtype=torch.int64)
        tiles = plan_tiles(height, width, **options)
        for piece in tiles:
            for span, length in ((piece.rows, height), (piece.columns, width)):
                assert 0 <= span.read_start <= span.start < span.stop <= span.read_stop <= length
                assert span.stop - span.start <= tile
                assert span.read_start % multiple == 0
                assert span.read_start <= max(0, span.start - border)
                assert span.read_stop >= min(length, span.stop + border)
            rows, columns = piece.rows, piece.columns
            num_read = (rows.read_stop - rows.read_start) * (columns.read_stop - columns.read_start)
            assert num_read >= min(least, height * width)
            covered[rows.start : rows.stop, columns.start : columns.stop] += 1
        assert covered.min() == covered.max() == 1
        assert len(tiles) == -(-height // tile) * -(-width // tile)  # none more than needed


def test_tiles_read_no_more_than_their_border():
    for piece in plan_tiles(100, 90, tile=30, border=7):
        for span, length in ((piece.rows, 100), (piece.columns, 90)):
            assert span.read_start == max(0, span.start - 7)
            assert span.read_stop == min(length, span.stop + 7)


def test_tiles_are_of_nearly_one_size():
    sizes = [t.rows.stop - t.rows.start for t in plan_tiles(101, 1, tile=50, border=3)]
    assert sizes == [34, 34, 33]  # not 50, 50 and a sliver of 1


@pytest.mark.parametrize("tile", [0, -5])
def test_a_tile_needs_a_pixel(tile):
    with pytest.raises(ConfigError, match=f"at least one pixel, got {tile}"):
        plan_tiles(9, 9, tile=tile, border=1)


def test_border_is_the_radius_or_a_stated_guess():
    assert border_of(create("edsr-baseline", scale=2)) == 36
    assert border_of(create("imdn", scale=2)) == GLOBAL_BORDER == 32


@pytest.mark.parametrize("scale", [2, 3, 4])
@pytest.mark.parametrize("memory", [100 * 2**20, 2 * 2**30])
def test_the_largest_tile_that_fits(scale, memory):
    network = with_sigma(create("edsr-baseline", scale=scale))
    side = tile_for_memory(network, memory=memory) + 2 * network.radius
    assert bytes_per_pixel(network) * side**2 <= memory
    assert bytes_per_pixel(network) * (side + 1) ** 2 > memory


@pytest.mark.parametrize("width", [100, 10_000, 1_000_000])
def test_the_rows_of_a_wide_picture_have_their_share(width):
    network, memory = with_sigma(create("edsr-baseline", scale=2)), 2**31
    tile = tile_for_memory(network, memory=memory, width=width)

    def needed(tile):
        side = tile + 2 * network.radius
        return bytes_per_pixel(network) * side**2 + tile * bytes_per_row(network, width)

    assert bytes_per_row(network, width) == 2 * 2 * 3 * 4 * width * 4  # twice mean and sigma
    assert needed(tile) <= memory < needed(tile + 1)


def test_no_tile_is_endless():
    assert tile_for_memory(create("bicubic", scale=2), memory=2**40) == LARGEST == 1024


def test_too_little_memory_names_the_least_that_works():
    network = with_sigma(create("edsr-baseline", scale=4))
    with pytest.raises(ConfigError, match="1 MiB are too few for one tile") as caught:
        tile_for_memory(network, memory=2**20)
    least = int(re.search(r"give at least (\d+) MiB", str(caught.value))[1])
    assert tile_for_memory(network, memory=least * 2**20) >= 1
    with pytest.raises(ConfigError):
        tile_for_memory(network, memory=(least - 1) * 2**20)
