"""The mean of a box and the two ends of what is known about its error."""

import math

import pytest
import torch

from musigma.types import ConfigError
from musigma.uncertainty.box_statistics import box_statistics
from musigma.uncertainty.quantities import Box, parse_box


def test_values_by_hand():
    mean = torch.zeros(1, 1, 3, 4)
    mean[0, 0, 1, 1:3] = torch.tensor([0.2, 0.4])
    half_width = torch.full_like(mean, 1.0)
    half_width[0, 0, 1, 1:3] = torch.tensor([0.03, 0.04])
    statistics = box_statistics(mean, half_width, Box(1, 1, 2, 1))
    assert statistics.mean == pytest.approx([255 * 0.3])
    assert statistics.independent == pytest.approx([255 * 0.05 / 2])
    assert statistics.correlated == pytest.approx([255 * 0.035])


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_two_ends_are_those_of_simulated_errors(share):
    """Independent errors and equal errors; 1.645 standard deviations hold 90 %."""
    generator = torch.Generator().manual_seed(0)
    own = torch.randn(4000, 8, 8, generator=generator)
    common = torch.randn(4000, 1, 1, generator=generator)
    errors = math.sqrt(1 - share) * own + math.sqrt(share) * common
    half_width = torch.full((1, 1, 8, 8), 1.645)
    statistics = box_statistics(torch.zeros(1, 1, 8, 8), half_width, Box(0, 0, 8, 8))
    expected = statistics.correlated if share else statistics.independent
    inside = (errors.mean((1, 2)).abs() <= expected[0] / 255).float().mean()
    assert 0.88 < float(inside) < 0.92


@pytest.mark.parametrize("box", [(0, 0, 5, 1), (3, 0, 2, 1), (0, 0, 0, 1), (0, 2, 1, 2)])
def test_a_box_outside_is_refused(box):
    image = torch.zeros(1, 3, 3, 4)
    with pytest.raises(ConfigError, match="does not lie inside"):
        box_statistics(image, image, Box(*box))


@pytest.mark.parametrize("text", ["", "1,2,3", "1,2,3,-4", "a,b,c,d", "1,2,3,4,5", "²,1,1,1"])
def test_text_that_is_no_box_is_refused(text):
    with pytest.raises(ConfigError, match="x,y,width,height"):
        parse_box(text)
