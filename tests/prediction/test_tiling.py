"""Tiles cover every pixel once, read what they depend on, and fit the memory they are given."""

import math
import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from musigma.networks import create, with_sigma
from musigma.prediction.tiling import (
    GLOBAL_BORDER,
    MAX_TILE,
    border_of,
    bytes_per_pixel,
    bytes_per_row,
    plan_tiles,
    tile_for_memory,
)
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
    side = tile_for_memory(network, memory=memory) + 2 * network.receptive_radius
    assert bytes_per_pixel(network) * side**2 <= memory
    assert bytes_per_pixel(network) * (side + 1) ** 2 > memory


@pytest.mark.parametrize("width", [100, 10_000, 1_000_000])
def test_the_rows_of_a_wide_picture_have_their_share(width):
    network, memory = with_sigma(create("edsr-baseline", scale=2)), 2**31
    tile = tile_for_memory(network, memory=memory, width=width)

    def needed(tile):
        side = tile + 2 * network.receptive_radius
        return bytes_per_pixel(network) * side**2 + tile * bytes_per_row(network, width)

    assert bytes_per_row(network, width) == 2 * 2 * 3 * 4 * width * 4  # twice mean and sigma
    assert needed(tile) <= memory < needed(tile + 1)


def test_no_tile_is_endless():
    assert tile_for_memory(create("bicubic", scale=2), memory=2**40) == MAX_TILE == 1024


def test_too_little_memory_names_the_least_that_works():
    network = with_sigma(create("edsr-baseline", scale=4))
    with pytest.raises(ConfigError, match="1 MiB are too few for one tile") as caught:
        tile_for_memory(network, memory=2**20)
    least = int(re.search(r"to at least (\d+) MiB", str(caught.value))[1])
    assert tile_for_memory(network, memory=least * 2**20) >= 1
    with pytest.raises(ConfigError):
        tile_for_memory(network, memory=(least - 1) * 2**20)


def test_a_network_that_holds_more_gets_smaller_tiles():
    usual, wide = (create("rnan", scale=1, num_groups=3, width=8) for _ in range(2))
    usual.info = replace(usual.info, fixed_activation_floats=0)
    wide.info = replace(wide.info, activation_floats_per_pixel=bytes_per_pixel(usual))
    assert bytes_per_pixel(wide) == 4 * bytes_per_pixel(usual)
    memory = 2**29
    # The border, and cells of two pixels that may begin or end one pixel outside.
    around = 2 * (GLOBAL_BORDER + 1)
    assert wide.fixed_activation_floats == 2 * 2**24  # pairs, before and after softmax: 128 MiB
    for network, rest in ((usual, 2**29), (with_sigma(usual), 2**29), (wide, 2**29 - 2**27)):
        side = tile_for_memory(network, memory=memory)
        assert side == min(MAX_TILE, math.isqrt(rest // bytes_per_pixel(network)) - around)


MEASURE = """
import re
import sys
from pathlib import Path

import torch

from musigma.prediction.predict import predict
from musigma.networks import create

def peak():
    # Not ru_maxrss, which a process takes over from the one that started it.
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

torch.set_num_threads(1)
name, settings, memory, height, width = sys.argv[1], *map(eval, sys.argv[2:])
network = create(name, scale=1, **settings).eval()
predict(network, torch.rand(1, network.in_channels, 20, 20))
before = peak()
predict(network, torch.rand(1, network.in_channels, height, width), memory=memory)
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("name", "settings", "mebibytes", "size"),
    [
        ("rnan", {"num_groups": 3, "width": 8}, 133, (150, 40)),
        ("nlrn", {"num_steps": 3, "width": 32, "window": 20}, 140, (210, 190)),
        ("n3net", {"width": 32, "num_layers": 3}, 80, (210, 130)),
    ],
)
def test_memory_holds_for_networks_that_compare_pixels(name, settings, mebibytes, size):
    memory = mebibytes * 2**20
    values = (settings, memory, *size)
    command = [sys.executable, "-c", MEASURE, name, *map(repr, values)]
    # By itself glibc raises this bound as large blocks are freed, and then keeps some of them: one
    # program peaks at 83, 118 or 158 MiB as it happens. Here freed blocks go back.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(2**20)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    # Not far below either: tiles that are too small only cost time.
    assert memory / 4 < int(done.stdout) <= memory
