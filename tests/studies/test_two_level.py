"""Intervals that count runs and images: against scipy, by hand, and in simulated studies."""

import numpy as np
import pytest
import scipy.stats
import torch

from musigma.types import ConfigError, DataError
from studies.paper.interval_coverage import RANGE, comparisons, held_shares
from studies.paper.measurements import load_records
from studies.paper.two_level import holm, mean_difference, t_quantile


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 13, 99, 218])
@pytest.mark.parametrize("coverage", [0.5, 0.95, 0.999, 1 - 1e-9])
def test_t_quantile_is_scipys(freedom, coverage):
    expected = scipy.stats.t.ppf((1 + coverage) / 2, freedom)
    assert t_quantile(coverage, freedom) == pytest.approx(expected, rel=1e-5)


def test_where_images_are_alike_it_is_t_over_the_runs():
    runs = np.array([0.3, 0.1, 0.2, 0.25])
    ours = torch.from_numpy(np.repeat(runs[:, None], 7, axis=1))
    difference = mean_difference(ours, torch.zeros(4, 7))
    expected = scipy.stats.ttest_1samp(runs, 0)
    low, high = expected.confidence_interval(0.95)
    assert difference.interval() == pytest.approx((runs.mean(), low, high))
    assert difference.p_value == pytest.approx(expected.pvalue, rel=1e-3)


def test_where_runs_are_alike_it_is_t_over_the_images():
    images = np.array([0.3, 0.1, 0.2, 0.25, -0.1])
    ours = torch.from_numpy(np.repeat(images[None], 3, axis=0))
    difference = mean_difference(ours, torch.zeros(3, 5))
    expected = scipy.stats.ttest_1samp(images, 0)
    low, high = expected.confidence_interval(0.95)
    assert difference.interval() == pytest.approx((images.mean(), low, high))
    assert difference.p_value == pytest.approx(expected.pvalue, rel=1e-3)


def test_both_levels_by_hand():
    """Runs differ by 2 and images by 4, and nothing else does."""
    ours = torch.tensor([[1.0, 5.0], [3.0, 7.0]])
    difference = mean_difference(ours, torch.zeros(2, 2))
    assert (difference.mean, difference.run_variance, difference.image_variance) == (4.0, 1.0, 4.0)
    half = t_quantile(0.95, 1) * 5**0.5
    assert difference.interval() == pytest.approx((4.0, 4.0 - half, 4.0 + half))


def test_equal_values_leave_no_doubt():
    same = torch.full((3, 4), 0.5)
    assert mean_difference(same, torch.zeros(3, 4)).interval() == (0.5, 0.5, 0.5)
    assert mean_difference(same, same).p_value == 1.0


def test_p_value_and_interval_agree():
    random = torch.Generator().manual_seed(3)
    difference = mean_difference(torch.rand(3, 9, generator=random), torch.zeros(3, 9))
    _, low, high = difference.interval(1 - difference.p_value)
    assert min(abs(low), abs(high)) == pytest.approx(0, abs=1e-6)


def test_holm_is_the_textbooks():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (torch.zeros(3), torch.zeros(3)),
        (torch.zeros(2, 3), torch.zeros(2, 4)),
        (torch.zeros(1, 5), torch.zeros(1, 5)),
        (torch.zeros(5, 1), torch.zeros(5, 1)),
        (torch.full((2, 2), torch.inf), torch.zeros(2, 2)),
    ],
)
def test_what_cannot_be_compared_is_refused(ours, theirs):
    with pytest.raises(DataError):
        mean_difference(ours, theirs)


def test_coverage_is_a_share():
    with pytest.raises(ConfigError):
        mean_difference(torch.zeros(2, 2), torch.ones(2, 2)).interval(95)


def test_intervals_hold_the_truth_in_simulated_studies():
    """A moderate number of studies for each comparison; the record has the full number."""
    random = np.random.default_rng(20)
    num_studies = 1500
    shares = [
        held_shares(difference, num_studies=num_studies, random=random)["two_level"]
        for difference in comparisons(load_records()).values()
    ]
    # Four standard errors of a share near 0.95: one in 15,000 comparisons is beyond by chance.
    slack = 4 * (0.95 * 0.05 / num_studies) ** 0.5
    assert len(shares) >= 22
    assert min(shares) > RANGE[0] - slack
    assert max(shares) < RANGE[1] + slack
    assert RANGE[0] < np.mean(shares) < RANGE[1]
