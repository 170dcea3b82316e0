"""Joint errors are fitted on held-out images, in Python and by ``musigma calibrate --joint``."""

import sys
from dataclasses import replace

import pytest
import torch

from helpers.commands import write_tiny_weights
from musigma.cli.main import main
from musigma.datasets.catalog import find_dataset
from musigma.evaluation.joint import with_joint_errors
from musigma.evaluation.protocol import protocol_for
from musigma.images.image_io import write_image
from musigma.model import load
from musigma.networks.joint_head import joint_head
from musigma.types import ConfigError, DataError
from musigma.uncertainty.calibration import Calibration

SCALE_ONLY = Calibration(
    method="pooled-quantile",
    knots=(1.0,),
    values=(1.0,),
    factor=2.0,
    coverage=0.9,
    confidence=None,
    num_images=9,
)


@pytest.fixture(autouse=True)
def few_probes(monkeypatch):
    """Measure each kind of quantity at a few places only."""
    monkeypatch.setattr("musigma.uncertainty.quantities.PROBES_PER_IMAGE", 6)


def write_pictures(folder, *, side: int, count: int) -> None:
    generator = torch.Generator().manual_seed(0)
    for number in range(count):
        picture = torch.rand(1, 3, side // 4, side // 4, generator=generator)
        large = torch.nn.functional.interpolate(picture, scale_factor=4, mode="bicubic")
        write_image(folder / f"{number:02}.png", large.clamp(0, 1))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = write_tiny_weights(tmp_path_factory.mktemp("weights") / "tiny.safetensors")
    return replace(load(path), calibration=SCALE_ONLY)


def test_a_third_of_the_images_fits_the_correlation_and_the_others_the_factors(model, tmp_path):
    write_pictures(tmp_path, side=48, count=15)
    protocols = [protocol_for(model.network)]
    fitted, quantities = with_joint_errors(model, find_dataset(tmp_path), protocols)
    joint = fitted.require_joint()
    assert joint.num_images == 10
    assert joint.coverages == (0.5, 0.8, 0.9)
    assert (joint.correlation.scale, joint.correlation.channels) == (2, 3)
    held = quantities.coverage_by_kind(joint.factor(0.9))
    assert {"box 4", "box 32", "profile 16", "channel 8", "difference 8"} <= held.keys()
    # Conformal risk control asks for (n + 1) / n of the coverage, here 0.99.
    assert sum(held.values()) / len(held) >= 0.98
    assert fitted.calibration == replace(model.calibration, joint=joint.to_dict())


def test_with_a_joint_head_all_images_fit_the_factors(model, tmp_path):
    write_pictures(tmp_path, side=48, count=10)
    headed = replace(model, joint_head=joint_head(model.network, fields=5, width=4, reach=2).eval())
    fitted, _ = with_joint_errors(headed, find_dataset(tmp_path), [protocol_for(model.network)])
    joint = fitted.require_joint()
    assert (joint.num_images, joint.correlation) == (10, None)
    quantity = fitted.predict_joint(torch.rand(1, 3, 24, 24)).mean_over((0, 0, 8, 8))
    assert quantity.low < quantity.value < quantity.high
    fitted.save(tmp_path / "headed.safetensors")
    assert load(tmp_path / "headed.safetensors").require_joint() == joint


def test_too_few_or_too_small_images_are_refused(model, tmp_path):
    write_pictures(tmp_path / "few", side=48, count=1)
    write_pictures(tmp_path / "small", side=24, count=12)
    protocols = [protocol_for(model.network)]
    with pytest.raises(ConfigError, match="two held-out images"):
        with_joint_errors(model, find_dataset(tmp_path / "few"), protocols)
    with pytest.raises(DataError, match="too small for correlations"):
        with_joint_errors(model, find_dataset(tmp_path / "small"), protocols)
    with pytest.raises(ConfigError, match="not calibrated"):
        with_joint_errors(
            replace(model, calibration=None), find_dataset(tmp_path / "small"), protocols
        )


def test_the_command_stores_joint_errors(tmp_path, monkeypatch):
    write_pictures(tmp_path / "held", side=48, count=15)
    weights = write_tiny_weights(tmp_path / "tiny.safetensors")
    output = tmp_path / "joint.safetensors"
    words = ["calibrate", weights, "--data", tmp_path / "held", "--joint", "-o", output]
    monkeypatch.setattr(sys, "argv", ["musigma", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    model = load(output)
    quantity = model.predict_joint(torch.rand(1, 3, 24, 24)).mean_over((0, 0, 8, 8))
    assert quantity.low < quantity.value < quantity.high
