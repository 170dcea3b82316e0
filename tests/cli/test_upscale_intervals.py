"""``musigma upscale`` with calibrated weights: error maps, coverages, and what is promised."""

import json

import numpy as np
import pytest
import torch

from helpers.calibrations import calibration_of
from musigma.images.image_io import ImageMeta, read_image, write_image
from musigma.model import load, save
from musigma.networks import create, with_sigma
from musigma.prediction.predict import predict
from musigma.restoration.error_maps import read_error_map

PIXELS = np.random.default_rng(0).integers(0, 256, (13, 11, 3), np.uint8)


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory):
    """A small EDSR x2 with a calibration, as a file."""
    torch.manual_seed(0)
    network = with_sigma(create("edsr-baseline", scale=2, num_blocks=1, width=8), width=8, depth=1)
    calibration = calibration_of(
        other_factors=((0.5, 0.6), (0.95, 2.4)), protocol={"degradation": "bicubic", "scale": 2}
    )
    path = tmp_path_factory.mktemp("calibrated") / "w.safetensors"
    save(path, network, calibration=calibration.to_dict())
    return path


def test_calibrated_files_have_three_names_for_three_things(musigma, calibrated, tmp_path):
    image = torch.rand(1, 3, 7, 5)
    write_image(tmp_path / "a.png", image, ImageMeta(bits=16))  # rounding is too small to see
    words = ("-o", tmp_path / "out", "--model", calibrated, "--sigma")
    assert musigma("upscale", tmp_path / "a.png", *words).code == 0
    sigma = predict(load(calibrated).network, read_image(tmp_path / "a.png")[0]).sigma
    files = {"sigma": ("a.sigma.png", 1), "std": ("a.std.png", 1.5)}
    for quantity, (name, factor) in (files | {"half_width": ("a.interval.png", 3.0)}).items():
        stored = read_error_map(tmp_path / "out" / name)
        assert stored.quantity == quantity
        expected = (factor * sigma).clamp(0, 1)
        # The file holds 8 bits, and the interval includes the error of that.
    assert torch.allclose(stored.values, expected, atol=2e-4)


def test_another_coverage_that_was_fitted(musigma, calibrated, tmp_path):
    write_image(tmp_path / "a.png", torch.rand(1, 3, 7, 5))
    words = ("upscale", tmp_path / "a.png", "-o", tmp_path / "out", "--model", calibrated)
    result = musigma(*words, "--sigma", "--coverage", "0.95")
    assert "at least 95 % of the true values of an image" in result.err
    stored = read_error_map(tmp_path / "out" / "a.interval.png")
    sigma = predict(load(calibrated).network, read_image(tmp_path / "a.png")[0]).sigma
    assert stored.info["coverage"] == "0.95"
    expected = (2.4 * 1.5 * sigma).clamp(0, 1)
    # The file holds 8 bits, and the interval includes the error of that.
    assert torch.allclose(stored.values, expected, atol=2e-4)
    refused = musigma(*words, "--coverage", "0.99")
    assert refused.code == 2
    assert "calibrated for coverages of 0.5, 0.9, 0.95, not of 0.99, which needs" in refused.err


def test_the_promise_is_printed_with_its_condition(musigma, calibrated, tmp_path):
    write_image(tmp_path / "a.png", torch.rand(1, 3, 7, 5))
    words = ("upscale", tmp_path / "a.png", "-o", tmp_path / "out", "--model", calibrated)
    promise = load(calibrated).calibration.promise
    assert "clean, shrunk by 2 with bicubic" in promise
    plain = musigma(*words, "--sigma")
    assert f"Intervals: {promise}." in plain.err
    assert "warning" not in plain.err
    (done,) = json.loads(musigma(*words, "--sigma", "--json").out)["done"]
    assert (done["promise"], done["promise_reason"]) == (promise, None)
    assert "Intervals" not in musigma(*words).err  # no interval was asked for


@pytest.mark.parametrize(
    ("name", "words", "reason"),
    [
        ("a.jpg", (), "it is a JPEG, and the model is calibrated for pictures without JPEG"),
        ("a.png", ("--ensemble",), "the model is calibrated without --ensemble"),
        (
            "a.png",
            ("--engine", "torch-bf16"),
            "the model is calibrated in float32, and torch-bf",
        ),
    ],
)
def test_no_promise_where_it_does_not_hold(musigma, calibrated, tmp_path, name, words, reason):
    write_image(tmp_path / name, torch.rand(1, 3, 9, 8))
    words = ("upscale", tmp_path / name, "-o", tmp_path / "out", "--model", calibrated, *words)
    plain = musigma(*words, "--page")
    assert plain.code == 0
    assert (
        f"warning: the promise of the intervals does not hold for this file: {reason}" in plain.err
    )
    assert "Intervals" not in plain.err
    page = (tmp_path / "out" / "a.html").read_text()
    assert "No promise for this picture" in page
    assert "On average, at least" not in page
    (done,) = json.loads(musigma(*words, "--page", "--json").out)["done"]
    assert done["promise"] is None
    assert reason in done["promise_reason"]


def test_one_warning_for_many_files(musigma, calibrated, tmp_path):
    for name in ("a.jpg", "b.jpg", "c.jpg", "d.jpg", "e.png"):
        write_image(tmp_path / "in" / name, torch.rand(1, 3, 9, 8))
    words = ("upscale", tmp_path / "in", "-o", tmp_path / "out", "--model", calibrated, "--sigma")
    lines = [line for line in musigma(*words).err.splitlines() if "promise" in line]
    (line,) = lines
    assert "the promise of the intervals does not hold for 4 of 5 files" in line
    assert ", ...): it is a JPEG" in line
