"""Windows of pictures, and what is refused before any training."""

import numpy as np
import pytest
import torch
from PIL import Image

from musigma.adaptation.crops import (
    GRID,
    LEAST_SIDE,
    MEASURED_SIDE,
    Window,
    check_sizes,
    choose_window,
    write_crops,
)
from musigma.datasets.catalog import find_dataset
from musigma.images.image_io import read_image
from musigma.types import DataError, ImageError


def write(path, height: int, width: int, *, gray: bool = False, seed: int = 0) -> None:
    shape = (height, width) if gray else (height, width, 3)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, np.uint8)).save(path)


def test_a_window_begins_on_the_grid_and_lies_inside():
    for name in "abcdefgh":
        window = choose_window(1000, 500, side=192, name=name, seed=0)
        assert window.top % GRID == window.left % GRID == 0
        assert window.top + window.height <= 1000
        assert window.left + window.width <= 500
        assert (window.height, window.width) == (192, 192)
    assert len({choose_window(999, 999, side=64, name=name, seed=0) for name in "abcdefgh"}) > 4


def test_a_window_of_the_input_is_that_of_the_target():
    target = torch.arange(64.0).view(1, 1, 8, 8)
    degraded = target[..., ::2, ::2]
    window = Window(1, 2, 2, 1)
    assert torch.equal(window.times(2).of(target)[..., ::2, ::2], window.of(degraded))


def test_small_pictures_are_refused_together(tmp_path):
    for number in range(7):
        write(tmp_path / f"{number}.png", LEAST_SIDE - 1, 200)
    write(tmp_path / "large.png", LEAST_SIDE, 200)
    with pytest.raises(DataError, match=r"7 pictures are smaller than 96x96 .* and 2 more"):
        check_sizes(find_dataset(tmp_path).items)


def test_crops_of_pairs_stay_pairs(tmp_path):
    write(tmp_path / "in" / "HR" / "a.png", 1000, 900)
    high, _ = read_image(tmp_path / "in" / "HR" / "a.png")
    low = high[..., ::2, ::2]
    (tmp_path / "in" / "LR").mkdir()
    pixels = (low[0].permute(1, 2, 0).numpy() * 255).round().astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "in" / "LR" / "a.png")
    items = find_dataset(tmp_path / "in", scale=2).items
    write_crops({"validation": items}, tmp_path / "out", scale=2, seed=3)
    (item,) = find_dataset(tmp_path / "out" / "validation", scale=2).items
    target, degraded = read_image(item.target)[0], read_image(item.degraded)[0]
    assert target.shape == (1, 3, MEASURED_SIDE, MEASURED_SIDE)
    assert torch.equal(target[..., ::2, ::2], degraded)


def test_noisy_pairs_train_both_ways(tmp_path):
    for number, folder in enumerate(("first", "second")):
        write(tmp_path / folder / "a.png", 100, 110, seed=number)
    items = find_dataset(tmp_path / "first", degraded=tmp_path / "second").items
    write_crops({"training": items}, tmp_path / "out", scale=1, seed=0, both_ways=True)
    pairs = find_dataset(tmp_path / "out" / "training", scale=1).items
    assert [item.name for item in pairs] == ["a-0", "a-1"]
    images = [[read_image(path)[0] for path in (item.target, item.degraded)] for item in pairs]
    assert torch.equal(images[0][0], images[1][1])
    assert torch.equal(images[0][1], images[1][0])


def test_measured_values_keep_their_levels(tmp_path):
    """Counts up to 2000 in 16 bits became eight levels of a window."""
    counts = np.random.default_rng(0).integers(100, 2000, (100, 110), np.uint16)
    Image.fromarray(counts).save(tmp_path / "cells.tif")
    items = find_dataset(tmp_path).items
    with pytest.raises(ImageError, match=r"cells\.tif: its values reach 1999 of 65535, .*--range"):
        write_crops({"validation": items}, tmp_path / "out", scale=1, seed=0)
    write_crops({"validation": items}, tmp_path / "out", scale=1, seed=0, value_range=(100, 2140))
    window, _ = read_image(tmp_path / "out" / "validation" / "cells.png")
    expected = torch.from_numpy((counts - 100.0) / 2040).float()
    torch.testing.assert_close(window[0, 0], expected, rtol=0, atol=0.51 / 255)


def test_gray_and_color_are_not_mixed(tmp_path):
    write(tmp_path / "colour.png", 100, 100)
    write(tmp_path / "grey.png", 100, 100, gray=True)
    items = find_dataset(tmp_path).items
    with pytest.raises(DataError, match=r"1 pictures are gray .*grey.* and 1 are in color"):
        write_crops({"training": items}, tmp_path / "out", scale=2, seed=0)


def test_a_pair_of_gray_and_color_is_refused(tmp_path):
    write(tmp_path / "a" / "1.png", 100, 100)
    write(tmp_path / "b" / "1.png", 100, 100, gray=True)
    items = find_dataset(tmp_path / "a", degraded=tmp_path / "b").items
    with pytest.raises(ImageError, match=r"b/1\.png: is gray, and its target is in color"):
        write_crops({"training": items}, tmp_path / "out", scale=1, seed=0)


def test_a_pair_of_other_sizes_is_refused(tmp_path):
    write(tmp_path / "a" / "1.png", 100, 120)
    write(tmp_path / "b" / "1.png", 50, 50)
    items = find_dataset(tmp_path / "a", degraded=tmp_path / "b").items
    with pytest.raises(ImageError, match="at scale 2 the input must have 60x50 pixels, got 50x50"):
        write_crops({"training": items}, tmp_path / "out", scale=2, seed=0)
