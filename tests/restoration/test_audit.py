"""The audit of an enlargement: true pictures pass, and additions are flagged where they are."""

import pytest
import torch

from musigma.functional.color import quantise
from musigma.functional.resize import bicubic_down, bicubic_up
from musigma.model import load
from musigma.restoration.audit import (
    WRONG,
    Audit,
    audit,
    likely_wrong,
    overlay,
    probability_of_wrong,
    scale_of,
)
from musigma.types import ConfigError, ImageError


@pytest.fixture(scope="module")
def model():
    return load("edsr-baseline", scale=2)


@pytest.fixture(scope="module")
def pair():
    from musigma.datasets.demo_photo import portrait

    target = portrait()[..., 60:156, 200:296]
    return bicubic_down(target, 2), target


def test_the_true_picture_and_the_models_own_result_are_not_flagged(model, pair):
    low, target = pair
    true, own = audit(model, low, target), audit(model, low, quantise(model.predict(low).mean))
    assert not true.is_flagged
    assert not own.is_flagged
    assert true.contradicted_share == 0
    assert own.outside_share < 0.01
    assert own.wrong_share == pytest.approx(own.least_wrong_share, abs=0.01)
    assert true.wrong_share > true.least_wrong_share
    assert "no more detail" in " ".join(true.in_words())


def test_an_added_pattern_is_flagged_where_it_is(model, pair):
    low, target = pair
    stripes = torch.zeros_like(target)
    stripes[..., 32:64, 32:64] = 0.25 * (-1.0) ** torch.arange(32)
    result = audit(model, low, (target + stripes).clamp(0, 1))
    inside = result.outside[32:64, 32:64].float().mean()
    outside = result.outside.float().sum() - result.outside[32:64, 32:64].float().sum()
    assert inside > 0.8
    assert inside > 4 * outside / (96 * 96 - 32 * 32)
    places = result.places()
    assert {(square.x, square.y) for square in places[:4]} == {
        (32, 32),
        (48, 32),
        (32, 48),
        (48, 48),
    }
    assert result.added[32:64, 32:64].float().mean() > 0.7
    assert result.to_dict()["flagged"] == result.is_flagged


def test_an_enlargement_of_another_picture_contradicts_the_input(model, pair):
    low, target = pair
    result = audit(model, low, target.flip(-1))
    assert result.is_flagged
    assert result.contradicted_share > 0.2
    assert any("contradicts" in sentence for sentence in result.in_words())


def test_the_overlay_colors_what_is_flagged_and_nothing_else(pair):
    target = pair[1]
    score = torch.zeros(96, 96)
    score[4, 5], score[10, 11] = 2, 2
    added = torch.zeros(96, 96, dtype=torch.bool)
    added[4, 5] = True
    contradicts = torch.zeros(48, 48, dtype=torch.bool)
    contradicts[20, 20] = True
    result = Audit(
        coverage=0.9,
        score=score,
        wrong_probability=score / 4,
        added=added,
        contradicts=contradicts,
        invents=contradicts,
        outside_share=0.0,
        unlike=(),
        expected=target,
        least_wrong_share=0.0,
    )
    picture = overlay(target, result)[0]
    colored = picture.amax(0) > picture.amin(0) + 0.01
    assert int(colored.sum()) == 2 + 4
    assert colored[4, 5]
    assert colored[10, 11]
    assert bool(colored[40:42, 40:42].all())


def test_other_sizes_and_coverages_are_refused(model, pair):
    low, target = pair
    with pytest.raises(ImageError, match="expected 96 x 96"):
        audit(model, low, target[..., :-2])
    with pytest.raises(ConfigError, match="coverages of"):
        audit(model, low, target, coverage=0.123)
    with pytest.raises(ImageError, match="whole multiple"):
        scale_of((1, 3, 10, 10), (1, 3, 20, 25))


def test_the_probability_of_wrong_is_that_of_a_normal_distribution():
    distance, std = torch.tensor(0.05), torch.tensor(0.08)
    drawn = 0.08 * torch.randn(400_000, generator=torch.Generator().manual_seed(0))
    share = float(((drawn - distance).abs() > WRONG).float().mean())
    assert float(probability_of_wrong(distance, std)) == pytest.approx(share, abs=0.004)


def test_a_soft_enlargement_loses_detail_and_invents_nothing(model, pair):
    low, target = pair
    soft = audit(model, low, bicubic_up(low, 2))
    assert soft.contradicted_share > soft.invented_share
    assert not soft.is_flagged
    true = audit(model, low, target)
    assert soft.wrong_share > true.wrong_share / 2  # nobody told the audit which one is true
    assert soft.to_dict()["wrong_share"] == soft.wrong_share


def test_likely_wrong_pixels_are_orange(model, pair):
    low, target = pair
    result = audit(model, low, target)
    picture = likely_wrong(target, result)[0]
    tint = picture[0] - picture[2]
    sure, likely = (result.wrong_probability < 0.01, result.wrong_probability > 0.5)
    assert float(tint[sure].mean()) < 0.02
    assert likely.any()
    assert float(tint[likely].mean()) > 0.3
