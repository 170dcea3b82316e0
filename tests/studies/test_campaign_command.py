"""``python -m studies campaign``: what is done, what comes next, and making it."""

import json

import pytest

from helpers.runs import write_pictures, write_recipe


@pytest.fixture
def campaign(tmp_path):
    """Two entries of one run each, on pictures drawn by code."""
    pictures = str(write_pictures(tmp_path / "pictures"))
    recipe = write_recipe(tmp_path / "tiny.toml", steps=2, data=[pictures], validation=pictures)
    entries = [
        f"[[run]]\nname = '{name}'\nwhy = 'to see'\nrecipe = '{recipe}'\nminutes = 1\n"
        for name in ("first", "second")
    ]
    (tmp_path / "campaign.toml").write_text("\n".join(entries))
    return ("--file", tmp_path / "campaign.toml", "--results", tmp_path / "results")


def test_runs_that_were_made_count_as_done(studies, campaign, tmp_path):
    where = ("--minutes", 5, "-o", tmp_path / "results", "--device", "cpu")
    assert studies("campaign", "next", *campaign, *where, "--only", "second").code == 0
    done = json.loads(studies("campaign", "status", *campaign, "--json").out)
    assert [(row["name"], row["done"], row["runs"]) for row in done] == [
        ("first", 0, 1),
        ("second", 1, 1),
    ]
    assert "next: first-s0" in studies("campaign", "next", *campaign, *where, "--dry-run").err
    assert studies("campaign", "next", *campaign, *where, "--at-once", 2).code == 0
    assert "no run is left" in studies("campaign", "next", *campaign, *where).err


def test_an_entry_that_is_not_there_is_named(studies, campaign, tmp_path):
    words = ("--minutes", 5, "-o", tmp_path / "results", "--only", "frist")
    done = studies("campaign", "next", *campaign, *words)
    assert done.code == 2
    assert "did you mean 'first'" in done.err.replace("\n", " ")


def test_texts_of_the_file_reach_the_terminal_escaped(studies, tmp_path):
    text = r"\u001b]0;owned\u0007"
    run = f"[[run]]\nname = 'x'\nwhy = \"{text}\"\nminutes = 1\nrecipe = 'study'"
    (tmp_path / "campaign.toml").write_text(run)
    printed = studies("campaign", "status", "--file", tmp_path / "campaign.toml").out
    assert r"\x1b]0;owned\x07" in printed
    assert "\033" not in printed
