"""Evaluating a set: the mean over its images, each measured by the protocol."""

import math

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.networks import build
from musigma.datasets.catalog import Dataset, find_dataset
from musigma.evaluation import evaluate, evaluate_model, super_resolution
from musigma.images.image_io import read_image
from musigma.model import Model
from musigma.networks import create
from musigma.prediction.predict import predict
from musigma.types import ConfigError, DataError, ImageError
from musigma.uncertainty.calibration import Calibration


@pytest.fixture
def dataset(tmp_path):
    generator = np.random.default_rng(0)
    for name, size in (("a", (40, 36, 3)), ("b", (33, 47))):
        picture = generator.integers(0, 256, size, np.uint8)
        Image.fromarray(picture).save(tmp_path / f"{name}.png")
    return find_dataset(tmp_path)


def test_summary_is_the_mean_over_images(dataset):
    network, protocol = create("bicubic", scale=2), super_resolution(2)
    found = evaluate(network, dataset, protocol)
    assert list(found.images) == ["a", "b"]
    for item in dataset.items:
        low, target = protocol.pair(read_image(item.target)[0], item.name)
        expected = protocol.fidelity(predict(network, low).mean, target)
        assert found.images[item.name] == expected
    for name, value in found.summary.items():
        assert value == pytest.approx(sum(one[name] for one in found.images.values()) / 2)


def test_progress_comes_before_each_image(dataset):
    seen = []
    network = create("bicubic", scale=2)
    evaluate(network, dataset, super_resolution(2), progress=lambda *words: seen.append(words))
    assert seen == [(0, 2, "a"), (1, 2, "b")]


def calibration(coverage):
    return Calibration(
        method="pooled-quantile",
        knots=(1.0,),
        values=(20.0,),
        factor=100.0,
        coverage=coverage,
        confidence=None,
        num_images=5,
    )


def test_a_calibration_decides_on_the_intervals(dataset):
    network, protocol = build("edsr-baseline", 2, sigma=True), super_resolution(2)
    raw = evaluate(network, dataset, protocol).summary
    assert not [name for name in raw if name.endswith("_calibrated")]
    found = evaluate(network, dataset, protocol, calibration=calibration(0.8)).summary
    assert found["coverage"] == pytest.approx(1)  # 2000 sigmas hold everything
    assert found["width"] > raw["width"]
    assert found["pll"] == pytest.approx(raw["pll"])
    assert "pll_calibrated" in found
    with pytest.raises(ConfigError, match=r"for a coverage of 0\.8, asked was 0\.9"):
        evaluate(network, dataset, protocol, calibration=calibration(0.8), coverage=0.9)


def test_a_record_names_model_data_and_seed(dataset):
    network = build("edsr-baseline", 2, sigma=True)
    metadata = {"training": {"seed": 7}, "calibration": calibration(0.8).to_dict()}
    model = Model(network=network, name="edsr-baseline", metadata=metadata, digest="d" * 64)
    record = evaluate_model(model, dataset, super_resolution(2))
    assert (record.kind, record.seed) == ("evaluation", 7)
    assert record.model["digest"] == "d" * 64
    assert record.data["num_images"] == 2
    assert len(record.data["hash"]) == 64
    assert record.protocol == super_resolution(2).as_json()
    assert record.result["coverage"] == pytest.approx(1)
    assert all(math.isfinite(value) for value in record.result.values())


def test_the_protocol_must_fit_the_network(dataset):
    model = Model(network=build("dncnn", 1), name="dncnn")
    with pytest.raises(ConfigError, match="dncnn is made to denoise; evaluate it with that"):
        evaluate_model(model, dataset, super_resolution(2))


def test_a_picture_too_small_to_measure_is_named(dataset, tmp_path):
    Image.fromarray(np.zeros((12, 12, 3), np.uint8)).save(tmp_path / "c.png")
    with pytest.raises(ImageError, match=r"c\.png: SSIM needs 11x11 pixels"):
        evaluate(create("bicubic", scale=2), find_dataset(tmp_path), super_resolution(2))


def test_a_picture_smaller_than_the_scale_is_named(tmp_path):
    Image.fromarray(np.zeros((1, 1, 3), np.uint8)).save(tmp_path / "pixel.png")
    with pytest.raises(ImageError, match=r"pixel\.png: "):
        evaluate(create("bicubic", scale=2), find_dataset(tmp_path), super_resolution(2))


def test_no_images_give_no_number():
    with pytest.raises(DataError, match="nothing holds no images"):
        evaluate(create("bicubic", scale=2), Dataset("nothing", ()), super_resolution(2))


def test_networks_keep_their_weights_and_mode(dataset):
    network = build("edsr-baseline", 2)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    evaluate(network, dataset, super_resolution(2))
    assert not network.training
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())
