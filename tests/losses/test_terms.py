"""The list of terms: every function of the library is on it, and one's own can join."""

import inspect
from typing import Literal

import pytest
import torch

from musigma.functional import objectives
from musigma.losses import Objective, names, register, terms
from musigma.types import ConfigError


def test_every_objective_of_the_library_is_on_the_list():
    functions = {
        name
        for name, function in inspect.getmembers(objectives, inspect.isfunction)
        if function.__module__ == objectives.__name__ and not name.startswith("_")
    }
    assert set(names()) == functions - {"expected_gain"}


def test_a_function_of_ones_own_joins_with_its_settings(monkeypatch):
    monkeypatch.setattr(terms, "_ENTRIES", dict(terms._ENTRIES))  # it leaves again

    @register
    def capped(mean, target, *, cap: float, power: Literal["one", "two"] = "one"):
        error = (mean - target).abs()
        return (error if power == "one" else error**2).clamp_max(cap)

    mean, target = torch.tensor([0.5, 0.1]), torch.zeros(2)
    assert Objective("capped(cap=0.2)")(mean, target).item() == pytest.approx(0.15)
    assert Objective("capped(cap=0.2, power=two)")(mean, target).item() == pytest.approx(0.105)


def test_a_name_is_given_once():
    with pytest.raises(ConfigError, match="called 'l1' already"):
        register(objectives.l1)


def test_a_picture_that_does_not_exist_is_refused():
    def strange(mean, targt):
        return mean - targt

    with pytest.raises(ConfigError, match="cannot be given 'targt'; did you mean 'target'"):
        register(strange)


def test_a_setting_that_cannot_be_written_is_refused():
    def strange(mean, target, *, cap=0.1):
        return (mean - target).clamp_max(cap)

    with pytest.raises(ConfigError, match="strange: annotate cap as bool, int, float or Literal"):
        register(strange)
