"""Losses as modules: their sums, their settings, and what they are called with."""

import copy
import inspect
import pickle

import pytest
import torch
from torch import Tensor, nn

import musigma
from musigma import losses
from musigma.losses import (
    L1,
    Charbonnier,
    Distillation,
    ExpectedL1,
    FixedSigma,
    LossSum,
    SigmaL1,
    SigmaQuantile,
    UDLStep2,
    parse,
)
from musigma.losses.pixel_losses import ALL
from musigma.types import ConfigError, Prediction


class Teacher(nn.Module):
    """Counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, degraded: Tensor) -> Prediction:
        self.calls += 1
        return Prediction(degraded / 2, degraded / 4)


def images() -> list[Tensor]:
    """Mean, target, sigma and the input of a teacher."""
    return list(torch.rand(4, 2, 3, 9, 8, generator=torch.Generator().manual_seed(0)))


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(5)


@pytest.mark.parametrize("loss", ALL, ids=lambda loss: loss.__name__)
def test_the_constructor_states_the_settings_of_the_function(loss):
    stated = inspect.signature(loss, eval_str=True).parameters
    settings = {name: p for name, p in stated.items() if name != "teacher"}
    assert list(settings) == list(loss.info.settings)
    for name, parameter in settings.items():
        assert parameter.kind is parameter.KEYWORD_ONLY
        assert parameter.default == loss.info.settings[name].default
        assert parameter.annotation == loss.info.settings[name].annotation
    assert ("teacher" in stated) == loss.takes_teacher()
    assert loss.__name__ in losses.__all__


def test_modules_and_text_are_one():
    mean, target, sigma, _ = images()
    built = musigma.losses.ExpectedL1() + 0.01 * musigma.losses.SigmaL1()
    text = "expected_l1 + 0.01 * sigma_l1"
    assert str(built) == text
    assert isinstance(built, nn.Module)
    assert built.needs_sigma
    value = built(Prediction(mean, sigma), target, generator=seeded())
    for other in (musigma.Objective(text), parse(text), parse(str(built))):
        assert torch.equal(other((mean, sigma), target, generator=seeded()), value)


def test_text_gives_the_modules_back():
    built = ExpectedL1(mask=False, samples=4) + 0.5 * SigmaQuantile(level=0.9) + Charbonnier()
    again = parse(str(built))
    assert [type(loss) for loss in again.losses] == [ExpectedL1, SigmaQuantile, Charbonnier]
    assert [loss.settings for loss in again.losses] == [loss.settings for loss in built.losses]
    assert again.weights == (1.0, 0.5, 1.0)
    assert repr(again.losses[0]) == "ExpectedL1(mask=False, samples=4)"


def test_weights_multiply_and_sums_flatten():
    total = 2 * (L1() + SigmaL1() * 3) + 0.5 * Charbonnier()
    assert isinstance(total, LossSum)
    assert str(total) == "2.0 * l1 + 6.0 * sigma_l1 + 0.5 * charbonnier"
    assert str(sum([L1(), SigmaL1()])) == "l1 + sigma_l1"
    mean, target, sigma, _ = images()
    parts = total.parts((mean, sigma), target)
    assert torch.equal(parts["l1"], 2 * (mean - target).abs().mean())
    torch.testing.assert_close(total((mean, sigma), target), sum(parts.values()))


@pytest.mark.parametrize("strange", ["x", None, True, torch.ones(2)])
def test_only_numbers_are_weights_and_only_losses_are_added(strange):
    with pytest.raises((TypeError, RuntimeError)):
        L1() * strange
    with pytest.raises(TypeError):
        L1() + strange


@pytest.mark.parametrize("weight", [0, -1.0, float("inf"), float("nan")])
def test_weights_are_positive(weight):
    with pytest.raises(ConfigError, match="the weight of l1 is positive, not"):
        weight * L1()


def test_a_loss_is_in_a_sum_once():
    with pytest.raises(ConfigError, match="the sum has l1 twice; give it one weight"):
        L1() + 2 * L1()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ExpectedL1(samples=0), "samples must be from 1 to 1024, got 0"),
        (lambda: ExpectedL1(samples=1.5), "samples is a whole number, not 1.5"),
        (lambda: ExpectedL1(samples=True), "samples is a whole number, not True"),
        (lambda: ExpectedL1(mask=1), "mask is true or false, not 1"),
        (lambda: ExpectedL1(distribution="gauss"), "distribution cannot be 'gauss'"),
        (lambda: SigmaQuantile(level=1), "level must be between 0 and 1, got 1.0"),
        (lambda: Charbonnier(epsilon=float("nan")), "epsilon is a number, not nan"),
        (lambda: Charbonnier(epsilon="small"), "epsilon is a number, not 'small'"),
        (lambda: FixedSigma(noise_std=-0.1), "noise_std must be 0 or more and finite, got -0.1"),
        (lambda: Distillation(None), "distillation needs a teacher"),
    ],
)
def test_settings_are_checked_when_a_loss_is_made(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_prediction_comes_in_three_forms():
    mean, target, sigma, _ = images()
    whole = SigmaL1()(Prediction(mean, sigma), target)
    assert torch.equal(SigmaL1()((mean, sigma), target), whole)
    assert torch.equal(L1()(mean, target), L1()(Prediction(mean, sigma), target))
    with pytest.raises(ConfigError, match="sigma_l1 needs a sigma and the prediction has none"):
        SigmaL1()(mean, target)


def test_a_teacher_is_asked_once_and_two_teachers_are_two():
    mean, target, _, degraded = images()
    teacher, other = Teacher(), Teacher()
    shared = Distillation(teacher) + UDLStep2(teacher)
    assert shared.needs_teacher
    shared(mean, target, degraded=degraded)
    assert teacher.calls == 1
    (Distillation(teacher) + UDLStep2(other))(mean, target, degraded=degraded)
    assert (teacher.calls, other.calls) == (2, 1)


def test_losses_can_be_copied_and_pickled():
    built = ExpectedL1(samples=2) + 0.01 * SigmaL1()
    for again in (copy.deepcopy(built), pickle.loads(pickle.dumps(built))):
        assert str(again) == str(built)


def test_every_loss_moves_and_has_nothing_to_train():
    built = ExpectedL1() + 0.01 * SigmaL1()
    assert not list(built.parameters())
    assert built.double().eval().train().training
