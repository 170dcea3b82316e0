"""``musigma calibrate``: intervals fitted on held-out pictures travel with the weights."""

import json

import pytest
from PIL import Image

from musigma.evaluation import load_record
from musigma.model import load, save
from musigma.networks import create


def test_a_calibration_is_stored_and_used(musigma, weights, photos, tmp_path):
    output = tmp_path / "calibrated.safetensors"
    words = (
        "--data",
        photos,
        "--coverage",
        0.8,
        "-o",
        output,
        "--method",
        "pooled-quantile",
        "--json",
    )
    result = musigma("calibrate", weights, *words)
    assert (result.code, result.err) == (0, "")
    model = load(output)
    assert model.calibration.to_dict() == json.loads(result.out)
    assert (model.calibration.coverage, model.calibration.num_images) == (0.8, 2)
    assert model.calibration.data["name"] == "photos"
    assert model.calibration.protocol["degradation"] == "bicubic"
    assert model.metadata["settings"] == load(weights).metadata["settings"]
    # On the pictures of the fit, the pooled quantile covers what was asked for, but for the grid.
    record = tmp_path / "record.json"
    assert musigma("evaluate", output, "--data", photos, "--record", record).code == 0
    numbers = load_record(record).result
    assert numbers["coverage"] == pytest.approx(0.8, abs=0.01)
    assert numbers["coverage_50"] == pytest.approx(0.5, abs=0.01)
    assert numbers["coverage_99"] == pytest.approx(0.99, abs=0.01)
    words = ("-o", tmp_path / "out", "--model", output, "--sigma")
    assert musigma("upscale", photos / "a.png", *words).code == 0
    assert (tmp_path / "out" / "a.interval.png").is_file()


def test_the_promise_for_people(musigma, weights, photos, tmp_path):
    words = ("--data", photos, "-o", tmp_path / "w.safetensors", "--method", "isotonic")
    result = musigma("calibrate", weights, *words)
    assert (result.code, result.out) == (0, "")
    assert (
        "Without a guarantee, about 90 % of the true values lie inside their intervals"
        in result.err
    )
    assert "like the 2 of the calibration (photos): clean, shrunk by 2 with bicubic" in result.err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--method", "conformal"], "needs at least 9 held-out images, got 2"),
        (["--method", "conformall"], "did you mean 'conformal'"),
        (["--coverage", "1.5"], "coverage"),
        (["--degrade", "jpg(75)"], "did you mean 'jpeg'"),
        (["--degrade", "jpeg(75)", "--low", "photos"], "give one of the two"),
        (["--scale", "3"], "enlarges by 2, not by 3"),
        (["--noise-std", "25"], "the network enlarges; --noise-std is for networks of scale 1"),
        ([], "or take the method pooled-quantile, which promises nothing"),
        (
            ["--method", "pooled-quantile", "-o", "w.pth"],
            "w.pth was not written: the name must end in .safetensors",
        ),
        (["--method", "pooled-quantile", "-o", "photos/a.png/w.safetensors"], "no file can"),
    ],
)
def test_wrong_arguments_of_calibrate_give_one_line(
    musigma, weights, photos, monkeypatch, words, line
):
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


def test_a_calibration_for_jpeg_covers_jpeg(musigma, weights, photos, tmp_path):
    # What a user of a scanner or a camera is told to do: calibrate on inputs like their own.
    output, record = tmp_path / "jpeg.safetensors", tmp_path / "record.json"
    degrade = ("--data", photos, "--degrade", "area | jpeg(30)")
    method = ("--method", "pooled-quantile")
    assert musigma("calibrate", weights, *degrade, *method, "-o", output).code == 0
    assert 'made by "area | jpeg(30)" at scale 2' in load(output).calibration.conditions
    assert musigma("evaluate", output, *degrade, "--record", record).code == 0
    assert load_record(record).result["coverage"] == pytest.approx(0.9, abs=0.01)


def test_a_calibration_over_several_degradations_shows_each(musigma, weights, photos, tmp_path):
    words = ("--degrade", "bicubic", "--degrade", "jpeg(30)", "--method", "pooled-quantile")
    output = tmp_path / "w.safetensors"
    result = musigma("calibrate", weights, "--data", photos, *words, "-o", output)
    assert result.code == 0
    assert result.err.count("of the values are inside for") == 2
    assert "fitted for coverages of 0.5, 0.8, 0.9, 0.95, 0.99" in result.err
    assert load(output).calibration.protocol["degradation"] == ["bicubic", "bicubic | jpeg(30)"]


def test_pairs_of_files_are_calibrated_on(musigma, weights, photos, tmp_path):
    low = tmp_path / "scans"
    low.mkdir()
    for name in ("a.png", "b.png"):
        Image.open(photos / name).resize((24, 20), Image.Resampling.BOX).save(low / name)
    output = tmp_path / "scans.safetensors"
    words = ("--data", photos, "--low", low, "--method", "pooled-quantile", "-o", output)
    result = musigma("calibrate", weights, *words)
    assert result.code == 0
    assert "as in the pairs of files" in result.err
    assert load(output).calibration.protocol["degradation"] == "pairs"


def test_what_could_not_be_fitted_is_said_with_its_number(musigma, weights, tmp_path):
    folder = tmp_path / "nine"
    folder.mkdir()
    for number in range(9):
        picture = Image.effect_noise((24, 20), 20 + number).convert("RGB")
        picture.save(folder / f"{number}.png")
    result = musigma("calibrate", weights, "--data", folder, "-o", tmp_path / "w.safetensors")
    assert result.code == 0
    assert "fitted for coverages of 0.5, 0.8, 0.9\n" in result.err
    assert (
        "not fitted for 0.95, which needs 19 images for the factors, and there were 9" in result.err
    )
    assert "not fitted for 0.99, which needs 99 images" in result.err
