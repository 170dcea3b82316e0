"""Baselines go through the harness as models do, with a calibration of their own."""

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.calibrations import calibration_of
from musigma.datasets.catalog import find_dataset
from musigma.evaluation import super_resolution
from musigma.evaluation.baseline_models import (
    METHODS,
    NUM_DRAWS,
    calibrated,
    make_baseline,
    mean_error,
)
from musigma.evaluation.evaluate import evaluate_model
from musigma.images.image_io import read_image
from musigma.images.listing import list_images
from musigma.model import load, save
from musigma.networks import create, with_sigma
from musigma.prediction.predict import predict
from musigma.restoration.batch import restore_files
from musigma.restoration.options import Options
from musigma.types import ConfigError

PROTOCOL = super_resolution(2)
CALIBRATION = calibration_of(method="pooled-quantile", values=(2.0,), num_images=5)


@pytest.fixture
def dataset(tmp_path):
    """Waves with noise, which no network can foresee."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for name, shape in (("a", (40, 36)), ("b", (38, 46))):
        y, x = np.mgrid[: shape[0], : shape[1]]
        wave = 128 + 80 * np.sin(x / 5 + y / 7)[..., None] + generator.normal(0, 20, (*shape, 3))
        Image.fromarray(wave.clip(0, 255).astype(np.uint8)).save(folder / f"{name}.png")
    return find_dataset(folder)


@pytest.fixture
def models(tmp_path):
    """Two seeds of one recipe, each with a sigma branch, dropout, and a calibration of its own."""
    models = []
    for seed in range(2):
        torch.manual_seed(seed)
        network = create("edsr-baseline", scale=2, num_blocks=1, width=8, dropout=0.25)
        recipe = {"objective": "gaussian_nll", "steps": 9, "seed": seed}
        path = tmp_path / f"{seed}.safetensors"
        save(
            path,
            with_sigma(network, width=8, depth=1),
            training={"recipe": recipe, "seed": seed},
            calibration=CALIBRATION.to_dict(),
        )
        models.append(load(path))
    return models


def baseline_of(method, models, dataset):
    members = models if method == "ensemble" else models[:1]
    return make_baseline(method, members, protocols=[PROTOCOL], held_out=dataset)


@pytest.mark.parametrize("method", METHODS)
def test_a_baseline_is_calibrated_and_measured_like_a_model(method, models, dataset):
    baseline = baseline_of(method, models, dataset)
    assert baseline.calibration is None  # not that of the weights
    model = calibrated(baseline, dataset, [PROTOCOL], coverage=0.8)
    record = evaluate_model(model, dataset, PROTOCOL)
    views = {"self-ensemble": 8, "tta": 8}
    passes = ({"constant": 1, "ensemble": 2, "mc-dropout": NUM_DRAWS} | views)[method]
    assert (record.model["baseline"], record.model["num_passes"]) == (method, passes)
    assert record.model["calibration"]["method"] == "pooled-quantile"
    assert record.model["calibration"]["data"]["name"] == "pictures"
    assert len(record.model["digest"]) == 64
    # On the images of the fit, an average covers what was asked for, but for its grid.
    assert record.result["coverage"] == pytest.approx(0.8, abs=0.01)
    assert record.result["pll_calibrated"] > record.result["pll"]


def test_a_constant_is_the_mean_error(models, dataset):
    errors = []
    for item in dataset.items:
        degraded, target = PROTOCOL.pair(read_image(item.target)[0], item.name)
        errors.append((predict(models[0].network, degraded).mean - target).abs().flatten())
    expected = torch.cat(errors).mean().item()
    assert mean_error(models[0], dataset, [PROTOCOL]) == pytest.approx(expected)
    degraded = torch.rand(1, 3, 13, 11)
    sigma = predict(baseline_of("constant", models, dataset).network, degraded).sigma
    assert sigma.unique().item() == pytest.approx(expected)


def test_the_record_of_an_ensemble_names_its_members(models, dataset):
    baseline = baseline_of("ensemble", models, dataset)
    record = evaluate_model(baseline, dataset, PROTOCOL)
    assert record.model["members"] == [model.digest for model in models]
    assert record.model["digest"] not in record.model["members"]
    assert record.model["training"] == {"recipe": {"objective": "gaussian_nll", "steps": 9}}
    assert record.seed is None
    models[1].metadata["training"]["recipe"]["steps"] = 10
    assert baseline_of("ensemble", models, dataset).metadata["training"] == {}


def test_a_baseline_writes_error_maps(models, dataset, tmp_path):
    baseline = calibrated(baseline_of("tta", models, dataset), dataset, [PROTOCOL], coverage=0.8)
    options = Options(folder=tmp_path / "out", sigma=True)
    (source,) = list_images([str(dataset.items[0].target)])
    (done,) = restore_files(baseline, [source], options)
    assert (done.width, done.height) == (72, 80)
    assert done.files["sigma"].is_file()


def test_impossible_baselines_are_refused_with_a_hint(models, dataset):
    with pytest.raises(ConfigError, match="did you mean 'constant'"):
        make_baseline("constnat", models, protocols=[PROTOCOL])
    with pytest.raises(ConfigError, match="only an ensemble takes several models; tta got 2"):
        make_baseline("tta", models, protocols=[PROTOCOL])
    with pytest.raises(ConfigError, match="give --calibrate-on"):
        make_baseline("constant", models[:1], protocols=[PROTOCOL])
    with pytest.raises(ConfigError, match="one of them came twice"):
        make_baseline("ensemble", models[:1] * 2, protocols=[PROTOCOL])
