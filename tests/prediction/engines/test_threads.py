"""Engines and models under threads: every caller gets the result of its own image."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from helpers.networks import assert_close, build, image_for
from musigma.prediction.engines import make_engine
from musigma.prediction.self_ensemble import SelfEnsemble

NUM_THREADS = 4
SIZES = [(9, 11), (16, 8), (9, 11), (12, 20)]
NETWORK = build("edsr-baseline", 2, sigma=True)


def engine_of(name):
    if name == "self-ensemble":
        return SelfEnsemble(make_engine(NETWORK, "torch"))
    if name in ("onnx", "openvino"):
        pytest.importorskip("onnxscript")
        pytest.importorskip("onnxruntime" if name == "onnx" else "openvino")
    return make_engine(NETWORK, name)


def different_images(num_images=24):
    """Images of several sizes; two of one size differ by much more than any rounding."""
    images = []
    for number in range(num_images):
        image = image_for(NETWORK, *SIZES[number % len(SIZES)])
        images.append(image * (number + 1) / num_images)
    return images


def run_in_threads(function, images):
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        return list(pool.map(function, images))


@pytest.mark.parametrize("name", ["torch", "torch-bf16", "onnx", "openvino", "self-ensemble"])
def test_every_thread_gets_its_own_image(name):
    engine, images = engine_of(name), different_images()
    expected = [engine(image) for image in images]
    for _ in range(3):
        for ours, theirs in zip(run_in_threads(engine, images), expected, strict=True):
            assert_close(ours, theirs)
