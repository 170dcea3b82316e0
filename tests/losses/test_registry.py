"""The list of names: every function of the library is on it, and others can add theirs."""

import inspect
import logging
import sys
from importlib.metadata import EntryPoint
from typing import Literal

import pytest
import torch

from musigma.functional import objectives
from musigma.losses import SigmaL1, create, names, parse, register, registry
from musigma.types import ConfigError

NO_OBJECTIVES = {"expected_gain", "check_settings", "mean_absolute_error"}


@pytest.fixture(autouse=True)
def own_list(monkeypatch):
    """A copy of the list, so that what a test adds leaves again."""
    monkeypatch.setattr(registry, "_CLASSES", dict(registry._CLASSES))


def test_every_objective_of_the_library_is_on_the_list():
    functions = {
        name
        for name, function in inspect.getmembers(objectives, inspect.isfunction)
        if function.__module__ == objectives.__name__ and not name.startswith("_")
    }
    assert set(names()) == functions - NO_OBJECTIVES


def test_a_function_of_ones_own_joins_with_its_settings():
    @register
    def capped(mean, target, *, cap: float, power: Literal["one", "two"] = "one"):
        error = (mean - target).abs()
        return (error if power == "one" else error**2).clamp_max(cap)

    mean, target = torch.tensor([0.5, 0.1]), torch.zeros(2)
    assert parse("capped(cap=0.2)")(mean, target).item() == pytest.approx(0.15)
    assert parse("capped(cap=0.2, power=two)")(mean, target).item() == pytest.approx(0.105)
    total = create("capped", cap=0.2) + 2 * SigmaL1()
    assert str(total) == "capped(cap=0.2) + 2.0 * sigma_l1"
    with pytest.raises(ConfigError, match="capped: cap is a number, not 'high'"):
        create("capped", cap="high")


def test_limits_of_the_library_do_not_bind_others():
    @register
    def scaled(mean, target, *, level: float = 3.0):
        return level * (mean - target).abs()

    assert parse("scaled(level=2)")(torch.ones(2), torch.zeros(2)).item() == 2


def test_a_name_is_given_once():
    with pytest.raises(ConfigError, match="called 'l1' already"):
        register(objectives.l1)


def test_an_image_that_does_not_exist_is_refused():
    def strange(mean, targt):
        return mean - targt

    with pytest.raises(ConfigError, match="cannot be given 'targt'; did you mean 'target'"):
        register(strange)


def test_a_setting_that_cannot_be_written_is_refused():
    def strange(mean, target, *, cap=0.1):
        return (mean - target).clamp_max(cap)

    with pytest.raises(ConfigError, match="strange: annotate cap as bool, int, float or Literal"):
        register(strange)


PLUGIN = """
from musigma.losses import register

def plain(mean, target):
    return (mean - target).abs()

@register
def decorated(mean, target):
    return 2 * (mean - target).abs()
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Installed packages that bring losses: two good ones, and two that cannot be used."""
    (tmp_path / "a_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    points = [
        EntryPoint(name, f"{module}:{name}", registry.ENTRY_POINTS)
        for module, name in (
            ("not_there", "missing"),
            ("a_plugin", "plain"),
            ("a_plugin", "decorated"),
        )
    ]
    points.append(EntryPoint("other_name", "a_plugin:plain", registry.ENTRY_POINTS))
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    registry._add_installed.cache_clear()
    yield
    registry._add_installed.cache_clear()
    sys.modules.pop("a_plugin", None)


@pytest.mark.usefixtures("installed")
def test_losses_of_installed_packages_can_be_named(caplog):
    with caplog.at_level(logging.WARNING):
        loss = parse("plain + decorated")
    assert loss(torch.ones(2), torch.zeros(2)).item() == 3
    assert {"plain", "decorated"} <= set(names())
    assert "the loss 'missing' of not_there:missing cannot be used" in caplog.text
    assert "the function is called 'plain'; name the entry point so" in caplog.text
