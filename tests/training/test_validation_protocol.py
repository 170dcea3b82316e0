"""A run is validated by the protocol that its weights are evaluated by."""

import pytest

from helpers.networks import build
from helpers.runs import small_values
from musigma.evaluation import denoising, protocol_for, super_resolution
from musigma.training.recipe import make_recipe
from musigma.training.trainer import protocol_of


def test_a_network_of_luma_is_validated_on_luma():
    network = build("vdsr-y", 2)
    protocol = protocol_of(make_recipe(small_values(network="vdsr-y", settings={})), network)
    assert protocol == super_resolution(2, luma_only=True) == protocol_for(network)


@pytest.mark.parametrize(("levels", "validated"), [((50, 50), 50), ((0, 50), 25), ((15, 15), 15)])
def test_a_denoiser_is_validated_at_the_level_it_is_trained_for(levels, validated):
    settings = {"network": "dncnn", "scale": 1, "channels": 1, "noise_std": list(levels)}
    recipe, network = make_recipe(small_values(settings={}, **settings)), build("dncnn", 1)
    assert protocol_of(recipe, network) == denoising(validated, channels=network.out_channels)
