"""A promise is stated only under the conditions of its calibration."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from helpers.calibrations import calibration_of
from musigma.functional.picture_statistics import PictureStatistics
from musigma.images.image_io import ImageMeta, open_image, write_image
from musigma.networks.weights_file import SHIPPED
from musigma.restoration.options import Options
from musigma.restoration.promise import promise_for

UPSCALER = calibration_of(num_images=100, protocol={"degradation": "bicubic", "scale": 2})
DENOISER = replace(UPSCALER, protocol={"degradation": "noise(25)", "noise_std": 25.0, "scale": 1})


def opened(tmp_path, name="a.png", quality=95):
    image = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    write_image(tmp_path / name, image, ImageMeta(), quality=quality)
    return open_image(tmp_path / name).meta


def options(**changes):
    return Options(folder=Path("out"), **changes)


@pytest.mark.parametrize("engine", ["torch", "onnx", "openvino"])
def test_a_clean_picture_in_float32_gets_the_promise_with_its_conditions(tmp_path, engine):
    promise = promise_for(UPSCALER, opened(tmp_path), options(engine=engine))
    assert promise.reason is None
    assert promise.text == UPSCALER.promise
    assert "90 % of the true values" in promise.text
    assert UPSCALER.conditions in promise.text


@pytest.mark.parametrize(
    ("name", "words"), [("a.jpg", "it is a JPEG"), ("a.webp", "it is a lossy WebP")]
)
def test_lossy_files_get_no_promise_of_clean_weights(tmp_path, name, words):
    promise = promise_for(UPSCALER, opened(tmp_path, name), options())
    assert promise.text is None
    assert words in promise.reason


def test_lossy_files_get_the_promise_of_weights_calibrated_on_jpeg(tmp_path):
    calibration = replace(UPSCALER, protocol={"degradation": "bicubic | jpeg(30..95)", "scale": 2})
    promise = promise_for(calibration, opened(tmp_path, "a.jpg"), options())
    assert promise.reason is None
    assert promise.text == calibration.promise


@pytest.mark.parametrize(
    ("format_name", "words"),
    [
        ("WEBP", "it is a lossy WebP, and the model is calibrated for JPEG"),
        ("AVIF", "it is an AVIF, and the model is calibrated for JPEG"),
        ("HEIF", "it is a HEIF, and the model is calibrated for JPEG"),
    ],
)
def test_files_of_other_codecs_get_no_promise_of_weights_calibrated_on_jpeg(format_name, words):
    calibration = replace(UPSCALER, protocol={"degradation": "bicubic | jpeg(30..95)", "scale": 2})
    meta = ImageMeta(format=format_name, lossy=True)
    promise = promise_for(calibration, meta, options())
    assert (promise.text, promise.reason) == (None, words)
    own = replace(calibration, protocol={"degradation": "pairs", "scale": 2})
    assert promise_for(own, meta, options()).text == own.promise


def test_a_lossless_webp_is_a_clean_picture(tmp_path):
    promise = promise_for(UPSCALER, opened(tmp_path, "a.webp", quality=100), options())
    assert promise.text == UPSCALER.promise


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ensemble": True}, "calibrated without --ensemble"),
        ({"engine": "torch-bf16"}, "torch-bf16 rounds more"),
        ({"engine": "torch-fp16"}, "torch-fp16 rounds more"),
        ({"engine": "torch-tf32"}, "torch-tf32 rounds more"),
        ({"engine": "torch-fp16-compiled"}, "torch-fp16-compiled rounds more"),
        ({"noise_std": 50.0}, "not calibrated for the noise level 50"),
        ({"noise_std": 3.0}, "not calibrated for the noise level 3"),
        ({"noise_std": 25.0, "estimate_noise": True}, "is an estimate"),
    ],
)
def test_other_conditions_get_no_promise(tmp_path, changes, words):
    promise = promise_for(DENOISER, opened(tmp_path), options(**{"noise_std": 25.0, **changes}))
    assert promise.text is None
    assert words in promise.reason


def test_the_calibrated_noise_level_is_promised(tmp_path):
    promise = promise_for(DENOISER, opened(tmp_path), options(noise_std=25.0))
    assert "white noise of standard deviation 25" in promise.text


def test_a_gray_picture_gets_no_promise_of_noise_in_colors(tmp_path):
    in_colors = replace(DENOISER, protocol={**DENOISER.protocol, "channels": 3})
    write_image(tmp_path / "grey.png", torch.rand(1, 1, 8, 8), ImageMeta(channels=1))
    gray, level = open_image(tmp_path / "grey.png").meta, options(noise_std=25.0)
    assert "it is gray" in promise_for(in_colors, gray, level).reason
    assert promise_for(DENOISER, gray, level).reason is None
    assert promise_for(in_colors, opened(tmp_path), level).reason is None


def test_all_reasons_are_given(tmp_path):
    promise = promise_for(DENOISER, opened(tmp_path, "a.jpg"), options(noise_std=50.0))
    assert promise.reason == (
        "it is a JPEG, and the model is calibrated for pictures without JPEG artifacts; "
        "the model is not calibrated for the noise level 50"
    )


@pytest.mark.parametrize("method", ["pooled-quantile", "gaussian-scale", "isotonic"])
def test_methods_without_guarantee_promise_nothing(tmp_path, method):
    promise = promise_for(replace(UPSCALER, method=method), opened(tmp_path), options())
    assert promise.text is None
    assert f"{method}, which has no guarantee" in promise.reason


def test_unknown_conditions_promise_nothing(tmp_path):
    promise = promise_for(replace(UPSCALER, protocol=None), opened(tmp_path), options())
    assert promise == (None, "the weights do not say for which images they were calibrated")


def test_only_shipped_weights_for_photographs_promise_something_for_a_jpeg(tmp_path):
    from musigma.model import load_file

    for path in sorted(SHIPPED.glob("*.safetensors")):
        model = load_file(path)
        level = model.calibration.protocol["noise_std"] if model.takes_noise_level else None
        level = level if level is None or isinstance(level, int | float) else level[0]
        clean = promise_for(model.calibration, opened(tmp_path), options(noise_std=level))
        jpeg = promise_for(model.calibration, opened(tmp_path, "a.jpg"), options(noise_std=level))
        assert clean.text, path.name
        assert bool(jpeg.text) == path.name.startswith("photo"), path.name


def test_a_picture_unlike_the_calibration_gets_the_reason(tmp_path):
    reference = {"num_inputs": 100, "limits": {"block_edges": [None, 0.2], "rolloff": [-3, 0]}}
    calibration = replace(UPSCALER, reference=reference)
    statistics = PictureStatistics(
        noise_std=0.4, coarse_noise_std=0.4, sharpness=-5.8, rolloff=-2.0, block_edges=0.0
    )
    picture = opened(tmp_path)
    assert promise_for(calibration, picture, options(), statistics).reason is None
    promise = promise_for(
        calibration, picture, options(), replace(statistics, block_edges=1.0, rolloff=-4)
    )
    assert promise.text is None
    assert promise.reason.startswith("the picture has JPEG blocks, and the calibration")
    assert "; the picture is softer than" in promise.reason


def test_a_calibration_without_a_reference_compares_nothing(tmp_path):
    statistics = PictureStatistics(
        noise_std=90, coarse_noise_std=90, sharpness=-20, rolloff=-9, block_edges=5
    )
    assert promise_for(UPSCALER, opened(tmp_path), options(), statistics).reason is None
