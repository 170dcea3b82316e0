"""Evaluating a set: the mean over its images, each measured by the protocol."""

import math

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.networks import build
from musigma.datasets.catalog import Dataset, find_dataset
from musigma.evaluation import (
    calibrate,
    evaluate,
    evaluate_model,
    protocol_for,
    restored_pairs,
    super_resolution,
)
from musigma.evaluation.baseline_models import mean_error
from musigma.evaluation.calibrate import collect_held_out
from musigma.images.image_io import read_image
from musigma.model import Model, load
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
    evaluation = evaluate(network, dataset, protocol)
    assert list(evaluation.images) == ["a", "b"]
    for item in dataset.items:
        degraded, target = protocol.pair(read_image(item.target)[0], item.name)
        expected = protocol.fidelity(predict(network, degraded).mean, target)
        assert evaluation.images[item.name] == expected
    for name, value in evaluation.summary.items():
        assert value == pytest.approx(sum(own[name] for own in evaluation.images.values()) / 2)


def test_a_model_and_a_folder_are_enough(dataset):
    folder = dataset.items[0].target.parent
    model = load("edsr-baseline", scale=2)
    expected = evaluate(model.network, dataset, super_resolution(2), calibration=model.calibration)
    assert evaluate(model, folder) == expected
    assert evaluate(model, str(folder), super_resolution(2)) == expected
    with pytest.raises(ConfigError, match=r"takes a model or a network, got str; musigma\.load"):
        evaluate("edsr-baseline", folder)
    with pytest.raises(ConfigError, match=r"give a protocol, such as musigma\.evaluation\.protoc"):
        evaluate(load("drunet-small"), folder)


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
    calibrated = evaluate(network, dataset, protocol, calibration=calibration(0.8)).summary
    assert calibrated["coverage"] == pytest.approx(1)  # 2000 sigmas hold everything
    assert calibrated["width"] > raw["width"]
    assert calibrated["pll"] == pytest.approx(raw["pll"])
    assert "pll_calibrated" in calibrated
    with pytest.raises(ConfigError, match=r"for coverages of 0\.8, not of 0\.9"):
        evaluate(network, dataset, protocol, calibration=calibration(0.8), coverage=0.9)


def test_a_record_names_model_data_and_seed(dataset):
    network = build("edsr-baseline", 2, sigma=True)
    model = Model(
        network=network,
        name="edsr-baseline",
        metadata={"training": {"seed": 7}},
        digest="d" * 64,
        calibration=calibration(0.8),
    )
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
    with pytest.raises(ConfigError, match="enlarges by 1, the protocol sr-y measures enlarging by"):
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


def test_a_wrong_coverage_is_refused_before_the_first_image(dataset):
    network = build("edsr-baseline", 2, sigma=True)

    def refuse(*_):
        raise AssertionError("an image was begun")

    for options in ({"coverage": 0.7, "calibration": calibration(0.8)}, {"coverage": 1.5}):
        with pytest.raises(ConfigError, match="coverage"):
            evaluate(network, dataset, super_resolution(2), progress=refuse, **options)


def write_pairs(folder, *, scale):
    """Write targets, and inputs that no degradation makes: the target, twice as dark."""
    generator = np.random.default_rng(0)
    for name in ("a", "b"):
        small = generator.integers(0, 256, (24, 20, 3), np.uint8)
        target = small.repeat(scale, 0).repeat(scale, 1)
        for part, picture in (("HR", target), ("LR", small // 2)):
            (folder / part).mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture).save(folder / part / f"{name}.png")


@pytest.mark.parametrize("scale", [1, 2])
def test_pairs_of_files_are_used_as_they_are(tmp_path, scale):
    write_pairs(tmp_path, scale=scale)
    dataset = find_dataset(tmp_path, scale=scale)
    network = build("dps", scale)
    protocol = protocol_for(network, pairs=True)
    for item, prediction, target in restored_pairs(network, dataset, protocol):
        degraded = read_image(item.degraded)[0]
        assert torch.equal(prediction.mean, predict(network, degraded).mean)
        assert torch.equal(target, read_image(item.target)[0])
    record = evaluate_model(Model(network=network, name="dps"), dataset, protocol)
    assert (record.protocol["degradation"], record.data["inputs"]) == ("pairs", "pairs")
    expected = {"psnr_y", "ssim_y"} | ({"psnr", "ssim"} if scale == 1 else set())
    assert record.result.keys() == expected


def test_pairs_of_the_wrong_size_are_named(tmp_path):
    write_pairs(tmp_path, scale=1)
    network, dataset = create("bicubic", scale=2), find_dataset(tmp_path, scale=2)
    with pytest.raises(ImageError, match=r"LR/a\.png: at scale 2 the input must have 10x12 pixels"):
        evaluate(network, dataset, protocol_for(network, pairs=True))
    made = find_dataset(tmp_path)
    with pytest.raises(ConfigError, match="the set has targets only"):
        evaluate(network, made, protocol_for(network, pairs=True))


def test_a_denoiser_is_told_the_level_that_was_drawn(dataset):
    network = build("ffdnet-colour", 1)
    protocol = protocol_for(network, degradation="noise(0..50)")
    levels = [protocol.noise_level(network, name) for name in ("a", "b")]
    assert levels[0] != levels[1]
    assert all(0 < level < 50 for level in levels)
    assert protocol.as_json()["noise_std"] == [0, 50]
    assert "psnr" in evaluate(network, dataset, protocol).summary
    with pytest.raises(ConfigError, match="must be told the noise level"):
        evaluate(network, dataset, protocol_for(network, degradation="jpeg(75)"))


def test_a_broken_prediction_names_its_image(dataset):
    network = build("edsr-baseline", 2, sigma=True)
    model = Model(network=network, name="edsr-baseline")
    (dataset.items[1].target).write_bytes(b"no picture")
    for measure in (evaluate_model, calibrate, lambda *words: mean_error(*words[:2], [words[2]])):
        with pytest.raises(ImageError, match=r"b\.png: "):
            measure(model, dataset, super_resolution(2))


def test_a_calibration_over_a_mixture_counts_images_and_names_each_degradation(tmp_path):
    generator = np.random.default_rng(0)
    for name in range(9):
        picture = generator.integers(0, 256, (24, 24, 3), np.uint8)
        Image.fromarray(picture).save(tmp_path / f"{name}.png")
    dataset, network = find_dataset(tmp_path), build("edsr-baseline", 2, sigma=True)
    model = Model(network=network, name="edsr-baseline")
    texts = ["bicubic", "blur(1) | bicubic | jpeg(75)"]
    protocols = [protocol_for(network, degradation=text) for text in texts]
    held_out = collect_held_out(model, dataset, protocols)
    assert (held_out.num_images, held_out.groups) == (9, sorted(texts))
    fitted = calibrate(model, dataset, protocols)
    assert fitted.num_images == 9
    assert fitted.protocol["degradation"] == texts
    assert "a mixture of clean, blurred, JPEG-compressed images" in fitted.conditions
    single = calibrate(model, dataset, protocols[0])
    assert single.protocol == super_resolution(2).as_json()


def test_networks_keep_their_weights_and_mode(dataset):
    network = build("edsr-baseline", 2)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    evaluate(network, dataset, super_resolution(2))
    assert not network.training
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())
