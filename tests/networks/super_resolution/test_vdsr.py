import pytest
import torch

from helpers.networks import released
from musigma.functional.color import rgb_to_ycbcr
from musigma.functional.resize import resize
from musigma.model import load_file
from musigma.networks import card, create
from musigma.networks.state_dict import rename
from musigma.networks.super_resolution.vdsr import recognise
from musigma.networks.weights_file import weights_of
from musigma.types import WeightsError


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_costs_of_the_table(scale):
    # The paper's table of light networks: 668K, 614.7G at every scale. Only the form on RGB with
    # biases has 668K (668,227); on luma it would be 665K and 612.6G. At x3 the image is 1278 wide.
    costs = card("vdsr", scale=scale)
    assert costs.params == 668_227
    assert costs.macs_g == pytest.approx(614.7, rel=0.005)


def test_luma_form_has_no_biases():
    # 18 layers of 64 x 64 x 9 weights, a first and a last one of 64 x 9.
    assert card("vdsr-y", scale=2).params == 18 * 36_864 + 2 * 576


def test_names_of_the_rgb_form():
    # EDSR-PyTorch, src/model/vdsr.py: a Sequential of blocks that begin with a convolution.
    shapes = {key: tuple(value.shape) for key, value in weights_of(create("vdsr", scale=2)).items()}
    assert len(shapes) == 40
    assert shapes["body.0.0.weight"] == (64, 3, 3, 3)
    assert shapes["body.18.0.bias"] == (64,)
    assert shapes["body.19.0.weight"] == (3, 64, 3, 3)


def test_names_of_the_luma_form():
    # The keys of twtygqyy/pytorch-vdsr.
    state = weights_of(create("vdsr-y", scale=2))
    shapes = {key: tuple(value.shape) for key, value in state.items()}
    assert len(shapes) == 20
    assert shapes["input.weight"] == (64, 1, 3, 3)
    assert shapes["residual_layer.17.conv.weight"] == (64, 64, 3, 3)
    assert shapes["output.weight"] == (1, 64, 3, 3)


def test_foreign_file_of_the_rgb_form(tmp_path):
    # EDSR-PyTorch keeps the mean shift as layers, leaves biases out and works in 0..255.
    ours = create("vdsr", scale=3, width=8, bias=False, value_range=255.0).eval()
    torch.save({f"module.{k}": v for k, v in released(ours).items()}, tmp_path / "a")
    check_same(ours, load_file(tmp_path / "a", scale=3), "vdsr")


def test_foreign_file_of_the_luma_form(tmp_path):
    ours = create("vdsr-y", scale=4, num_layers=4, width=8).eval()
    torch.save({"state_dict": weights_of(ours)}, tmp_path / "a")
    check_same(ours, load_file(tmp_path / "a", scale=4), "vdsr-y")


@pytest.mark.parametrize("bias", [False, True])
def test_released_files_of_the_luma_form_by_other_names(tmp_path, bias):
    ours = create("vdsr-y", scale=2, width=8, bias=bias).eval()
    state = weights_of(ours)
    # Lornatang/VDSR-PyTorch.
    names = {"input": "conv1.0", "output": "conv2"}
    names |= {f"residual_layer.{n}.conv": f"trunk.{n}.conv" for n in range(18)}
    torch.save({"state_dict": rename(state, names)}, tmp_path / "a.pth")
    check_same(ours, load_file(tmp_path / "a.pth", scale=2), "vdsr-y")
    # The names of the form on RGB, with one channel.
    names = {"input": "body.0.0", "output": "body.19.0"}
    names |= {f"residual_layer.{n}.conv": f"body.{n + 1}.0" for n in range(18)}
    torch.save(rename(state, names), tmp_path / "b.pth")
    check_same(ours, load_file(tmp_path / "b.pth", scale=2), "vdsr-y")


def test_a_layer_that_is_there_under_two_names_is_refused(tmp_path):
    """One of them would be taken without a word."""
    state = weights_of(create("vdsr-y", scale=2, width=8))
    for name in ("conv1.0", "body.0.0"):
        more = {f"{name}.weight": torch.zeros_like(state["input.weight"])}
        for both in (state | more, more | state):
            torch.save(both, tmp_path / "a.pth")
            with pytest.raises(WeightsError, match="is no file of a network known here"):
                load_file(tmp_path / "a.pth", scale=2)


@pytest.mark.parametrize("name", ["vdsr", "vdsr-y"])
def test_files_with_biases(tmp_path, name):
    # The weights of the authors have biases.
    ours = create(name, scale=2, width=8, bias=True).eval()
    torch.save(weights_of(ours), tmp_path / "a.pth")
    options = {"value_range": 1.0} if name == "vdsr" else {}
    check_same(ours, load_file(tmp_path / "a.pth", scale=2, **options), name)


def check_same(network, model, name):
    assert model.name == name
    degraded = torch.rand(1, 3, 7, 5, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        assert torch.equal(model.network(degraded).mean, network(degraded).mean)


@pytest.mark.parametrize("other", ["edsr-baseline", "srresnet", "imdn", "srcnn"])
def test_leaves_other_networks_alone(other):
    assert recognise(weights_of(create(other, scale=2))) is None


def test_value_range_does_not_change_the_mean_of_scaled_weights():
    degraded = torch.rand(1, 3, 7, 5, generator=torch.Generator().manual_seed(0))
    small = create("vdsr", scale=2, num_layers=3, width=8)
    large = create("vdsr", scale=2, num_layers=3, width=8, value_range=255.0)
    # Layers without curvature but ReLU scale with their input once the biases do.
    state = {k: v * (255 if k.endswith("bias") else 1) for k, v in weights_of(small).items()}
    large.load_state_dict(state)
    torch.testing.assert_close(small(degraded).mean, large(degraded).mean)


def test_luma_form_keeps_the_chroma_of_the_bicubic_image():
    network = create("vdsr-y", scale=3, num_layers=3, width=8).double()
    degraded = torch.rand(
        1, 3, 7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    # Nothing is rounded on the way, as in the published evaluation.
    before, after = rgb_to_ycbcr(resize(degraded, scale=3)), rgb_to_ycbcr(network(degraded).mean)
    torch.testing.assert_close(after[:, 1:], before[:, 1:])
    expected = before[:, :1] + network.output(network.features(degraded))
    torch.testing.assert_close(after[:, :1], expected)


def test_starts_with_gradients_of_one_size():
    # He et al. 2015: through 20 layers the default weights would shrink them by eight digits.
    torch.manual_seed(0)
    network = create("vdsr", scale=2, width=32)
    network(torch.rand(1, 3, 9, 9)).mean.square().sum().backward()
    first, last = network.body[1][0].weight.grad.norm(), network.body[17][0].weight.grad.norm()
    assert 0.05 < first / last < 20
