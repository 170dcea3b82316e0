"""A whole adaptation, with a network and pictures small enough for a test."""

import json
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import musigma
from helpers.runs import send_signal_at
from musigma.adaptation import fine_tuning
from musigma.adaptation.adapt import Show, adapt, gain_is_certain
from musigma.adaptation.fine_tuning import make_recipe, noisy_objective, objective_of
from musigma.adaptation.source import Settings, find_source
from musigma.adaptation.state import State, open_state
from musigma.evaluation.record import load_record
from musigma.functional.noisy_pairs import MeasuredNoise
from musigma.functional.poisson_gaussian import PoissonGaussian
from musigma.model import load, save
from musigma.networks import create, with_sigma
from musigma.training.trainer import StoppedError
from musigma.types import ConfigError, DataError, WeightsError

DEGRADE = "area | noise(5)"


NUM_STEPS = 60


@pytest.fixture(scope="module", autouse=True)
def _steps_in_place_of_seconds():
    """Train the same on every machine, however busy it is."""

    def in_steps(*args, **options):
        recipe = make_recipe(*args, **options)
        return replace(recipe, seconds=None, steps=NUM_STEPS, batch=4)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("musigma.adaptation.adapt.make_recipe", in_steps)
        yield


def draw(number: int, side: int = 96) -> np.ndarray:
    y, x = np.mgrid[0:side, 0:side]
    waves = [np.sin(x / period + y / (period + 3) + number) for period in (4, 7, 9)]
    return 128 + 70 * np.stack(waves, axis=2)


def write(path: Path, levels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(levels.clip(0, 255).round().astype(np.uint8)).save(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Twenty clean pictures, twenty noisy pairs, and random weights of a tiny network."""
    folder, random = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for number in range(20):
        write(folder / "clean" / f"{number}.png", draw(number))
        write(folder / "small" / f"{number}.png", draw(number)[::2, ::2])
        for side in ("first", "second"):
            noise = random.normal(0, 12, (96, 96, 3))
            write(folder / side / f"{number}.png", 0.7 * draw(number) + 40 + noise)
    torch.manual_seed(0)
    for scale, name in ((2, "edsr-baseline"), (1, "dncnn-colour")):
        settings = {"num_blocks": 1, "width": 8} if scale == 2 else {"num_layers": 3, "width": 8}
        network = with_sigma(create(name, scale=scale, **settings), width=8)
        save(folder / f"x{scale}.safetensors", network, licence="of the test")
    return folder


def settings_in(folder: Path, **changes) -> Settings:
    values = {
        "pictures": str(folder / "clean"),
        "start": str(folder / "x2.safetensors"),
        "degrade": DEGRADE,
        "minutes": 1,
    }
    return Settings(**(values | changes))


@pytest.fixture(scope="module")
def adapted(folder):
    out = folder / "out"
    lines = []
    return adapt(settings_in(folder), out, device="cpu", show=Show(line=lines.append)), lines


def test_the_files_load_and_say_what_they_are(adapted, folder):
    (result, _), out = adapted, folder / "out"
    model = load(out / "model.safetensors")
    assert model.digest == result.model.digest == result.record.model["digest"]
    assert model.calibration is not None
    assert model.calibration.coverages == (0.5, 0.8, 0.9, 0.95, 0.99)
    assert model.calibration.num_images == 9
    assert model.calibration.reference is not None  # all twenty pictures tell what inputs are like
    assert f'made by "{DEGRADE}" at scale 2' in model.calibration.promise
    assert "Without a guarantee" in model.calibration.promise
    assert model.metadata["licence"] == "of the test"
    assert model.metadata["adapted_from"]["name"] == "x2.safetensors"
    assert musigma.Model.from_pretrained(out).name == "out"
    assert "of the values" in (out / "README.md").read_text()
    low, high = model.interval(model.predict(torch.rand(1, 3, 9, 8)))
    assert (high > low).all()


def test_the_record_has_before_and_after_on_the_pictures_held_back(adapted, folder):
    record = load_record(folder / "out" / "record.json")
    result = record.result
    assert result["pictures"] == {
        "training": 4, "validation": 3, "calibration": 9, "held_back": 4
    }  # fmt: skip
    assert result["psnr_y"] > result["before"]["psnr_y"] + 0.2
    assert 0.8 < result["coverage"] < 0.97
    assert len(record.images) == 4
    text = (folder / "out" / "record.json").read_text()
    assert str(folder) not in text  # no private path is published
    assert str(folder) not in (folder / "out" / "README.md").read_text()


def test_the_report_is_one_file_that_runs_nothing(adapted, folder):
    page = (folder / "out" / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 18
    assert "<script" not in page
    assert "4 held back" in page
    assert "Without a guarantee" in page
    assert "{{" not in page


def test_the_split_of_the_pictures_is_reported(adapted):
    assert adapted[1] == [
        "20 pictures: 4 for training, 3 for validation, 9 for calibration, 4 held back"
    ]


def test_a_finished_run_is_not_trained_again(adapted, folder):
    out = folder / "out"
    before = json.loads((out / "record.json").read_text())["model"]["digest"]
    with pytest.raises(ConfigError, match="holds an adaptation already"):
        adapt(settings_in(folder), out, device="cpu")
    lines = []
    again = adapt(settings_in(folder), out, resume=True, device="cpu", show=Show(line=lines.append))
    assert again.model.digest == before
    assert lines[1:] == ["the training is finished; more --minutes continue it"]
    with pytest.raises(ConfigError, match="has --seed 0, not 1"):
        adapt(settings_in(folder, seed=1), out, resume=True)


def test_a_finished_run_goes_on_when_it_gets_more_minutes(folder, tmp_path, monkeypatch):
    out = tmp_path / "out"
    adapt(settings_in(folder), out, device="cpu")
    first = json.loads((out / "adapt.json").read_text())
    further = lambda *args, **options: replace(  # noqa: E731
        make_recipe(*args, **options), seconds=None, steps=NUM_STEPS + 20, batch=4
    )
    monkeypatch.setattr("musigma.adaptation.adapt.make_recipe", further)
    adapt(settings_in(folder, minutes=3), out, resume=True, device="cpu")
    log = (out / "work" / "run" / "log.jsonl").read_text()
    assert f"resumed at step {NUM_STEPS}" in log
    assert f'"step": {NUM_STEPS + 20}' in log
    second = json.loads((out / "adapt.json").read_text())
    assert second["seconds"] == pytest.approx(first["seconds"] + 120)
    assert second["finished"]


def test_a_stopped_run_is_resumed(folder, tmp_path, monkeypatch):
    settings = settings_in(folder)
    with monkeypatch.context() as patch:
        send_signal_at(patch, 3, signal.SIGINT)
        with pytest.raises(StoppedError, match=r"at step 3; continue it with --resume"):
            adapt(settings, tmp_path / "out", device="cpu")
    assert not (tmp_path / "out" / "model.safetensors").exists()
    result = adapt(settings, tmp_path / "out", resume=True, device="cpu")
    log = (tmp_path / "out" / "work" / "run" / "log.jsonl").read_text()
    assert "resumed at step 3" in log
    assert result.model.metadata["training"]["steps"] > 3
    assert f'"step": {NUM_STEPS}' in log


def test_weights_that_cannot_be_improved_stay_as_they_are(folder, tmp_path, monkeypatch):
    """The mean is that of the start to the bit; only the error bars are new."""
    start = folder / "out" / "model.safetensors"
    if not start.exists():
        adapt(settings_in(folder), folder / "out", device="cpu")
    # Steps that are far too long spoil any weights.
    monkeypatch.setitem(fine_tuning.ON_CPU, "learning_rate", 0.3)
    settings = settings_in(folder, start=str(start), degrade="area | noise(20)")
    result = adapt(settings, tmp_path / "out", device="cpu")
    assert not result.improved
    assert result.model.digest == load(start).digest
    assert result.model.calibration != load(start).calibration
    assert result.record.result["psnr_y"] == result.record.result["before"]["psnr_y"]
    assert "did not improve" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        ([0.2, 0.1, 0.3], True),
        ([0.5, -0.1, 0.2], True),
        ([0.9, -0.4, -0.3], False),
        ([-0.2, -0.1, -0.3], False),
        ([0.0, 0.0, 0.0], False),
    ],
)
def test_a_gain_must_be_larger_than_its_standard_error(gains, expected):
    assert gain_is_certain(gains) is expected


def test_the_start_is_written_where_the_gain_is_not_certain(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("musigma.adaptation.adapt.gain_is_certain", lambda _: False)
    result = adapt(settings_in(folder), tmp_path / "out", device="cpu")
    assert not result.improved
    start, kept = (load(path).network.state_dict() for path in (
        folder / "x2.safetensors", tmp_path / "out" / "model.safetensors"
    ))  # fmt: skip
    assert all(torch.equal(value, kept[name]) for name, value in start.items())
    assert result.model.digest == load(tmp_path / "out" / "model.safetensors").digest


def test_pairs_bring_their_scale(folder, tmp_path):
    settings = settings_in(folder, degrade=None, low=str(folder / "small"))
    source = find_source(settings)
    assert (source.inputs, source.scale) == ("pairs", 2)
    result = adapt(settings, tmp_path / "out", device="cpu")
    assert result.record.data["inputs"] == "pairs"
    assert result.record.result["psnr_y"] > result.record.result["before"]["psnr_y"]


def test_noisy_pairs_need_no_clean_picture(folder, tmp_path):
    settings = settings_in(
        folder,
        pictures=str(folder / "first"),
        noisy_pairs=str(folder / "second"),
        degrade=None,
        start=str(folder / "x1.safetensors"),
    )
    result = adapt(settings, tmp_path / "out", device="cpu")
    numbers = result.record.result
    assert numbers["noise_std"] == pytest.approx(12, abs=0.5)
    assert numbers["psnr_noisy"] > numbers["before"]["psnr_noisy"]
    assert numbers["coverage_noisy"] == pytest.approx(0.9, abs=0.05)
    recipe = result.model.metadata["training"]["recipe"]
    assert recipe["objective"].startswith("l2 + ")
    assert recipe["degrade"] == "pairs"
    assert "for the clean scene" in result.model.calibration.promise
    assert "noisy themselves" in (tmp_path / "out" / "report.html").read_text()
    assert load_record(tmp_path / "out" / "record.json").result["noise_std"] == numbers["noise_std"]


def test_weights_remember_the_range_of_measured_values(folder, tmp_path):
    for path in (folder / "first").iterdir():
        for side in ("first", "second"):
            gray = np.asarray(Image.open(folder / side / path.name).convert("L"), np.uint16)
            (tmp_path / side).mkdir(exist_ok=True)
            Image.fromarray(8 * gray).save(tmp_path / side / f"{path.stem}.tif")
    settings = Settings(
        pictures=str(tmp_path / "first"),
        noisy_pairs=str(tmp_path / "second"),
        start=str(folder / "x1.safetensors"),
        value_range=(0, 2040),
        minutes=1,
    )
    result = adapt(settings, tmp_path / "out", device="cpu")
    # In units of 1/255 of the range the noise is as in the pictures of 8 bits, and not 1/32 of it.
    assert 4 < result.record.result["noise_std"] < 14
    model = load(tmp_path / "out" / "model.safetensors")
    assert model.metadata["value_range"] == [0, 2040]
    assert "GeoTIFF" in model.calibration.data["formats"]


def test_the_loss_of_noisy_targets_has_the_mean_and_not_the_median():
    text = noisy_objective(MeasuredNoise(PoissonGaussian(gain=5.1, std=25.5, black=0.0)))
    loss = musigma.losses.parse(text)
    assert loss.needs_sigma
    assert {type(part).__name__ for _, part in zip("ab", loss.losses, strict=True)} == {
        "L2", "SigmaVariance"
    }  # fmt: skip


def test_weights_keep_their_loss(folder):
    assert objective_of(load("photo", scale=2)) == "expected_l1 + 2.0 * sigma_l2"
    assert objective_of(load(folder / "x2.safetensors")) == fine_tuning.OBJECTIVE


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"low": "a"}, ConfigError, "give one of --degrade and --low"),
        ({"minutes": 0}, ConfigError, "must be above 0"),
        ({"degrade": None, "noisy_pairs": "a", "scale": 2}, ConfigError, "leave --scale out"),
        ({"degrade": "bluur(2)"}, ConfigError, "bluur"),
        ({"pictures": "nowhere"}, DataError, "nowhere"),
        ({"start": "nothing.safetensors"}, WeightsError, "there is no weights file"),
        ({"start": "bicubic"}, ConfigError, "has no sigma branch"),
        ({"start": None, "scale": 5}, ConfigError, "no shipped weights enlarge by 5"),
    ],
)
def test_what_cannot_be_adapted_is_refused_before_anything_is_written(
    folder, tmp_path, changes, error, text
):
    with pytest.raises(error, match=text):
        adapt(settings_in(folder, **changes), tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"seconds": "x"},
        {"seconds": 10**400},
        {"settings": 5},
        {"settings": {"minutes": "x"}},
        {"validation": {"a": "x"}},
        {"before": {"psnr": [1]}},
        {"noise": {"gain": 1}},
        {"noise": 5},
        {"warnings": [5]},
        "[" * 100_000,
    ],
    ids=lambda changes: next(iter(changes)) if isinstance(changes, dict) else "deep",
)
def test_a_state_that_a_stranger_changed_is_refused_in_one_line(folder, tmp_path, changes):
    settings = settings_in(folder)
    State(tmp_path, settings, seconds=5.0, finished=True).save()
    assert open_state(tmp_path, settings, resume=True).seconds == 5
    path = tmp_path / "adapt.json"
    stored = json.loads(path.read_text())
    path.write_text(changes if isinstance(changes, str) else json.dumps(stored | changes))
    with pytest.raises(DataError, match=r"adapt.json cannot be read; start again in another"):
        open_state(tmp_path, settings, resume=True)


def test_other_files_in_the_folder_are_left_alone(folder, tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty"):
        open_state(tmp_path, settings_in(folder), resume=True)


def test_the_default_of_inputs_is_that_of_the_weights_and_is_said(folder):
    source = find_source(settings_in(folder, start="photo", degrade=None))
    assert source.degrade == "photo"
    assert any('inputs are made by "photo"' in line for line in source.chosen)
    clean = find_source(settings_in(folder, start="edsr-baseline", degrade=None))
    assert clean.degrade == "bicubic"


def test_a_file_brings_its_scale(folder):
    start = str(folder / "x1.safetensors")
    assert find_source(settings_in(folder, start=start, degrade="noise(9)")).scale == 1
    assert find_source(settings_in(folder, start="drunet-small", degrade="noise(9)")).scale == 1
    assert find_source(settings_in(folder, start="photo", scale=4)).scale == 4


def test_a_gpu_gets_larger_batches(folder, tmp_path):
    source = find_source(settings_in(folder))
    small, large = (
        make_recipe(source, tmp_path, seconds=60, on_gpu=on_gpu, seed=0) for on_gpu in (False, True)
    )
    assert small.batch < large.batch


@pytest.mark.parametrize(("each", "expected"), [(1, 5), (3, 2), (100, 1)])
def test_validations_take_a_small_part_of_the_time(folder, tmp_path, each, expected):
    options = {"seconds": 60, "seconds_per_validation": each, "on_gpu": False, "seed": 0}
    recipe = make_recipe(find_source(settings_in(folder)), tmp_path, **options)
    assert recipe.validations == expected
