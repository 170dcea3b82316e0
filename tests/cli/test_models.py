"""``musigma models``: the facts of the networks, computed."""

import functools
import json

import pytest
import torch

from helpers.networks import CLASSICAL, REDUCED
from musigma import networks as models
from musigma.networks import cards, create, entries


@pytest.mark.parametrize(
    ("scale", "params", "macs_g"),
    # Lim et al. 2017 print 1.37M, 1.55M and 1.52M; the MACs are those of the light-network tables.
    [(2, 1_369_859, 316.2), (3, 1_554_499, 160.1), (4, 1_517_571, 114.2)],
)
def test_facts_of_edsr_baseline(musigma, scale, params, macs_g):
    result = musigma("models", "edsr-baseline", "--scale", scale, "--json")
    assert (result.code, result.err) == (0, "")
    facts = json.loads(result.out)
    assert (facts["name"], facts["scale"]) == ("edsr-baseline", scale)
    assert (facts["params"], facts["macs_g"]) == (params, macs_g)
    assert (facts["receptive_radius"], facts["tiling"], facts["task"]) == (36, "exact", "upscale")


def test_every_network_is_listed(musigma, monkeypatch):
    def create_small(name, *, scale):
        return create(name, scale=scale, **REDUCED.get(name, {}))

    monkeypatch.setattr(cards, "create", create_small)  # all of them in full take half a minute
    monkeypatch.setattr(models, "card", functools.cache(models.card))
    known = [(entry.name, scale) for entry in entries() for scale in entry.scales]
    result = musigma("models", "--json")
    assert result.code == 0
    listed = json.loads(result.out)
    assert [(facts["name"], facts["scale"]) for facts in listed] == known
    for facts in listed:
        learned = facts["name"] not in {"bicubic", *CLASSICAL}
        assert (facts["params"] > 0) == (facts["macs_g"] > 0) == learned
        assert facts["sigma_params"] > 0
        assert facts["paper"]
    table = musigma("models", "--scale", 2)
    assert table.code == 0
    lines = table.out.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert [line.split()[0] for line in lines[1:-1]] == [n for n, scale in known if scale == 2]


def test_one_network_gives_a_list_of_its_scales(musigma):
    listed = json.loads(musigma("models", "bicubic", "--json").out)
    assert [facts["scale"] for facts in listed] == [2, 3, 4]


def test_what_a_weights_file_holds(musigma, weights, tmp_path):
    ours = json.loads(musigma("models", "--load", weights).out)
    assert (ours["name"], ours["scale"], ours["sigma"]) == ("edsr-baseline", 2, True)
    assert ours["metadata"]["settings"] == {"num_blocks": 1, "width": 8}
    assert len(ours["digest"]) == 64
    torch.save(create("imdn", scale=4, num_blocks=2, width=16).state_dict(), tmp_path / "a.pth")
    foreign = json.loads(musigma("models", "--load", tmp_path / "a.pth").out)
    digest = foreign.pop("digest")
    assert foreign == {"name": "imdn", "scale": 4, "sigma": False, "metadata": {}}
    assert len(digest) == 64


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["edsr-basline"], "no network called 'edsr-basline'; did you mean 'edsr-baseline'?"),
        (["edsr", "--scale", "5"], "there is no edsr for scale 5; known: 2, 3, 4"),
        (["--scale", "9"], "there is no network for scale 9; known: 1, 2, 3, 4"),
        (["--load", "nowhere.pth"], "nowhere.pth could not be read (No such file or directory)"),
        (["--load", "."], "could not be read (Is a directory)"),
    ],
)
def test_wrong_words_give_one_line(musigma, words, line):
    result = musigma("models", *words)
    assert result.code == 2
    assert result.out == ""
    assert result.err.count("\n") == 1
    assert line in result.err
