"""A black box: its answer is the mean to the bit, and it gets whole pictures."""

import copy

import pytest
import torch

from helpers.foreign import double
from musigma.model import Model
from musigma.networks import mean_only, with_sigma
from musigma.networks.black_box import BlackBox, black_box_features
from musigma.prediction.engines import make_engine
from musigma.prediction.tiling import least_memory_for_tiles
from musigma.types import ConfigError


def model_of(function, scale=2) -> Model:
    torch.manual_seed(0)
    network = with_sigma(BlackBox(function, scale=scale), width=8, depth=1).eval()
    return Model(network=network, name="box")


@pytest.mark.parametrize("scale", [1, 2, 3, 4])
def test_the_mean_is_the_answer_to_the_bit(scale):
    answer = torch.randn(2, 3, 7 * scale, 5 * scale)
    answers = iter(answer[:, None])
    prediction = model_of(lambda _: next(answers), scale).predict(torch.rand(2, 3, 7, 5))
    assert torch.equal(prediction.mean, answer)
    assert prediction.sigma.shape == answer.shape
    assert bool((prediction.sigma > 0).all())


def test_a_picture_is_asked_for_as_a_whole_unless_tiles_are_wished():
    sizes = []

    def function(image):
        sizes.append(tuple(image.shape[-2:]))
        return double(image)

    image = torch.rand(1, 3, 4, 1500)  # wider than the largest tile of other networks
    prediction = model_of(function).predict(image, memory=2**20)
    assert sizes == [(4, 1500)]
    assert torch.equal(prediction.mean, double(image))
    sizes.clear()
    model_of(function).predict(image, tile=800)
    assert len(sizes) == 2


def test_no_memory_is_asked_for_tiles_that_are_not_made():
    assert least_memory_for_tiles(model_of(double, 8).network, width=100) < 2**20


def test_gray_pictures_come_back_gray():
    gray = torch.rand(1, 1, 8, 9)
    prediction = model_of(double).predict(gray)
    assert prediction.mean.shape == (1, 1, 16, 18)
    torch.testing.assert_close(prediction.mean, double(gray))


def test_features_are_the_answer_its_difference_its_slopes_and_the_input():
    degraded, mean = torch.zeros(1, 3, 4, 4), torch.zeros(1, 3, 8, 8)
    mean[..., 4:] = 1.0
    features = black_box_features(degraded, mean, 2)
    assert features.shape == (1, 8 * 4 + 3, 4, 4)
    slopes = torch.nn.functional.pixel_shuffle(features[:, 24:32], 2)
    assert slopes[0, 0, :, 3].tolist() == [8.0] * 8  # across the edge
    assert float(slopes.sum()) == 64.0
    assert torch.equal(features[:, -3:], degraded)


def test_only_the_engine_torch_runs_it():
    network = model_of(double).network
    assert make_engine(network, "auto").name == "torch"
    for name in ("onnx", "openvino", "torch-bf16"):
        with pytest.raises(ConfigError, match="runs as it is, by the engine torch and not by"):
            make_engine(network, name)


def test_a_black_box_cannot_be_exported(tmp_path):
    with pytest.raises(ConfigError, match=r"an ONNX file cannot be written"):
        model_of(double).export(tmp_path / "net.onnx")
    with pytest.raises(ConfigError, match=r"a folder for the hub cannot be written"):
        model_of(double).save_pretrained(tmp_path / "folder")
    assert list(tmp_path.iterdir()) == []


def test_copies_ask_the_same_function():
    network = mean_only(model_of(double).network)
    assert copy.deepcopy(network).function is network.function


def test_a_wrong_shape_and_a_missing_function_are_said():
    with pytest.raises(
        ConfigError, match=r"by the shape \(1, 3, 8, 9\); expected \(1, 3, 16, 18\)"
    ):
        model_of(lambda image: image).predict(torch.rand(1, 3, 8, 9))
    with pytest.raises(ConfigError, match="the wrapped network is missing"):
        model_of(None).predict(torch.rand(1, 3, 8, 9))
    with pytest.raises(ConfigError, match="at most by 8"):
        BlackBox(double, scale=9)
