"""Sums of many numbers tell spoiled pictures from the inputs of a calibration."""

from dataclasses import replace

import numpy as np
import pytest

from musigma.functional.picture_statistics import PictureStatistics
from musigma.uncertainty.fitted_sums import BLOCKS, exceeded, fit_sums

NUMBERS = 6


def pictures(number, *, shift=0.0, block_edges=0.0, seed=0):
    """Statistics whose second and third number belong together, unless they were shifted."""
    random = np.random.default_rng(seed)
    common = random.normal(0, 3, number)
    rows = random.normal(0, 0.3, (number, NUMBERS))
    rows[:, 1] += common
    rows[:, 2] += common + shift
    return [
        PictureStatistics(
            noise_std=0.4,
            coarse_noise_std=0.4,
            sharpness=-5.8,
            rolloff=-2.2,
            block_edges=block_edges,
            spectrum=tuple(row[:2].tolist()),
            texture=tuple(row[2:].tolist()),
            colours=(float(row[0]), float(row[1])),
        )
        for row in rows
    ]


INPUTS = pictures(100)
SUMS = fit_sums(INPUTS, {"smoothed": pictures(50, shift=-2, seed=1)}, num_images=100, share=0.0)


def share(sums, statistics):
    return np.mean([exceeded(sums, picture) == ["smoothed"] for picture in statistics])


def test_a_sum_tells_what_no_number_tells_alone():
    assert share(SUMS, pictures(200, seed=2)) <= 0.05
    assert share(SUMS, pictures(200, shift=-3, seed=2)) >= 0.95


def test_a_margin_lets_more_pictures_pass():
    spoiled = {"smoothed": pictures(50, shift=-2, seed=1)}
    wide = fit_sums(INPUTS, spoiled, num_images=100, share=0.0, margin=1.0)
    assert wide["smoothed"].limit == pytest.approx(SUMS["smoothed"].limit + 1)
    weak = pictures(200, shift=-2, seed=2)
    assert share(wide, weak) < share(SUMS, weak)


def test_pictures_with_blocks_have_sums_of_their_own():
    mixed = [*INPUTS, *pictures(100, block_edges=1.0, shift=5)]
    spoiled = [*pictures(50, shift=-2, seed=1), *pictures(50, block_edges=1.0, shift=3, seed=3)]
    sums = fit_sums(mixed, {"smoothed": spoiled}, num_images=100, share=0.0)
    assert set(sums) == {"smoothed", f"smoothed{BLOCKS}"}
    compressed = pictures(200, block_edges=1.0, shift=5, seed=2)
    assert share(sums, compressed) <= 0.05
    assert share(sums, pictures(200, block_edges=1.0, shift=2, seed=2)) >= 0.95
    assert share(SUMS, pictures(200, block_edges=1.0, shift=-3, seed=2)) == 0


def test_few_or_flat_pictures_make_no_sum():
    flat = [replace(picture, texture=()) for picture in INPUTS]
    assert fit_sums(flat, {"smoothed": flat}, num_images=100, share=0.0) == {}
    assert fit_sums(INPUTS[:9], {"smoothed": INPUTS[:9]}, num_images=9, share=0.0) == {}
    assert exceeded(SUMS, flat[0]) == []


def test_grey_pictures_pass_the_sum_of_colors():
    spoiled = {"colour_noise": pictures(50, shift=-2, seed=1)}
    sums = fit_sums(INPUTS, spoiled, num_images=100, share=0.0)
    (picture,) = pictures(1, shift=-9)
    assert exceeded(sums, picture) == ["colour_noise"]
    assert exceeded(sums, replace(picture, colours=())) == []


def test_all_inputs_of_one_image_are_left_out_together():
    # Two copies of each image would otherwise vouch for each other, and the limit be too low.
    spoiled = {"smoothed": pictures(50, shift=-2, seed=1)}
    few = pictures(20)
    apart = fit_sums([*few, *few], spoiled, num_images=20, share=0.0)["smoothed"]
    together = fit_sums([*few, *few], spoiled, num_images=40, share=0.0)["smoothed"]
    assert apart.weights == together.weights
    assert apart.limit >= together.limit
