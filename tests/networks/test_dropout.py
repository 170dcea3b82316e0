"""Dropout is off outside training; a draw of it makes a network that shares the weights."""

import pytest
import torch

from musigma.model import load, save
from musigma.networks import create, with_sigma
from musigma.networks.dropout import ChannelDropout, FrozenDropout, sample_dropout_mask
from musigma.types import ConfigError

SMALL = {"num_blocks": 2, "width": 8}


def edsr(**settings):
    torch.manual_seed(0)
    return create("edsr-baseline", scale=2, **SMALL, **settings).eval()


def degraded():
    return torch.rand(1, 3, 37, 31, generator=torch.Generator().manual_seed(1))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_it_changes_neither_weights_nor_results_outside_training():
    plain, network = edsr(), edsr(dropout=0.25)
    assert list(plain.state_dict()) == list(network.state_dict())
    assert plain.receptive_radius == network.receptive_radius
    assert torch.equal(plain(degraded()).mean, network(degraded()).mean)
    torch.manual_seed(1)
    assert not torch.equal(plain(degraded()).mean, network.train()(degraded()).mean)


def test_the_share_of_channels_and_the_factor_of_the_rest():
    layer = FrozenDropout(ChannelDropout(10_000, 0.25), generator())
    passed = layer(torch.ones(1, 10_000, 2, 3))
    assert passed.unique().tolist() == pytest.approx([0, 1 / 0.75])
    assert passed.mean().item() == pytest.approx(1, abs=0.02)  # 3.5 deviations of 10,000 draws
    assert torch.equal(passed.amin((2, 3)), passed.amax((2, 3)))  # whole channels


def test_a_draw_shares_the_weights_and_is_repeatable():
    network = with_sigma(edsr(dropout=0.25), width=8, depth=1).eval()
    first, again, other = (sample_dropout_mask(network, generator(seed)) for seed in (0, 0, 1))
    assert all(a is b for a, b in zip(first.parameters(), network.parameters(), strict=True))
    assert torch.equal(first(degraded()).sigma, again(degraded()).sigma)
    assert not torch.equal(first(degraded()).mean, other(degraded()).mean)
    assert any(isinstance(layer, ChannelDropout) for layer in network.modules())


def test_a_draw_lies_where_the_weights_lie():
    network = edsr(dropout=0.25).to("meta")
    assert {
        buffer.device.type for buffer in sample_dropout_mask(network, generator()).buffers()
    } == {"meta"}


def test_the_setting_travels_with_the_weights(tmp_path):
    save(tmp_path / "w.safetensors", edsr(dropout=0.25))
    model = load(tmp_path / "w.safetensors")
    assert model.metadata["settings"]["dropout"] == 0.25
    sample_dropout_mask(model.network, generator())


def test_impossible_dropout_is_refused():
    with pytest.raises(ConfigError, match="EDSR was trained without dropout"):
        sample_dropout_mask(edsr(), generator())
    for probability in (-0.1, 1.0):
        with pytest.raises(ConfigError, match="0 or more and below 1"):
            edsr(dropout=probability)
