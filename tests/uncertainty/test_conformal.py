"""Ranks and bounds against their definitions, scipy's binomial and scipy's isotonic regression."""

import math

import numpy as np
import pytest
from scipy import optimize, stats

from musigma.uncertainty.conformal import (
    conformal_min_scores,
    conformal_rank,
    hoeffding_bentkus,
    isotonic_regression,
    risk_control_min_samples,
)


@pytest.mark.parametrize("confidence", [0.5, 0.7, 0.8, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("num_scores", [1, 4, 9, 19, 20, 99, 100])
def test_the_rank_is_the_smallest_that_holds(num_scores, confidence):
    # Of n + 1 exchangeable scores the last is among the k smallest with probability k / (n + 1).
    rank = conformal_rank(num_scores, confidence)
    assert rank / (num_scores + 1) >= confidence - 1e-12
    assert (rank - 1) / (num_scores + 1) < confidence


def test_a_rounding_error_does_not_move_the_rank():
    assert 0.07 * 100 > 7
    assert conformal_rank(99, 0.07) == 7


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.9, 0.95, 0.99, 0.995])
def test_the_fewest_scores_are_the_fewest(confidence):
    fewest = conformal_min_scores(confidence)
    assert conformal_rank(fewest, confidence) <= fewest
    assert conformal_rank(fewest - 1, confidence) > fewest - 1


@pytest.mark.parametrize("num_samples", [10, 137, 3000])
@pytest.mark.parametrize("risk", [0.0, 0.013, 0.05, 0.1, 0.4])
def test_hoeffding_bentkus_equals_scipy(risk, num_samples):
    # The Hoeffding exponent is the relative entropy of two coins: scipy.stats.entropy.
    low = min(risk, 0.1)
    hoeffding = math.exp(-num_samples * stats.entropy([low, 1 - low], [0.1, 0.9]))
    bentkus = math.e * stats.binom.cdf(math.ceil(round(num_samples * risk, 6)), num_samples, 0.1)
    expected = min(hoeffding, bentkus)
    assert hoeffding_bentkus(risk, 0.1, num_samples) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(("bound", "confidence", "fewest"), [(0.1, 0.9, 22), (0.05, 0.95, 59)])
def test_risk_control_needs_enough_samples(bound, confidence, fewest):
    # 0.9^22 = 0.0985 <= 0.1 < 0.9^21; 0.95^59 = 0.0485 <= 0.05 < 0.95^58: the "rule of 59".
    assert risk_control_min_samples(bound, confidence) == fewest
    assert hoeffding_bentkus(0.0, bound, fewest) <= 1 - confidence
    assert hoeffding_bentkus(0.0, bound, fewest - 1) > 1 - confidence


@pytest.mark.parametrize("seed", range(10))
def test_isotonic_regression_equals_scipy(seed):
    rng = np.random.default_rng(seed)
    values = np.linspace(0, 1, 50) + rng.normal(0, 0.3, 50)
    weights = rng.uniform(0.1, 5, 50)
    expected = optimize.isotonic_regression(values, weights=weights).x
    np.testing.assert_allclose(isotonic_regression(values, weights), expected, atol=1e-12)
