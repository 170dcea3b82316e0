"""A calibration says what its inputs were like; a file without that can be given it."""

from dataclasses import replace

import pytest

from helpers.natural import natural
from helpers.networks import build
from musigma.datasets.catalog import describe_data, find_dataset
from musigma.evaluation.calibrate import calibrate
from musigma.evaluation.protocol import super_resolution
from musigma.evaluation.reference import add_reference, measure_reference, protocols_of
from musigma.functional.picture_statistics import BANDS
from musigma.images.image_io import write_image
from musigma.model import Model
from musigma.types import ConfigError
from musigma.uncertainty.guard import LEAST_INPUTS


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("held_out")
    for number in range(LEAST_INPUTS):
        write_image(folder / f"{number:02}.png", natural(64, 64, seed=number))
    return find_dataset(folder)


def model_of():
    return Model(network=build("edsr-baseline", 2, sigma=True).eval(), name="tiny")


def test_calibrating_stores_what_the_inputs_were_like(dataset):
    calibration = calibrate(model_of(), dataset, super_resolution(2))
    measured = measure_reference(dataset, super_resolution(2))
    assert calibration.reference == measured.to_dict()
    assert calibration.reference["num_inputs"] == LEAST_INPUTS
    assert type(calibration).from_dict(calibration.to_dict()) == calibration


def test_a_calibration_without_a_reference_gets_the_same_one(dataset):
    calibration = calibrate(model_of(), dataset, super_resolution(2))
    before = replace(model_of(), calibration=replace(calibration, reference=None))
    assert add_reference(before, dataset).calibration == calibration


def test_other_images_are_refused(dataset):
    calibration = calibrate(model_of(), dataset, super_resolution(2))
    other = replace(calibration, data=describe_data(dataset) | {"hash": "other"})
    with pytest.raises(ConfigError, match="is not what tiny was calibrated on"):
        add_reference(replace(model_of(), calibration=other), dataset)


def test_a_mixture_counts_all_its_inputs(dataset):
    network = model_of().network
    protocols = protocols_of(network, {"degradation": ["bicubic", "area | jpeg(75)"]})
    assert [protocol.inputs for protocol in protocols] == ["bicubic", "area | jpeg(75)"]
    reference = measure_reference(dataset, protocols)
    assert reference.num_inputs == 2 * LEAST_INPUTS
    clean = measure_reference(dataset, protocols[0])
    assert (len(clean.weights), reference.weights) == (2 * len(BANDS), ())
    assert clean.limits["block_edges"].high < 0.35 < reference.limits["block_edges"].high
    with pytest.raises(ConfigError, match="does not say how its inputs were made"):
        protocols_of(network, {})
