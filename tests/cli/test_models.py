"""``musigma models``: the list of networks, their costs, and the weights that ship."""

import json

import pytest
import torch

from helpers.networks import CLASSICAL, REDUCED
from musigma.networks import card, create, entries, model_card
from musigma.networks.weight_choices import measured_numbers
from musigma.networks.weights_file import shipped_weights, weights_of


@pytest.mark.parametrize(
    ("scale", "params", "macs_g"),
    # Lim et al. 2017 print 1.37M, 1.55M and 1.52M; the MACs are those of the light-network tables.
    [(2, 1_369_859, 316.2), (3, 1_554_499, 160.1), (4, 1_517_571, 114.2)],
)
def test_costs_of_edsr_baseline(musigma, scale, params, macs_g):
    result = musigma("models", "edsr-baseline", "--scale", scale, "--json")
    assert (result.code, result.err) == (0, "")
    content = json.loads(result.out)
    assert (content["name"], content["scale"]) == ("edsr-baseline", scale)
    assert (content["params"], content["macs_g"]) == (params, macs_g)
    assert (content["receptive_radius"], content["tiling"]) == (36, "exact")
    assert (content["task"], content["shipped"]) == ("super-resolution", True)


@pytest.fixture
def small_networks(monkeypatch):
    """Count the costs of small networks, because all of them in full take half a minute."""

    def create_small(name, *, scale):
        return create(name, scale=scale, **REDUCED.get(name, {}))

    monkeypatch.setattr(model_card, "create", create_small)
    card.cache_clear()
    yield
    card.cache_clear()


def test_every_network_is_counted(musigma, small_networks):
    known = [(entry.name, scale) for entry in entries() for scale in entry.scales]
    result = musigma("models", "--json")
    assert result.code == 0
    listed = json.loads(result.out)
    assert [(content["name"], content["scale"]) for content in listed] == known
    for content in listed:
        learned = content["name"] not in {"bicubic", *CLASSICAL}
        assert (content["params"] > 0) == (content["macs_g"] > 0) == learned
        assert content["sigma_params"] > 0
        assert content["paper"]
        assert content["summary"].endswith(".")


def test_the_list_has_a_line_for_each_network(musigma, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("the list counts no MACs, which takes long")

    monkeypatch.setattr(model_card, "_macs_by_part", refuse)
    result = musigma("models")
    assert result.code == 0
    lines = result.out.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert [line.split()[0] for line in lines[1:-1]] == [entry.name for entry in entries()]
    blind = next(line for line in lines if line.startswith("drunet-small-blind"))
    assert "restoration" in blind
    two = musigma("models", "--scale", 2).out.splitlines()
    expected = [entry.name for entry in entries() if 2 in entry.scales]
    assert [line.split()[0] for line in two[1:-1]] == expected


def test_what_shipped_weights_are_for(musigma):
    result = musigma("models", "--shipped")
    assert result.code == 0
    text = " ".join(result.out.split())
    assert max(len(line) for line in result.out.splitlines()) <= 80
    assert "drunet-small x1 removes Gaussian noise of level 0 to 50, with error bars" in text
    assert "edsr-baseline x3 enlarges by 3; trained on bicubically reduced images" in text
    assert "photo: Apache-2.0 for the project's own rights" in text
    assert "License of fast: Apache-2.0" in text
    assert "images that have terms of their own" in text
    listed = json.loads(musigma("models", "--shipped", "--json").out)
    expected = [(name, scale) for name, scales in shipped_weights().items() for scale in scales]
    assert [(row["name"], row["scale"]) for row in listed] == expected
    assert {row["name"] for row in listed} >= {"drunet-small", "edsr-baseline", "fast", "photo"}
    fast = next(row for row in listed if (row["name"], row["scale"]) == ("fast", 2))
    assert (fast["network"], fast["choice"], fast["sigma"]) == ("span-s", "fast", True)
    assert fast["measured"]["psnr_y"].keys() >= {"B100", "Urban100"}


def test_what_was_measured_of_shipped_weights(musigma):
    lines = musigma("models", "--shipped", "--scale", 2).out.splitlines()
    heading = next(i for i, line in enumerate(lines) if "parameters" in line)
    assert lines[heading].split()[-5:] == ["B100", "Urban100", "PLL", "CPU", "GPU"]
    numbers = measured_numbers()["edsr-baseline-x2"]
    times = numbers["times"]
    seconds = next(t["s_per_megapixel"] for name, t in times.items() if "NVIDIA" not in name)
    row = next(line.split() for line in lines[heading:] if line.startswith("edsr-baseline"))
    assert row[1:4] == ["x2", "1,524,499", f"{numbers['bytes'] / 1e6:.1f}"]
    scores = [numbers["psnr_y"][name] for name in ("B100", "Urban100")] + [numbers["pll"]["B100"]]
    assert row[4:7] == [f"{score:.2f}" for score in scores]
    assert row[7:9] == [f"{seconds:.1f}", "s"]
    assert "--model standard means edsr-baseline: for clean pictures." in lines


def test_weights_without_a_licence_are_shipped_all_the_same(monkeypatch, small_networks):
    metadata = {"licence": "", "scale": 2}
    monkeypatch.setattr(model_card, "shipped_metadata", lambda *_: metadata)
    assert card("espcn", scale=2).shipped
    assert not card("espcn", scale=2).licence


def test_one_network_shows_its_costs(musigma):
    result = musigma("models", "bicubic")
    assert result.code == 0
    assert [line.split()[:2] for line in result.out.splitlines()[1:4]] == [
        ["bicubic", f"x{scale}"] for scale in (2, 3, 4)
    ]
    assert "Keys, Cubic convolution interpolation" in result.out


def test_one_network_gives_a_list_of_its_scales(musigma):
    listed = json.loads(musigma("models", "bicubic", "--json").out)
    assert [content["scale"] for content in listed] == [2, 3, 4]


def test_what_a_weights_file_holds(musigma, weights, tmp_path):
    ours = json.loads(musigma("models", "--load", weights).out)
    assert (ours["name"], ours["scale"], ours["sigma"]) == ("edsr-baseline", 2, True)
    assert ours["metadata"]["settings"] == {"num_blocks": 1, "width": 8}
    assert len(ours["digest"]) == 64
    torch.save(weights_of(create("imdn", scale=4, num_blocks=2, width=16)), tmp_path / "a.pth")
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
        (["espcn", "--shipped"], "no weights ship for this choice"),
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
