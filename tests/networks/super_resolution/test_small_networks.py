"""SRCNN, FSRCNN and ESPCN: networks of a few layers."""

import pytest

from musigma.networks import card, create, espcn, fsrcnn, srcnn
from musigma.networks.weights_file import weights_of


def test_srcnn_parameters_by_hand():
    # 9-5-5 with three colours; with one, the weights are the 57K (57,184) that tables print.
    assert card("srcnn", scale=2).params == (243 + 1) * 64 + (64 * 25 + 1) * 32 + (32 * 25 + 1) * 3


def test_fsrcnn_parameters_by_hand():
    # FSRCNN(56, 12, 4) of Dong et al. 2016 (12K with one colour), a PReLU slope per channel.
    head = (75 + 1) * 56 + 56
    mapping = (56 + 1) * 12 + 12 + 4 * ((12 * 9 + 1) * 12 + 12) + (12 + 1) * 56 + 56
    assert card("fsrcnn", scale=3).params == head + mapping + 56 * 81 * 3 + 3


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_espcn_parameters_by_hand(scale):
    expected = (75 + 1) * 64 + (64 * 9 + 1) * 32 + (32 * 9 + 1) * 3 * scale**2
    assert card("espcn", scale=scale).params == expected


@pytest.mark.parametrize(
    ("name", "keys"),
    # The keys of yjn870's SRCNN-pytorch, FSRCNN-pytorch and ESPCN-pytorch.
    [
        ("srcnn", {"conv1.weight", "conv2.bias", "conv3.weight"}),
        ("fsrcnn", {"first_part.1.weight", "mid_part.10.weight", "last_part.bias"}),
        ("espcn", {"first_part.0.weight", "first_part.2.bias", "last_part.0.weight"}),
    ],
)
def test_names(name, keys):
    assert keys <= weights_of(create(name, scale=2)).keys()


@pytest.mark.parametrize(
    ("recognise", "name", "scale", "settings"),
    [
        (srcnn.recognise, "srcnn", None, {"width": 32}),
        (fsrcnn.recognise, "fsrcnn", None, {"width": 8, "num_shrunk": 4, "num_mappings": 2}),
        (espcn.recognise, "espcn", 3, {"width": 32}),
    ],
)
def test_recognised_by_their_names(recognise, name, scale, settings):
    state = weights_of(create(name, scale=3, **settings))
    assert recognise(state) == (name, scale, settings)
    for other in ("srcnn", "fsrcnn", "espcn", "vdsr", "edsr-baseline"):
        if other != name:
            assert recognise(weights_of(create(other, scale=2))) is None


@pytest.mark.parametrize(
    ("recognise", "name", "key"),
    [
        (srcnn.recognise, "srcnn", "conv1.weight"),
        (fsrcnn.recognise, "fsrcnn", "first_part.0.weight"),
        (espcn.recognise, "espcn", "first_part.0.weight"),
    ],
)
def test_files_for_one_channel_are_refused(recognise, name, key):
    state = dict(weights_of(create(name, scale=2)))
    state[key] = state[key][:, :1]
    assert recognise(state) is None
