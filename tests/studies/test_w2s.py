"""The study of W2S on pictures that are made like those of W2S."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.calibrations import calibration_of
from musigma.evaluation.record import load_record
from musigma.functional.poisson_gaussian import PoissonGaussian
from musigma.model import Model, load
from musigma.networks import create, with_sigma
from studies.data_sets import w2s

GAIN, SLOPE, OFFSET = 8.0, 0.7, 12.0


def spots(seed, side=128):
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:side, 0:side]
    picture = np.zeros((side, side))
    for _ in range(12):
        row, column = random.uniform(0, side, 2)
        size = random.uniform(4, 16)
        picture += random.uniform(30, 90) * np.exp(
            -((y - row) ** 2 + (x - column) ** 2) / (2 * size**2)
        )
    return picture.clip(0, 255).round()


@pytest.fixture
def source(tmp_path, monkeypatch):
    """Four fields of three channels: two to train, one to validate, one held out."""
    monkeypatch.setattr(w2s, "TRAINING", range(1, 3))
    monkeypatch.setattr(w2s, "VALIDATION", range(3, 4))
    monkeypatch.setattr(w2s, "HELD_OUT", range(4, 5))
    random = np.random.default_rng(0)
    for number, name in enumerate(w2s.names(range(1, 5))):
        average = spots(number)
        clean = SLOPE * average + OFFSET
        noisy = (clean + random.normal(0, np.sqrt(GAIN * clean))).clip(0, 255)
        for kind, picture in {"noisy": noisy, "average": average, "n2n": clean}.items():
            save(tmp_path / f"{w2s.FILES[kind]}{name}.tif", picture)
        save(tmp_path / f"{w2s.FILES['vst-bm3d']}{name}.png", average + (average < 200))
    return tmp_path


def save(path, picture):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture.round().astype(np.uint8)).save(path)


def test_the_scale_of_a_frame_is_found(source):
    noisy, average = (w2s.read(source, kind, "001_0") for kind in ("noisy", "average"))
    line = w2s.line_of(w2s.levels_of(noisy, average))
    assert line.slope == pytest.approx(SLOPE, abs=0.05)
    assert line.offset == pytest.approx(OFFSET, abs=1.5)


def test_contrast_is_no_error_once_it_is_taken_away(source):
    average = w2s.read(source, "average", "004_0")
    stored = w2s.stretch_of(average).of(average).clip(0, 255)
    scores = w2s.scores(0.5 * stored + 20, stored)
    assert scores["psnr_as_stored"] < 25
    assert scores["psnr_own_contrast"] > 45
    assert scores["psnr_best_line"] > 60


def test_baselines_are_measured_on_all_fields_and_on_those_held_out(source, tmp_path):
    w2s.main(["baselines", str(source), str(tmp_path / "record.json")])
    record = load_record(tmp_path / "record.json")
    held_out, every = record.result["held_out"], record.result["all_fields"]
    assert held_out["noisy_psnr_as_stored"] == pytest.approx(
        np.mean([record.images[f"004_{n}"]["noisy_psnr_as_stored"] for n in range(3)])
    )
    assert every["vst-bm3d_psnr_as_stored"] > 45 > every["n2n_psnr_as_stored"]
    assert len(record.images) == 12


def test_noise_is_described(source, tmp_path):
    w2s.main(["look", str(source), str(tmp_path / "record.json")])
    result = load_record(tmp_path / "record.json").result
    assert abs(result["correlation_right"]["mean"]) < 0.02
    assert result["gain"]["mean"] == pytest.approx(GAIN, rel=0.1)
    assert result["gain_estimate_over_gain"]["mean"] == pytest.approx(1, abs=0.15)


def weights(path, factor):
    torch.manual_seed(0)
    network = create("drunet-small-blind", scale=1, channels=1, widths=(4, 4, 4, 4), num_blocks=1)
    network = with_sigma(network, width=4, depth=1).eval()
    calibration = calibration_of(factor=factor)
    Model(network=network, name="own", calibration=calibration).save(path)


def test_sets_of_pairs_and_the_weights_on_those_held_out(source, tmp_path):
    w2s.main(["lay-out", str(source), str(tmp_path / "data")])
    for name, number in (("train", 6), ("validation", 3), ("test", 3)):
        folder = tmp_path / "data" / f"W2S_{name}"
        assert (
            len(list((folder / "HR").iterdir())) == len(list((folder / "LR").iterdir())) == number
        )
    with Image.open(tmp_path / "data" / "W2S_train" / "HR" / "001_0.png") as image:
        average = w2s.read(source, "average", "001_0")
        assert abs(np.asarray(image) - (SLOPE * average + OFFSET)).mean() < 1.5
    weights(tmp_path / "own.safetensors", factor=1e6)
    w2s.main(["label", str(tmp_path / "own.safetensors"), str(tmp_path / "new.safetensors")])
    assert load(tmp_path / "new.safetensors").metadata["value_percentiles"] == [0.175, 99.825]
    w2s.main(
        ["evaluate", str(tmp_path / "new.safetensors"), str(source), str(tmp_path / "record.json")]
    )
    record = load_record(tmp_path / "record.json")
    assert record.images.keys() == {"004_0", "004_1", "004_2"}
    assert record.result["coverage"] == record.result["coverage_own_contrast"] == 1
    assert (
        json.loads((tmp_path / "record.json").read_text())["model"]["calibration"]["factor"] == 1e6
    )
    w2s.main(
        [
            "remake",
            str(tmp_path / "new.safetensors"),
            str(tmp_path / "data" / "W2S_validation"),
            str(tmp_path / "restored"),
        ]
    )
    assert len(list((tmp_path / "restored" / "LR").iterdir())) == 3 * w2s.COPIES


def test_new_noise_follows_the_law_of_the_camera():
    clean = np.full((400, 400), 50.0)
    noise = PoissonGaussian(gain=6.0, std=2.0, black=10.0)
    frame = w2s.new_frame(clean, noise, np.random.default_rng(0))
    assert frame.mean() == pytest.approx(50, abs=0.2)
    assert frame.var() == pytest.approx(6 * 40 + 4, rel=0.03)
    # The third moment is 1.5 gain^2 light, that of counted photons alone would be gain^2 light.
    assert ((frame - 50) ** 3).mean() == pytest.approx(1.5 * 36 * 40, rel=0.15)


def test_training_starts_from_photo_with_one_channel(tmp_path):
    w2s.main(["start", str(tmp_path / "start.safetensors")])
    colors, gray = load("photo", scale=1), load(tmp_path / "start.safetensors")
    picture = torch.rand(1, 1, 24, 32, generator=torch.Generator().manual_seed(0))
    expected = colors.predict(picture.expand(-1, 3, -1, -1)).mean.mean(1, keepdim=True)
    assert torch.allclose(gray.predict(picture).mean, expected, atol=1e-4)
