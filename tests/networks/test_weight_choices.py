"""The short names of weights: fast, standard and large."""

import shutil

import pytest

import musigma
from musigma.networks import weight_choices, weights_file
from musigma.networks.weight_choices import CHOICES, choice_of, weights_named
from musigma.types import ConfigError


def test_standard_means_edsr_baseline():
    chosen, named = musigma.load("standard", scale=2), musigma.load("edsr-baseline", scale=2)
    assert (chosen.name, chosen.digest) == (named.name, named.digest)


def test_every_choice_loads_or_says_plainly_what_there_is():
    for name, choice in CHOICES.items():
        if choice.weights in weights_file.shipped_weights():
            assert musigma.load(name, scale=2).scale == 2
        else:
            with pytest.raises(ConfigError) as caught:
                musigma.load(name, scale=2)
            message = str(caught.value)
            assert f"no weights ship as {name!r} yet" in message
            assert "standard (edsr-baseline)" in message
            assert "photo" in message


def test_weights_that_ship_under_the_name_itself_are_loaded(tmp_path, monkeypatch):
    shipped = weights_file.shipped_path("edsr-baseline", 2)
    shutil.copy(shipped, tmp_path / "fast-x2.safetensors")
    monkeypatch.setattr(weights_file, "SHIPPED", tmp_path)
    assert weights_named("fast") == "fast"
    assert musigma.load("fast", scale=2).name == "fast"
    assert musigma.load("fast").scale == 2  # the only one
    with pytest.raises(ConfigError, match="no weights ship as 'large' yet; there are fast"):
        weights_named("large")


def test_names_of_others_stay():
    assert weights_named("span-s") == "span-s"
    assert choice_of("drunet-small") == ""


def test_the_numbers_are_those_of_files_that_ship():
    files = {path.stem: path for path in weights_file.SHIPPED.glob("*.safetensors")}
    measured = weight_choices.measured_numbers()
    assert measured.keys() == files.keys()
    for name, path in files.items():
        assert measured[name]["bytes"] == path.stat().st_size
