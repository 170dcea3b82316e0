"""Denoising networks by their releases: parameters, names of the weights, foreign files."""

import contextlib

import numpy as np
import pytest
import torch

from helpers.networks import recognised_names, released
from musigma.model import load_file
from musigma.networks import BuildSpec, create, num_params
from musigma.networks.denoising.focnet import memory_weights, path
from musigma.networks.denoising.mwcnn import haar, inverse_haar
from musigma.networks.denoising.rnan import NonLocal, share_out
from musigma.networks.super_resolution.ipt import Attention
from musigma.networks.weights_file import weights_of

CONV = 64 * 64 * 9 + 64
"""Weights and biases of a 3x3 convolution of 64 channels."""


def params(name, scale=1):
    with torch.device("meta"):
        return num_params(create(name, scale=scale))


def shapes(name, scale=1):
    with torch.device("meta"):
        state = weights_of(create(name, scale=scale))
    return {key: tuple(value.shape) for key, value in state.items()}


@pytest.mark.parametrize(
    ("name", "scale", "printed_m"),
    [
        # Tables of later work: 1.50M.
        ("ridnet", 1, 1.50),
        # Tian et al. 2020: two stacks of DnCNN's size and a last layer, 1.1M.
        ("brdnet", 1, 1.115),
        ("brdnet-grey", 1, 1.110),
        # The release (lpj-github-io/MWCNNv2), counted layer by layer below.
        ("mwcnn", 1, 24.93),
        # The release (yulunzhang/RNAN, DN_RGB), counted layer by layer below.
        ("rnan", 1, 8.96),
        # The released network, one task: 115M; the paper prints 114M.
        ("ipt", 1, 115.31),
        # Liu et al. 2018, table 3: 330K, to which the batch norms of twelve steps add 9K.
        ("nlrn", 1, 0.340),
        # Tables of later work: 22.12M, 22.31M, 22.27M.
        ("rdn", 2, 22.12),
        ("rdn", 3, 22.31),
        ("rdn", 4, 22.27),
    ],
)
def test_parameters_are_the_printed_ones(name, scale, printed_m):
    assert params(name, scale) / 1e6 == pytest.approx(printed_m, abs=0.005)


def test_parameters_of_ridnet_by_hand():
    # A block: four dilated layers, one that halves the channels of two branches, two and two 3x3
    # layers, a 1x1 one, and the attention 64 -> 4 -> 64.
    block = 9 * CONV + 64 * 64 * 9 + 64 * 64 + 64 + (64 * 4 + 4) + (4 * 64 + 64)
    assert params("ridnet") == (27 * 64 + 64) + 4 * block + (64 * 9 * 3 + 3)


def test_parameters_of_mwcnn_by_hand():
    def conv(inner, outer):
        return 9 * inner * outer + outer

    fine = conv(3, 64) + 4 * conv(64, 64) + conv(64, 3)
    second = conv(256, 128) + 4 * conv(128, 128) + conv(128, 256)
    third = conv(512, 256) + 4 * conv(256, 256) + conv(256, 512)
    coarsest = conv(1024, 512) + 4 * conv(512, 512) + conv(512, 1024)
    assert params("mwcnn") == fine + second + third + coarsest


def test_parameters_of_rnan_by_hand():
    # A group: nine residual blocks, the layer that halves, the one after, the 6x6 one that doubles
    # and the 1x1 one; a non-local layer: four 1x1 layers between 64 and 32 channels.
    group = (9 * 2 + 2) * CONV + (36 * 64 * 64 + 64) + (64 * 64 + 64)
    non_local = 3 * (64 * 32 + 32) + (32 * 64 + 64)
    ends = (27 * 64 + 64) + CONV + (64 * 9 * 3 + 3)
    assert params("rnan") == 10 * group + 2 * non_local + ends


def test_parameters_of_focnet_by_hand():
    # The authors' FracDCNN.m: 26 layers of 128 channels, of which two stand before and one after
    # the 21 steps, 12 of which enlarge by a 2x2 layer; a gate in each; the first and the last.
    inner = 26 * (9 * 128 * 128 + 128) + 12 * (4 * 128 * 128) + 21
    assert params("focnet") == (9 * 128 + 128) + inner + (9 * 128 + 1)


def test_parameters_of_ipt_by_hand():
    size = 9 * 64
    attention, perceptron = 4 * size**2, 8 * size**2 + 5 * size
    layers = 12 * (3 * attention + 2 * perceptron + 5 * 2 * size)
    body = layers + (size**2 + size) + perceptron + 2 * 256 * size
    ends = (27 * 64 + 64) + 4 * (25 * 64 * 64 + 64) + (9 * 64 * 3 + 3)
    assert params("ipt") == body + ends


def test_memory_of_focnet_is_the_authors():
    # PLM.m: 0.2, 0.08, 0.048, 0.0336 for the latest and earlier ones, over their sum.
    weights = np.array([0.0336, 0.048, 0.08, 0.2])
    np.testing.assert_allclose(memory_weights(4), weights / weights.sum())


def test_path_of_focnet_is_the_authors():
    # FracDCNN.m: states x1..x5, y1..y8, z1..z8, s1..s4; the first of each is there from the start.
    steps = path(4)
    assert [sum(level == each for each, _ in steps) for level in range(4)] == [4, 7, 7, 3]
    assert steps[:6] == [(2, True), (1, True), (0, True), (1, False), (2, False), (3, False)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # huawei-noah/Pretrained-IPT, model/ipt.py.
        (
            "ipt",
            {
                "head.0.0.weight": (64, 3, 3, 3),
                "head.0.2.body.2.weight": (64, 64, 5, 5),
                "body.linear_encoding.weight": (576, 576),
                "body.mlp_head.0.weight": (2304, 576),
                "body.mlp_head.3.bias": (576,),
                "body.query_embed.weight": (1, 256 * 576),
                "body.position_encoding.pe.weight": (256, 576),
                "body.encoder.layers.11.self_attn.in_proj_weight": (1728, 576),
                "body.encoder.layers.11.linear1.weight": (2304, 576),
                "body.decoder.layers.0.multihead_attn.out_proj.weight": (576, 576),
                "body.decoder.layers.0.norm3.weight": (576,),
                "tail.0.1.weight": (3, 64, 3, 3),
            },
        ),
        # saeed-anwar/RIDNet, TestCode/code/model.
        (
            "ridnet",
            {
                "head.body.0.weight": (64, 3, 3, 3),
                "b1.r1.body1.2.weight": (64, 64, 3, 3),
                "b1.r1.body3.0.weight": (64, 128, 3, 3),
                "b4.r2.body.2.bias": (64,),
                "b4.r3.body.4.weight": (64, 64, 1, 1),
                "b2.ca.c1.body.0.weight": (4, 64, 1, 1),
                "b2.ca.c2.body.0.weight": (64, 4, 1, 1),
                "tail.weight": (3, 64, 3, 3),
            },
        ),
        # lpj-github-io/MWCNNv2, MWCNN_code/model.
        (
            "mwcnn",
            {
                "head.0.body.0.weight": (64, 3, 3, 3),
                "d_l0.0.body.2.weight": (64, 64, 3, 3),
                "d_l1.0.body.0.weight": (128, 256, 3, 3),
                "d_l2.1.body.2.bias": (256,),
                "pro_l3.0.body.0.weight": (512, 1024, 3, 3),
                "pro_l3.2.body.2.weight": (512, 512, 3, 3),
                "i_l2.1.body.0.weight": (512, 256, 3, 3),
                "i_l0.0.body.0.weight": (64, 64, 3, 3),
                "tail.0.weight": (3, 64, 3, 3),
            },
        ),
        # yulunzhang/RNAN, DN_RGB/code/model.
        (
            "rnan",
            {
                "head.0.weight": (64, 3, 3, 3),
                "body_nl_low.0.body.0.RA_RB1.0.body.2.weight": (64, 64, 3, 3),
                "body_nl_low.0.body.0.RA_MB.0.MB_RB1.0.theta.weight": (32, 64, 1, 1),
                "body_nl_low.0.body.0.RA_MB.0.MB_RB1.1.body.0.bias": (64,),
                "body_nl_high.0.body.0.RA_MB.0.MB_RB1.0.W.weight": (64, 32, 1, 1),
                "body.7.body.0.RA_TB.0.body.1.body.0.weight": (64, 64, 3, 3),
                "body.7.body.0.RA_MB.0.MB_Down.0.weight": (64, 64, 3, 3),
                "body.7.body.0.RA_MB.0.MB_Up.0.weight": (64, 64, 6, 6),
                "body.7.body.0.RA_MB.0.MB_1x1conv.0.weight": (64, 64, 1, 1),
                "body.7.body.0.RA_tail.1.body.2.weight": (64, 64, 3, 3),
                "body.7.body.1.weight": (64, 64, 3, 3),
                "body.8.weight": (64, 64, 3, 3),
                "tail.0.weight": (3, 64, 3, 3),
            },
        ),
        # EDSR-PyTorch, src/model/rdn.py.
        (
            "rdn-denoise",
            {
                "SFENet1.weight": (64, 3, 3, 3),
                "RDBs.15.convs.7.conv.0.weight": (64, 512, 3, 3),
                "RDBs.15.LFF.weight": (64, 576, 1, 1),
                "GFF.0.weight": (64, 1024, 1, 1),
                "GFF.1.bias": (64,),
                "UPNet.0.weight": (3, 64, 3, 3),
            },
        ),
    ],
)
def test_names_are_the_official_ones(name, expected):
    actual = shapes(name)
    assert {key: actual.get(key) for key in expected} == expected


RELEASED = {
    "ridnet": {"width": 8, "reduction": 4, "value_range": 255.0},
    "ridnet-grey": {"width": 8, "reduction": 4, "value_range": 255.0},
    "mwcnn": {"width": 4, "value_range": 255.0},
    "mwcnn-grey": {"width": 4, "value_range": 255.0},
    "rnan": {"num_groups": 4, "width": 8, "value_range": 255.0},
    "rnan-grey": {"num_groups": 3, "width": 8, "value_range": 255.0},
}
IPT = {"width": 4, "num_layers": 1, "window": 6, "value_range": 255.0}
RDN = {"num_blocks": 2, "num_layers": 3, "width": 8, "growth": 4, "value_range": 255.0}


@pytest.mark.parametrize(
    ("name", "scale", "settings"),
    [
        *((name, 1, settings) for name, settings in RELEASED.items()),
        *((name, 1, RDN) for name in ("rdn-denoise", "rdn-denoise-grey")),
        ("ipt", 1, IPT),
        *(("rdn", scale, RDN) for scale in (2, 3, 4)),
    ],
)
def test_released_files_load(name, scale, settings, tmp_path):
    network = create(name, scale=scale, **settings).eval()
    state = weights_of(network)
    if name.startswith(("ridnet", "ipt")):
        state = released(network)
    torch.save({f"module.{key}": value for key, value in state.items()}, tmp_path / "a.pt")
    has_shift = "sub_mean.bias" in state
    with (
        contextlib.nullcontext() if has_shift else pytest.warns(UserWarning, match="in which range")
    ):
        model = load_file(tmp_path / "a.pt")
    assert model.network.build_spec == BuildSpec(name, scale, settings)
    degraded = torch.rand(1, network.in_channels, 7, 5)
    with torch.inference_mode():
        assert torch.equal(model.network(degraded).mean, network(degraded).mean)


@pytest.mark.parametrize("name", [*RELEASED, "rdn-denoise"])
def test_recognised_by_one_family(name):
    state = weights_of(create(name, scale=1, **RELEASED.get(name, RDN)))
    names = recognised_names(state)
    assert names == [name]


def test_attention_of_ipt_is_that_of_torch():
    ours = Attention(12, num_heads=3)
    theirs = torch.nn.MultiheadAttention(12, 3, bias=False, batch_first=True)
    theirs.load_state_dict(weights_of(ours))
    query, key, value = torch.randn(3, 2, 5, 12)
    torch.testing.assert_close(ours(query, key, value), theirs(query, key, value)[0])


def test_likenesses_of_nlrn_add_up_from_step_to_step():
    network = create("nlrn", scale=1, width=8, num_steps=3, window=5).double()
    image = torch.rand(1, 1, 5, 5, dtype=torch.float64)
    start = features = network.head(image)
    similarity = 0
    for norms in network.norms:
        seen = torch.relu(norms.before(features))
        query, key = network.theta(seen).flatten(2), network.phi(seen).flatten(2)
        similarity = similarity + query.mT @ key
        values = network.g(seen).flatten(2)
        seen = seen + (values @ similarity.softmax(-1).mT).view(1, 8, 5, 5)
        features = start + network.second(
            torch.relu(norms.after(network.first(norms.between(seen))))
        )
    torch.testing.assert_close(network.features(image), torch.relu(network.last(features)))


def test_haar_is_orthonormal_and_ordered_as_the_release():
    # The four bands of a cell of one channel, by the formulas of the paper (after its equation 1).
    image = torch.rand(2, 3, 6, 8, dtype=torch.float64)
    a, b = image[..., 0::2, 0::2], image[..., 0::2, 1::2]
    c, d = image[..., 1::2, 0::2], image[..., 1::2, 1::2]
    bands = [a + b + c + d, -a + b - c + d, -a - b + c + d, a - b - c + d]
    torch.testing.assert_close(haar(image), torch.cat(bands, dim=1) / 2)
    torch.testing.assert_close(inverse_haar(haar(image)), image)
    assert haar(image).norm().item() == pytest.approx(image.norm().item())


@pytest.mark.parametrize("name", ["ridnet", "brdnet", "mwcnn", "rnan", "rdn-denoise"])
def test_residual_networks_return_the_image_when_they_predict_nothing(name):
    settings = {**RELEASED, "brdnet": {"width": 8}, "rdn-denoise": RDN}[name]
    network = create(name, scale=1, **settings).double()
    last = {"mwcnn": "tail.0", "rnan": "tail.0", "rdn-denoise": "UPNet.0"}.get(name, "tail")
    layer = network.get_submodule(last)
    torch.nn.init.zeros_(layer.weight)
    if name != "ridnet":  # whose bias takes off the mean color that is added
        torch.nn.init.zeros_(layer.bias)
    image = torch.rand(1, 3, 7, 5, dtype=torch.float64)
    torch.testing.assert_close(network(image).mean, image, rtol=0, atol=1e-7)


def test_non_local_parts_of_each_value_sum_to_one(monkeypatch):
    query, key, value = torch.randn(3, 2, 11, 4, dtype=torch.float64)
    scores = np.exp(np.einsum("nic,njc->nij", query, key))
    expected = np.einsum("nij,njc->nic", scores / scores.sum(1, keepdims=True), value)
    whole = share_out(query, key, value)
    np.testing.assert_allclose(whole, expected)
    monkeypatch.setattr("musigma.networks.denoising.rnan.MANY_PAIRS", 33)  # three keys at a time
    torch.testing.assert_close(share_out(query, key, value), whole)


def test_non_local_layer_sees_everything():
    features = torch.randn(1, 4, 5, 7, requires_grad=True)
    (gradient,) = torch.autograd.grad(NonLocal(4)(features)[..., 0, 0].sum(), features)
    assert gradient.abs().sum((0, 1)).gt(0).all()
