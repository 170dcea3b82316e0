"""``musigma evaluate``: the numbers of the tables, with a record of where they come from."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.networks import build
from musigma.evaluation import load_record
from musigma.model import save
from musigma.networks import create


def test_numbers_and_record(musigma, weights, photos, tmp_path):
    record = tmp_path / "records" / "tiny.json"
    result = musigma("evaluate", weights, "--data", photos, "--record", record, "--json")
    assert (result.code, result.err) == (0, "")
    numbers = json.loads(result.out)
    assert (numbers["model"], numbers["data"]) == (str(weights), "photos")
    assert numbers["protocol"]["name"] == "sr-y"
    for name in ("psnr_y", "ssim_y", "pll", "sigma_psnr", "crps", "ause", "coverage"):
        assert isinstance(numbers[name], float), name
    stored = load_record(record)
    assert stored.result == {name: numbers[name] for name in stored.result}
    assert stored.data["num_images"] == 2
    assert list(stored.images) == ["a", "b"]
    mean = (stored.images["a"]["psnr_y"] + stored.images["b"]["psnr_y"]) / 2
    assert stored.result["psnr_y"] == pytest.approx(mean)
    assert stored.provenance["torch"] == torch.__version__


def test_the_table_for_people(musigma, photos):
    result = musigma("evaluate", "bicubic", "--data", photos, "--scale", 3)
    assert result.code == 0
    assert "bicubic on photos" in result.out
    assert "psnr_y" in result.out
    assert "inputs made by bicubic, scale 3; measured on Y" in result.out
    assert "coverage" not in result.out  # bicubic has no sigma


def test_tiles_change_nothing(musigma, weights, photos):
    whole, tiled = (
        json.loads(musigma("evaluate", weights, "--data", photos, "--json", *words).out)
        for words in ((), ("--tile", "9"))
    )
    assert tiled == whole


def test_a_released_file_is_evaluated_like_ours(musigma, photos, tmp_path):
    torch.manual_seed(0)
    network = create("edsr-baseline", scale=2, num_blocks=1, width=8, value_range=255.0)
    save(tmp_path / "ours.safetensors", network)
    state = {f"module.{key}": value for key, value in network.state_dict().items()}
    torch.save({"params_ema": state}, tmp_path / "theirs.pth")
    ours, theirs = (
        json.loads(musigma("evaluate", tmp_path / file, "--data", photos, "--json").out)
        for file in ("ours.safetensors", "theirs.pth")
    )
    assert ours.pop("model") != theirs.pop("model")
    assert ours == theirs


def test_a_denoiser_is_measured_with_noise(musigma, photos, tmp_path):
    torch.manual_seed(0)
    save(tmp_path / "w.safetensors", create("dncnn", scale=1, num_layers=3))
    words = ("evaluate", tmp_path / "w.safetensors", "--data", photos)
    numbers = json.loads(musigma(*words, "--noise-std", 25, "--json").out)
    assert (numbers["protocol"]["name"], numbers["protocol"]["noise_std"]) == ("denoise", 25.0)
    assert {"psnr", "ssim"} < numbers.keys()
    result = musigma(*words)
    assert result.code == 2
    assert "give --noise-std (such as 25) for white noise" in result.err


def test_an_infinite_number_is_json_all_the_same(musigma, tmp_path):
    Image.fromarray(np.zeros((40, 40, 3), np.uint8)).save(tmp_path / "black.png")
    record = tmp_path / "record.json"
    words = ("--data", tmp_path, "--scale", 2, "--json", "--record", record)
    result = musigma("evaluate", "bicubic", *words)
    assert result.code == 0

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    assert json.loads(result.out, parse_constant=refuse)["psnr_y"] is None
    json.loads(record.read_text(), parse_constant=refuse)
    assert load_record(record).result["psnr_y"] == float("inf")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["bicubic", "--scale", "2", "--data", "nowhere"], "'nowhere'"),
        (["bicubic", "--data", "photos"], "choose one of them"),
        (["bicubic", "--scale", "7", "--data", "photos"], "2, 3 or 4, not 7"),
        (
            ["bicubic", "--scale", "2", "--data", "photos", "--noise-std", "25"],
            "the network enlarges",
        ),
        (["bicubic", "--scale", "2", "--data", "photos", "--tile", "0"], "at least one pixel"),
        (["bicubic", "--scale", "2", "--data", "small"], "small/a.png: SSIM needs 11x11 pixels"),
        (["bicubic", "--scale", "2", "--data", "broken"], "broken/a.png: is empty"),
        (["truncated.safetensors", "--data", "photos"], "is not a whole safetensors file"),
        (["nowhere.pth", "--data", "photos"], "there is no weights file nowhere.pth"),
        (["text.pth", "--data", "photos"], "text.pth cannot be loaded safely: it is damaged"),
        (["{weights}", "--data", "photos", "--scale", "4"], "enlarges by 2, not by 4"),
        (["{weights}", "--data", "photos", "--coverage", "0"], "coverage"),
    ],
)
def test_wrong_arguments_of_evaluate_give_one_line(
    musigma, weights, photos, monkeypatch, words, line
):
    monkeypatch.chdir(photos.parent)
    for folder, data in (("small", None), ("broken", b"")):
        Path(folder).mkdir()
        picture = Path(folder) / "a.png"
        if data is None:
            Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(picture)
        else:
            picture.write_bytes(data)
    Path("truncated.safetensors").write_bytes(weights.read_bytes()[:-100])
    Path("text.pth").write_text("no weights")
    result = musigma("evaluate", *(word.format(weights=weights) for word in words))
    assert result.code == 2
    assert result.out == ""
    assert result.err.count("\n") == 1
    assert result.err.startswith("error: ")
    assert line in result.err


def test_a_record_that_cannot_be_written_costs_no_numbers(musigma, photos):
    record = photos / "a.png" / "record.json"
    words = ("--data", photos, "--scale", 2, "--json", "--record", record)
    result = musigma("evaluate", "bicubic", *words)
    assert result.code == 2
    assert json.loads(result.out)["psnr_y"] > 20
    (line,) = result.errors
    assert f"{record} could not be written" in line


needs_data = pytest.mark.skipif(
    not os.environ.get("MUSIGMA_DATA"), reason="MUSIGMA_DATA names no folder of data sets"
)


@needs_data
@pytest.mark.parametrize(
    ("scale", "psnr_y", "ssim_y"),
    # Measured with an independent reference; published (made on Y alone): 33.66, 30.39, 28.42 dB
    # and .9299, .8682, .8104.
    [(2, 33.673, 0.9299), (3, 30.403, 0.8682), (4, 28.429, 0.8104)],
)
def test_bicubic_on_set5(musigma, scale, psnr_y, ssim_y):
    numbers = json.loads(
        musigma("evaluate", "bicubic", "--data", "Set5", "--scale", scale, "--json").out
    )
    assert numbers["psnr_y"] == pytest.approx(psnr_y, abs=0.01)
    assert numbers["ssim_y"] == pytest.approx(ssim_y, abs=0.001)


@needs_data
@pytest.mark.slow
def test_official_imdn_on_set5(musigma):
    checkpoint = Path(os.environ.get("MUSIGMA_CHECKPOINTS", "")) / "imdn_x2.pth"
    if not checkpoint.is_file():
        pytest.skip("MUSIGMA_CHECKPOINTS names no folder with imdn_x2.pth")
    numbers = json.loads(musigma("evaluate", checkpoint, "--data", "Set5", "--json").out)
    assert numbers["psnr_y"] == pytest.approx(38.00, abs=0.01)  # Hui et al. 2019, table 5


@pytest.fixture
def seeds(tmp_path):
    """Two files of random weights that differ in their seed alone."""
    files = []
    for seed in range(2):
        torch.manual_seed(seed)
        files.append(tmp_path / f"{seed}.safetensors")
        save(files[-1], create("edsr-baseline", scale=2, num_blocks=1, width=8))
    return files


def test_baselines_are_measured_by_the_same_command(musigma, seeds, photos, tmp_path):
    record = tmp_path / "baseline.json"
    words = ("--data", photos, "--calibrate-on", photos, "--record", record, "--json")
    for baseline, models in (("tta", seeds[:1]), ("constant", seeds[:1]), ("ensemble", seeds)):
        result = musigma("evaluate", *models, "--baseline", baseline, *words, "--coverage", 0.8)
        assert (result.code, result.err) == (0, "")
        numbers, stored = json.loads(result.out), load_record(record)
        assert numbers["baseline"] == stored.model["baseline"] == baseline
        assert numbers["model"] == " ".join(map(str, models))
        assert numbers["coverage"] == pytest.approx(0.8, abs=0.01)
        assert stored.result["pll_calibrated"] == numbers["pll_calibrated"]


def test_a_model_is_calibrated_in_memory(musigma, weights, photos):
    words = ("evaluate", weights, "--data", photos, "--json")
    raw, calibrated = (
        json.loads(musigma(*words, *more).out) for more in ((), ("--calibrate-on", photos))
    )
    assert "pll_calibrated" not in raw
    assert calibrated["pll"] == raw["pll"]
    assert calibrated["coverage"] == pytest.approx(0.9, abs=0.01)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ((), "got 2 models; evaluate one, or give --baseline ensemble"),
        (("--baseline", "tta"), "only an ensemble takes several models"),
        (("--baseline", "ensembel"), "did you mean 'ensemble'"),
        (("--baseline", "ensemble", "--calibrate-on", "nowhere"), "'nowhere'"),
    ],
)
def test_baselines_that_cannot_be(musigma, seeds, photos, words, line):
    result = musigma("evaluate", *seeds, "--data", photos, *words)
    assert (result.code, result.out) == (2, "")
    (error,) = result.errors
    assert line in error


def test_degradations_are_rows_of_a_table(musigma, weights, photos, tmp_path):
    words = ("evaluate", weights, "--data", photos, "--degrade", "jpeg(30)", "--degrade", "area")
    table = musigma(*words, "--record", tmp_path / "records")
    assert table.code == 0
    assert "jpeg(30)" in table.out
    names = sorted(path.name for path in (tmp_path / "records").iterdir())
    assert names == ["01-jpeg-30.json", "02-area.json"]
    both = json.loads(musigma(*words, "--json").out)["results"]
    assert [row["protocol"]["degradation"] for row in both] == ["bicubic | jpeg(30)", "area"]
    single = json.loads(musigma(*words[:-2], "--json").out)
    assert single["psnr_y"] == both[0]["psnr_y"]
    record = load_record(tmp_path / "records" / "02-area.json")
    assert (record.protocol["name"], record.result["psnr_y"]) == ("degraded", both[1]["psnr_y"])


@pytest.mark.parametrize("layout", ["--low", "folders"])
def test_a_network_of_scale_1_is_measured_on_pairs(musigma, photos, tmp_path, layout):
    torch.manual_seed(0)
    save(tmp_path / "dps.safetensors", build("dps", 1))
    data, low = tmp_path / "Real" / "HR", tmp_path / "Real" / "LR"
    low.mkdir(parents=True)
    photos.rename(data)
    for picture in data.iterdir():
        Image.fromarray(np.asarray(Image.open(picture)) // 2).save(low / picture.name)
    words = ("--data", data, "--low", low) if layout == "--low" else ("--data", data.parent)
    numbers = json.loads(musigma("evaluate", tmp_path / "dps.safetensors", *words, "--json").out)
    assert numbers["data"] == "Real"
    assert (numbers["protocol"]["name"], numbers["protocol"]["degradation"]) == ("pairs", "pairs")
    assert {"psnr_y", "ssim_y", "psnr", "ssim"} < numbers.keys()
