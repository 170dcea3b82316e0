"""``musigma adapt``: what it refuses, and what it prints."""

import json

import pytest
import torch

from helpers.runs import write_pictures
from musigma.model import save
from musigma.networks import create, with_sigma


@pytest.fixture
def start(tmp_path):
    torch.manual_seed(0)
    network = with_sigma(create("edsr-baseline", scale=2, num_blocks=1, width=8), width=8)
    save(tmp_path / "tiny.safetensors", network)
    return tmp_path / "tiny.safetensors"


def test_five_pictures_are_refused_with_the_number_needed(musigma, tmp_path):
    pictures = write_pictures(tmp_path / "photos", num=5, height=100, width=100)
    done = musigma("adapt", pictures, "-o", tmp_path / "out")
    assert done.code == 2
    (error,) = done.errors
    assert error.startswith("error: 5 pictures are too few: at least 20 are needed")
    assert not (tmp_path / "out").exists()


def test_a_run_prints_its_numbers_as_json(musigma, tmp_path, start):
    pictures = write_pictures(tmp_path / "photos", num=20, height=100, width=100)
    out = tmp_path / "out"
    words = ("adapt", pictures, "-o", out, "--start", start, "--minutes", 0.02, "--device", "cpu")
    done = musigma(*words, "--json")
    assert done.code == 0, done.err
    printed = json.loads(done.out)
    assert printed["kind"] == "adaptation"
    assert printed["folder"] == str(out)
    assert "inputs are made by" in done.err
    again = musigma(*words)
    assert again.errors == [
        f"error: {out} holds an adaptation already; continue it with --resume or choose another "
        "folder"
    ]
    shown = musigma(*words, "--resume")
    assert "inside the 90 % interval:" in shown.err
    assert "report.html" in shown.err
