import pytest
import torch

from helpers.networks import recognised_names, released
from musigma.model import load_file
from musigma.networks import create, num_params
from musigma.networks.super_resolution.han import ChannelSpatialAttention, LayerAttention, recognise
from musigma.networks.weights_file import weights_of

SMALL = {"num_groups": 2, "num_blocks": 3, "width": 16, "reduction": 4, "value_range": 255.0}


# The paper's table of computing-intensive models.
@pytest.mark.parametrize(("scale", "params_m"), [(2, 15.92), (3, 16.11), (4, 16.07)])
def test_parameters_are_the_printed_ones(scale, params_m):
    with torch.device("meta"):
        params = num_params(create("han", scale=scale))
    assert round(params / 1e6, 2) == params_m


def test_names_are_the_official_ones():
    # wwlCape/HAN, src/model/han.py; csa.conv.weight is (1, 1, 3, 3, 3) there.
    with torch.device("meta"):
        state = weights_of(create("han", scale=4))
    for key, shape in {
        "head.0.weight": (64, 3, 3, 3),
        "body.0.body.0.body.0.weight": (64, 64, 3, 3),
        "body.9.body.19.body.2.bias": (64,),
        "body.9.body.19.body.3.conv_du.0.weight": (4, 64, 1, 1),
        "body.9.body.20.weight": (64, 64, 3, 3),
        "body.10.weight": (64, 64, 3, 3),
        "csa.gamma": (1,),
        "csa.conv.weight": (1, 3, 3, 3),
        "la.gamma": (1,),
        "last_conv.weight": (64, 704, 3, 3),
        "last.weight": (64, 128, 3, 3),
        "tail.0.2.weight": (256, 64, 3, 3),
        "tail.1.weight": (3, 64, 3, 3),
    }.items():
        assert state[key].shape == shape


def test_layer_attention_is_the_published_formula():
    # Softmax of the largest similarity of a row minus each, as wwlCape/HAN computes it.
    layers = torch.randn(2, 3, 4, 5, 2, generator=torch.Generator().manual_seed(0))
    attention = LayerAttention()
    torch.nn.init.constant_(attention.gamma, 0.7)
    flat = layers.flatten(2)
    similarity = flat @ flat.mT
    weight = (similarity.amax(-1, keepdim=True) - similarity).softmax(-1)
    expected = (flat + 0.7 * weight @ flat).view(2, 12, 5, 2)
    torch.testing.assert_close(attention(layers), expected)


def test_channel_spatial_attention_is_a_three_dimensional_convolution():
    features = torch.randn(2, 6, 5, 4, generator=torch.Generator().manual_seed(0))
    attention = ChannelSpatialAttention()
    torch.nn.init.constant_(attention.gamma, 0.7)
    kernel = attention.conv.weight.view(1, 1, 3, 3, 3)
    actual = torch.conv3d(features.unsqueeze(1), kernel, attention.conv.bias, padding=1).squeeze(1)
    expected = features + features * 0.7 * actual.sigmoid()
    torch.testing.assert_close(attention(features), expected)


def test_layers_are_stacked_from_the_last_to_the_first():
    network = create("han", scale=2, **SMALL)
    stacked = []
    network.la.register_forward_hook(lambda _module, inputs, _output: stacked.extend(inputs))
    last = []
    network.body[-1].register_forward_hook(lambda _module, _inputs, output: last.append(output))
    network(torch.rand(1, 3, 6, 5))
    assert stacked[0].shape == (1, 3, 16, 6, 5)
    assert torch.equal(stacked[0][:, 0], last[0])


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_released_files_load(tmp_path, scale):
    network = create("han", scale=scale, **SMALL).eval()
    state = released(network)
    state["csa.conv.weight"] = state["csa.conv.weight"].view(1, 1, 3, 3, 3)
    torch.save({f"module.{k}": v for k, v in state.items()}, tmp_path / "han.pt")
    model = load_file(tmp_path / "han.pt")
    degraded = torch.rand(1, 3, 5, 7)
    assert (model.name, model.network.build_spec.settings) == ("han", SMALL)
    assert torch.equal(model.network(degraded).mean, network(degraded).mean)


def test_recognised_by_one_family():
    state = weights_of(create("han", scale=3, **SMALL))
    assert recognise(state) == ("han", 3, SMALL)
    names = recognised_names(state)
    assert names == ["han"]
