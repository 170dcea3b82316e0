"""The paired bootstrap against scipy and against cases worked by hand."""

import numpy as np
import pytest
import scipy.stats
import torch

from musigma.types import ConfigError, DataError
from studies.bootstrap import paired_bootstrap


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_interval_over_images_is_scipys():
    random = np.random.default_rng(0)
    ours, theirs = random.normal(32.1, 3, 23), random.normal(32.0, 3, 23)
    found = paired_bootstrap(
        torch.from_numpy(ours),
        torch.from_numpy(theirs),
        num_resamples=40_000,
        generator=generator(),
    )
    expected = scipy.stats.bootstrap(
        (ours, theirs),
        lambda a, b, axis: np.mean(a - b, axis=axis),
        paired=True,
        vectorized=True,
        method="percentile",
        n_resamples=40_000,
        rng=np.random.default_rng(1),
    ).confidence_interval
    assert found.mean == pytest.approx(float(np.mean(ours - theirs)), abs=1e-12)
    # Two sets of 40,000 resamples: the ends differ by about a hundredth of the width.
    assert found.low == pytest.approx(expected.low, abs=0.05)
    assert found.high == pytest.approx(expected.high, abs=0.05)


def test_two_images_can_be_worked_out():
    """Differences 0 and 1 give means 0, 1/2 and 1 with shares 1/4, 1/2 and 1/4."""
    ours, theirs = torch.tensor([5.0, 6.0]), torch.tensor([5.0, 5.0])
    assert paired_bootstrap(ours, theirs, generator=generator()) == (0.5, 0.0, 1.0)
    narrow = paired_bootstrap(ours, theirs, coverage=0.4, generator=generator())
    assert narrow == (0.5, 0.5, 0.5)


def test_runs_are_drawn_too():
    """All images of one run gain 1, those of the other lose 1: images alone would show no doubt."""
    ours = torch.tensor([[1.0] * 7, [-1.0] * 7])
    found = paired_bootstrap(ours, torch.zeros(2, 7), generator=generator())
    assert found == (0.0, -1.0, 1.0)


def test_same_generator_gives_the_same_interval():
    ours = torch.rand(3, 11, generator=generator(1))
    first, second = (
        paired_bootstrap(ours, torch.zeros(3, 11), generator=generator()) for _ in range(2)
    )
    assert first == second


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (torch.zeros(3), torch.zeros(4)),
        (torch.zeros(0), torch.zeros(0)),
        (torch.zeros(1, 1, 2), torch.zeros(1, 1, 2)),
        (torch.tensor([torch.inf]), torch.zeros(1)),
    ],
)
def test_what_cannot_be_compared_is_refused(ours, theirs):
    with pytest.raises(DataError):
        paired_bootstrap(ours, theirs, generator=generator())


def test_coverage_is_a_share():
    with pytest.raises(ConfigError):
        paired_bootstrap(torch.zeros(2), torch.zeros(2), coverage=95, generator=generator())
