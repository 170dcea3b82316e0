import pytest
import torch

from musigma.model import load_file
from musigma.networks import BuildSpec, card, create
from musigma.networks.super_resolution.imdn import ContrastAttention, recognise
from musigma.networks.weights_file import weights_of


@pytest.mark.parametrize(
    ("scale", "params", "macs_g", "paper_g"),
    # Hui et al. 2019, table 5: 694K / 158.8G, 703K / 71.5G, 715K / 40.9G.
    [(2, 694, 158.8, 159.6), (3, 703, 71.5, 71.7), (4, 715, 40.9, 41.1)],
)
def test_costs_of_the_tables(scale, params, macs_g, paper_g):
    costs = card("imdn", scale=scale)
    assert round(costs.params / 1e3) == params
    assert costs.macs_g == pytest.approx(macs_g, rel=0.005)
    # The table of light networks prints 0.52 % more than the convolutions have, at every scale.
    assert costs.macs_g == pytest.approx(paper_g, rel=0.006)


def test_official_names():
    # The keys of the released IMDN_x2.pth without "module.".
    state = weights_of(create("imdn", scale=2))
    shapes = {key: tuple(value.shape) for key, value in state.items()}
    assert len(shapes) == 92
    assert shapes["fea_conv.weight"] == (64, 3, 3, 3)
    assert shapes["IMDB1.c1.weight"] == (64, 64, 3, 3)
    assert shapes["IMDB6.c4.weight"] == (16, 48, 3, 3)
    assert shapes["IMDB6.c5.bias"] == (64,)
    assert shapes["IMDB3.cca.conv_du.0.weight"] == (4, 64, 1, 1)
    assert shapes["c.0.weight"] == (64, 384, 1, 1)
    assert shapes["LR_conv.weight"] == (64, 64, 3, 3)
    assert shapes["upsampler.0.weight"] == (12, 64, 3, 3)


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_a_file_saved_by_data_parallel_loads(scale, tmp_path):
    ours = create("imdn", scale=scale, num_blocks=2, width=16).eval()
    torch.save({f"module.{k}": v for k, v in weights_of(ours).items()}, tmp_path / "imdn.pth")
    model = load_file(tmp_path / "imdn.pth")
    assert model.network.build_spec == BuildSpec("imdn", scale, {"num_blocks": 2, "width": 16})
    degraded = torch.rand(1, 3, 7, 5, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        assert torch.equal(model.network(degraded).mean, ours(degraded).mean)


@pytest.mark.parametrize("other", ["edsr-baseline", "idn", "vdsr", "fsrcnn"])
def test_leaves_other_networks_alone(other):
    assert recognise(weights_of(create(other, scale=2))) is None


def test_attention_sees_mean_plus_standard_deviation():
    attention = ContrastAttention(16)
    features = torch.rand(2, 16, 5, 7, generator=torch.Generator().manual_seed(0))
    spread = features.flatten(2).std(dim=2, correction=0) + features.flatten(2).mean(2)
    expected = features * attention.conv_du(spread[:, :, None, None])
    torch.testing.assert_close(attention(features), expected)
