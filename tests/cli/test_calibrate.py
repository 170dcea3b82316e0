"""``musigma calibrate``: intervals fitted on held-out pictures travel with the weights."""

import json

import pytest

from musigma.evaluation import load_record
from musigma.model import load, save
from musigma.networks import create
from musigma.restoration.restore_file import calibration_of


def test_a_calibration_is_stored_and_used(musigma, weights, photos, tmp_path):
    output = tmp_path / "calibrated.safetensors"
    words = ("--data", photos, "--coverage", 0.8, "-o", output, "--method", "average", "--json")
    result = musigma("calibrate", weights, *words)
    assert (result.code, result.err) == (0, "")
    model = load(output)
    assert calibration_of(model).to_dict() == json.loads(result.out)
    assert model.metadata["calibration"]["coverage"] == 0.8
    assert model.metadata["calibration"]["num_images"] == 2
    assert model.metadata["calibration_data"]["name"] == "photos"
    assert model.metadata["settings"] == load(weights).metadata["settings"]
    # On the pictures of the fit, an average covers what was asked for, but for the grid.
    record = tmp_path / "record.json"
    assert musigma("evaluate", output, "--data", photos, "--record", record).code == 0
    assert load_record(record).result["coverage"] == pytest.approx(0.8, abs=0.01)
    words = ("-o", tmp_path / "out", "--model", output, "--sigma")
    assert musigma("upscale", photos / "a.png", *words).code == 0
    assert (tmp_path / "out" / "a.interval.png").is_file()


def test_the_promise_for_people(musigma, weights, photos, tmp_path):
    words = ("--data", photos, "-o", tmp_path / "w.safetensors", "--method", "isotonic")
    result = musigma("calibrate", weights, *words)
    assert (result.code, result.out) == (0, "")
    line = "intervals cover about 0.9 of the values, without a guarantee (isotonic, 2 held-out"
    assert line in result.err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--method", "conformal"], "needs at least 9 held-out images, got 2"),
        (["--method", "avrage"], "did you mean 'average'"),
        (["--coverage", "1.5"], "coverage"),
        (["--scale", "3"], "enlarges by 2, not by 3"),
        (["--noise-std", "25"], "edsr-baseline enlarges; --noise-std goes with denoisers"),
        ([], "or take the method average, which promises nothing"),
        (
            ["--method", "average", "-o", "w.pth"],
            "w.pth was not written: the name must end in .safetensors",
        ),
        (["--method", "average", "-o", "photos/a.png/w.safetensors"], "File exists"),
    ],
)
def test_what_goes_wrong_gives_one_line(musigma, weights, photos, monkeypatch, words, line):
    monkeypatch.chdir(photos.parent)
    result = musigma("calibrate", weights, "--data", photos, "-o", "new.safetensors", *words)
    assert result.code == 2
    assert result.out == ""
    assert result.err.count("\n") == 1
    assert line in result.err
    assert sorted(path.name for path in photos.parent.iterdir()) == ["photos"]


def test_nothing_to_calibrate_without_sigma(musigma, photos, tmp_path):
    save(tmp_path / "w.safetensors", create("espcn", scale=2))
    words = ("--data", photos, "-o", tmp_path / "new.safetensors")
    result = musigma("calibrate", tmp_path / "w.safetensors", *words)
    assert result.code == 2
    assert "espcn has no sigma branch; there is nothing to calibrate" in result.err
