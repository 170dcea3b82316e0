"""Boxes are measured from the part of the picture that matters to them."""

import pytest
import torch

from musigma.app.boxes import joint_box
from musigma.datasets.demo_photo import portrait
from musigma.functional.resize import bicubic_down
from musigma.images.image_io import write_image
from musigma.model import load
from musigma.restoration.measure import predict_around
from musigma.types import ConfigError
from musigma.uncertainty.quantities import Box


@pytest.fixture(scope="module")
def model():
    return load("edsr-baseline", scale=2)


@pytest.fixture(scope="module")
def degraded() -> torch.Tensor:
    return bicubic_down(portrait()[..., :40, :360], 2)


def test_a_box_is_measured_alike_from_its_part_and_from_the_whole_picture(model, degraded):
    box = Box(20, 8, 12, 9)
    prediction, (inside,) = predict_around(model, degraded, [box])
    assert prediction.mean.shape[-1] < 2 * degraded.shape[-1]
    part, whole = prediction.mean_over(inside), model.predict_joint(degraded).mean_over(box)
    assert part == pytest.approx(whole, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("box", [Box(0, 0, 0, 4), Box(350, 0, 20, 4), Box(0, -1, 4, 4)])
def test_a_box_outside_is_refused(model, degraded, box):
    with pytest.raises(ConfigError, match="does not lie inside"):
        predict_around(model, degraded, [box])


def test_the_api_gives_the_interval_of_each_channel_in_levels(model, degraded, tmp_path):
    path = tmp_path / "small.png"
    write_image(path, degraded)
    report = joint_box(model, path, "20,8,12,9")
    assert report["coverage"] == 0.9
    truth = 255 * portrait()[0, :, 8:17, 20:32].mean((1, 2))
    for low, value, high in zip(report["low"], report["value"], report["high"], strict=True):
        assert low < value < high
    assert torch.allclose(torch.tensor(report["value"]), truth, atol=3)
    assert joint_box(load("bicubic", scale=2), path, "20,8,12,9") is None
