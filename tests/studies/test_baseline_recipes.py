"""Recipes of baselines are the study's except for the baseline, and each of them trains."""

import math
from dataclasses import asdict

import pytest
import torch

from helpers.runs import small_recipe, small_step
from musigma.functional.objectives import gaussian_nll, laplace_nll, sigma_quantile
from studies.training_runs.study_recipes import load_study_recipe

BASELINES = ("baseline-gaussian", "baseline-laplace", "baseline-quantile", "baseline-dropout")


@pytest.mark.parametrize("name", BASELINES)
def test_they_differ_from_the_study_in_the_baseline_alone(name):
    study, baseline = asdict(load_study_recipe("study")), asdict(load_study_recipe(name))
    changed = {key for key in study if study[key] != baseline[key]}
    assert (
        changed
        == {
            "baseline-gaussian": {"objective", "sigma", "clip"},
            "baseline-laplace": {"objective", "sigma"},
            "baseline-quantile": {"objective", "sigma"},
            "baseline-dropout": {"settings"},
        }[name]
    )


@pytest.mark.parametrize("name", BASELINES)
def test_baseline_recipes_lower_their_loss(name):
    recipe = load_study_recipe(name)
    settings = {"num_blocks": 1, "width": 8, **recipe.settings}
    own = {key: getattr(recipe, key) for key in ("objective", "sigma", "clip")}
    step = small_step(small_recipe(settings=settings, **own))
    losses = []
    for _ in range(3):
        for _ in range(20):
            step(2e-3)
        losses.append(step.read_loss(20))  # nan where a weight is not finite
    assert losses[2] < losses[1] < losses[0]


@pytest.mark.parametrize(
    ("loss", "expected"),
    # For errors drawn from N(0, 1): the std; E|e|; and the quantile of |e| at 0.9.
    [
        (gaussian_nll, 1.0),
        (laplace_nll, math.sqrt(2 / math.pi)),
        (lambda *images: sigma_quantile(*images, level=0.9), 1.6449),
    ],
)
def test_what_sigma_each_head_is_drawn_to(loss, expected):
    error = torch.randn(1, 1, 200, 200, generator=torch.Generator().manual_seed(0))
    grid = torch.arange(0.5, 2.0, 0.01)
    mean = torch.zeros_like(error)
    losses = [loss(mean, error, torch.full_like(error, float(s))).mean() for s in grid]
    best = float(grid[int(torch.stack(losses).argmin())])
    assert best == pytest.approx(expected, abs=0.025)
