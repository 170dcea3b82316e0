import numpy as np
import pytest
import torch
from scipy import linalg

from helpers.networks import recognised_names, released
from musigma.model import load_file
from musigma.networks import create, num_params
from musigma.networks.super_resolution.san import (
    NonLocal,
    SecondOrderAttention,
    attend,
    covariance_root,
    recognise,
)
from musigma.networks.weights_file import weights_of

SMALL = {"num_groups": 2, "num_blocks": 3, "width": 16, "reduction": 4, "value_range": 255.0}


# The paper's table of computing-intensive models. The official network also holds 38,044 values it
# never uses (conv_last, non_local.soca and the groups' gamma): with them 15.71 M, without 15.67 M.
@pytest.mark.parametrize(("scale", "params_m"), [(2, 15.71), (3, 15.90), (4, 15.86)])
def test_parameters_are_the_printed_ones(scale, params_m):
    with torch.device("meta"):
        params = num_params(create("san", scale=scale))
    assert params / 1e6 == pytest.approx(params_m, rel=0.005)
    assert round((params + 36_928 + 1_096 + 20) / 1e6, 2) == params_m


def test_names_are_the_official_ones():
    # daitao/SAN, TrainCode/model/san.py with 20 groups, 10 blocks and 64 channels.
    with torch.device("meta"):
        state = weights_of(create("san", scale=4))
    for key, shape in {
        "gamma": (1,),
        "head.0.weight": (64, 3, 3, 3),
        "RG.0.rcab.0.conv_first.0.weight": (64, 64, 3, 3),
        "RG.19.rcab.9.conv_first.2.bias": (64,),
        "RG.19.soca.conv_du.0.weight": (4, 64, 1, 1),
        "RG.19.soca.conv_du.2.weight": (64, 4, 1, 1),
        "RG.19.conv_last.weight": (64, 64, 3, 3),
        "non_local.non_local.theta.weight": (8, 64, 1, 1),
        "non_local.non_local.phi.bias": (8,),
        "non_local.non_local.g.weight": (8, 64, 1, 1),
        "non_local.non_local.W.weight": (64, 8, 1, 1),
        "tail.0.0.weight": (256, 64, 3, 3),
        "tail.0.2.weight": (256, 64, 3, 3),
        "tail.1.weight": (3, 64, 3, 3),
    }.items():
        assert state[key].shape == shape


def test_root_of_covariance_against_scipy():
    features = torch.randn(2, 5, 9, 7, generator=torch.Generator().manual_seed(0))
    roots = covariance_root(features, num_iterations=20)
    for image, root in zip(features, roots, strict=True):
        expected = linalg.sqrtm(np.cov(image.flatten(1).double().numpy(), bias=True))
        np.testing.assert_allclose(root.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_five_iterations_by_hand():
    # Two equal channels of variance 1: the matrix over its trace has the eigenvalues 1 and 0, both
    # fixed points of the iteration, so that the root is exact: all ones over sqrt(2).
    features = torch.tensor([-1.0, 1.0]).expand(1, 2, 1, 2)
    torch.testing.assert_close(covariance_root(features), torch.full((1, 2, 2), 0.5**0.5))


def test_flat_image_has_a_root_and_a_gradient():
    attention = SecondOrderAttention(4, 2)
    features = torch.full((1, 4, 3, 3), 7.0, requires_grad=True)
    (gradient,) = torch.autograd.grad(attention(features).sum(), features)
    assert gradient.isfinite().all()
    assert not covariance_root(features).any()


def test_attention_is_a_softmax_over_all_positions():
    maps = torch.randn(3, 2, 1, 4, 3, 5, generator=torch.Generator().manual_seed(0))
    query, key, value = maps.squeeze(2).flatten(3)
    expected = value @ (key.mT @ query).softmax(1)
    torch.testing.assert_close(attend(maps).flatten(2), expected)


def test_attention_stays_within_quarters():
    layer = NonLocal(8)
    features = torch.randn(1, 8, 5, 7, requires_grad=True)
    (gradient,) = torch.autograd.grad(layer(features)[..., :2, :3].sum(), features)
    seen = gradient.abs().sum((0, 1)) > 0
    expected = torch.zeros(5, 7, dtype=torch.bool)
    expected[:2, :3] = True
    assert torch.equal(seen, expected)


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_released_files_load(tmp_path, scale):
    network = create("san", scale=scale, **SMALL).eval()
    unused = ["conv_last.weight", "RG.1.gamma"]
    unused += ["non_local.soca.conv_du.0.weight"]
    state = {**released(network), **{key: torch.zeros(1) for key in unused}}
    torch.save({f"module.{k}": v for k, v in state.items()}, tmp_path / "san.pt")
    model = load_file(tmp_path / "san.pt")
    degraded = torch.rand(1, 3, 5, 7)
    assert (model.name, model.network.build_spec.settings) == ("san", SMALL)
    assert torch.equal(model.network(degraded).mean, network(degraded).mean)


def test_recognised_by_one_family():
    state = weights_of(create("san", scale=3, **SMALL))
    assert recognise(state) == ("san", 3, SMALL)
    names = recognised_names(state)
    assert names == ["san"]
