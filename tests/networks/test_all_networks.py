"""Every registered network, by itself, against the contract of `musigma.networks.base`."""

import pytest

from helpers import networks
from helpers.networks import CASES, NAMES, build, one_of_each_class
from musigma.networks import entries

each_scale = pytest.mark.parametrize(("name", "scale"), CASES)
each_name = pytest.mark.parametrize(("name", "scale"), NAMES)
each_class = pytest.mark.parametrize(("name", "scale"), one_of_each_class())


def test_reduced_settings_belong_to_registered_networks():
    assert networks.REDUCED.keys() <= {entry.name for entry in entries()}


@each_scale
def test_any_size_gives_a_mean_and_a_sigma_of_the_right_shape(name, scale):
    network = build(name, scale, sigma=True)
    for height, width in ((37, 31), (5, 3), (1, 1), (1, 9)):
        networks.check_size(network, height, width)


@each_scale
def test_radius_is_what_the_gradient_shows(name, scale):
    network = build(name, scale, sigma=True)
    if network.receptive_radius is None:
        pytest.skip("sees the whole image")
    networks.check_receptive_radius(network)


@each_scale
def test_state_dict_round_trip(name, scale):
    first, second = (build(name, scale, sigma=True, seed=seed) for seed in (0, 1))
    networks.check_state_round_trip(first, second)


@pytest.mark.parametrize("entry", networks.NETWORKS, ids=lambda entry: entry.name)
def test_gradients_reach_every_parameter(entry):
    networks.check_gradients(entry.name, entry.scales)


@each_name
def test_sigma_leaves_the_mean_alone(name, scale):
    networks.check_sigma_keeps_mean(build(name, scale))


@each_class
def test_compiles_into_one_graph(name, scale):
    networks.check_compiles(build(name, scale, sigma=True))


@each_name
def test_channels_last_changes_nothing(name, scale):
    networks.check_channels_last(build(name, scale, sigma=True))


@each_name
def test_autocast_to_bfloat16(name, scale):
    networks.check_bfloat16(build(name, scale, sigma=True))
