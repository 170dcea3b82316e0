"""The learning rate over a run, and the budget."""

import pytest

from helpers.runs import small_recipe
from musigma.training.recipe import Recipe
from musigma.training.schedule import Clock, learning_rate_at


def rate(recipe: Recipe, progress: float, step: int = 0) -> float:
    return learning_rate_at(recipe, step=step, progress=progress)


def test_warmup_rises_in_a_line():
    recipe = small_recipe(learning_rate=0.4, schedule="constant", warmup=0.1)
    assert rate(recipe, 0.025) == pytest.approx(0.1)
    assert rate(recipe, 0.05) == pytest.approx(0.2)
    assert rate(recipe, 0.1) == rate(recipe, 0.7) == rate(recipe, 1.0) == 0.4
    assert rate(recipe, 0.0) == pytest.approx(0.4e-3)  # not zero: the first step counts too


def test_cosine_falls_to_a_thousandth():
    recipe = small_recipe(learning_rate=0.4, schedule="cosine", warmup=0.1)
    # Of the nine tenths after the warm-up: none, a third (cos 60 = 1/2), half (cos 90 = 0), two
    # thirds (cos 120 = -1/2), all of them; and whatever comes after.
    expected = {0.1: 0.4, 0.4: 0.3, 0.55: 0.2, 0.7: 0.1, 1.0: 0.4e-3, 1.2: 0.4e-3}
    for progress, value in expected.items():
        assert rate(recipe, progress) == pytest.approx(value)


def test_halving_goes_by_steps():
    recipe = small_recipe(learning_rate=0.4, schedule="halving", halve_every=200, warmup=0.0)
    expected = {0: 0.4, 199: 0.4, 200: 0.2, 399: 0.2, 400: 0.1, 999: 0.025}
    for step, value in expected.items():
        assert rate(recipe, step / 1000, step) == pytest.approx(value)


def test_a_roll_back_lowers_the_rate():
    recipe = small_recipe(learning_rate=0.4, schedule="constant", warmup=0.0)
    assert Clock(recipe, rate_factor=0.5).learning_rate(5, 0.25) == 0.2
    assert Clock(recipe).progress(5) == 0.25
