import numpy as np
import pytest
import torch
from scipy import ndimage

from musigma.model import load, save
from musigma.networks import create, num_params
from musigma.networks.bicubic_layer import enlarge
from musigma.networks.super_resolution.realsr import filter_pixels, luma
from musigma.types import ConfigError

LUMA_NETWORKS = ["dps", "kpn", "lp-kpn"]


def _num_params(name):
    with torch.device("meta"):
        return num_params(create(name, scale=1))


# The paper's RealSR table; the scale changes no layer.
@pytest.mark.parametrize(
    ("name", "params_m"), [("kpn", 1.48), ("lp-kpn", 1.43), ("rcan-realsr", 8.18)]
)
def test_parameters_are_the_printed_ones(name, params_m):
    assert _num_params(name) / 1e6 == pytest.approx(params_m, abs=0.006)


def test_direct_synthesis_has_the_printed_parameters_cut():
    # 1.268 M is printed as 1.26 M: the layers after the trunk are not published, and KPN's, with
    # one value in place of a kernel, come nearest.
    assert _num_params("dps") // 10_000 == 126


def test_filter_pixels_against_a_plain_loop():
    rng = np.random.default_rng(0)
    image, kernels = rng.normal(size=(7, 5)), rng.normal(size=(9, 7, 5))
    padded = np.pad(image, 1)
    expected = np.zeros((7, 5))
    for y in range(7):
        for x in range(5):
            square = padded[y : y + 3, x : x + 3]
            expected[y, x] = (square * kernels[:, y, x].reshape(3, 3)).sum()
    result = filter_pixels(torch.from_numpy(image)[None, None], torch.from_numpy(kernels)[None])
    np.testing.assert_allclose(result[0, 0], expected, rtol=1e-12)


def test_pyramid_against_scipy():
    network = create("lp-kpn", scale=1, num_blocks=0, width=16).double()
    image = torch.rand(1, 1, 12, 8, dtype=torch.float64)
    binomial = np.array([1, 4, 6, 4, 1]) / 16
    blur = np.outer(binomial, binomial)
    half = ndimage.convolve(image[0, 0].numpy(), blur, mode="constant")[::2, ::2]
    np.testing.assert_allclose(network._shrink(image)[0, 0], half)
    sparse = np.zeros((12, 8))
    sparse[::2, ::2] = half
    grown = ndimage.convolve(sparse, 4 * blur, mode="constant")
    np.testing.assert_allclose(network._grow(torch.from_numpy(half)[None, None])[0, 0], grown)


@pytest.mark.parametrize("name", ["kpn", "lp-kpn"])
@pytest.mark.parametrize("scale", [1, 2, 3, 4])
def test_kernels_of_one_pixel_leave_the_enlarged_image(name, scale):
    network = create(name, scale=scale, num_blocks=0, width=16)
    heads = network.kernels if name == "lp-kpn" else [network.kernels]
    for head in heads:
        torch.nn.init.zeros_(head[-1].weight)
        torch.nn.init.zeros_(head[-1].bias)
        torch.nn.init.ones_(head[-1].bias[head[-1].out_channels // 2])
    degraded = torch.rand(1, 3, 7, 5)
    torch.testing.assert_close(network(degraded).mean, enlarge(degraded, scale))


@pytest.mark.parametrize("name", LUMA_NETWORKS)
def test_chroma_stays(name):
    network = create(name, scale=2, num_blocks=0, width=16)
    degraded = torch.rand(1, 3, 7, 5)
    change = network(degraded).mean - enlarge(degraded, 2)
    assert change.abs().max() > 0.01
    torch.testing.assert_close(change, luma(change).expand_as(change))


@pytest.mark.parametrize("name", [*LUMA_NETWORKS, "rcan-realsr"])
def test_scale_1_keeps_the_size(name):
    network = create(name, scale=1, num_blocks=0, width=16)
    assert network(torch.rand(1, 3, 37, 31)).mean.shape == (1, 3, 37, 31)


@pytest.mark.parametrize("name", [*LUMA_NETWORKS, "edsr-baseline"])
def test_a_residual_network_starts_as_the_identity_and_learns(name):
    network = create(name, scale=1, num_blocks=1, width=16, residual=True)
    degraded = torch.rand(1, 3, 7, 5)
    mean = network(degraded).mean
    assert torch.equal(mean, degraded)
    (mean - 0.5).square().sum().backward()
    last = [module for module in network.modules() if isinstance(module, torch.nn.Conv2d)][-1]
    assert last.weight.grad.abs().max() > 0


def test_a_residual_edsr_needs_equal_sizes():
    with pytest.raises(ConfigError, match="residual is for scale 1"):
        create("edsr-baseline", scale=2, residual=True)


@pytest.mark.parametrize("name", [*LUMA_NETWORKS, "edsr-baseline"])
def test_weights_of_a_residual_network_load_as_such(name, tmp_path):
    network = create(name, scale=1, num_blocks=1, width=16, residual=True).eval()
    for weight in network.parameters():
        torch.nn.init.normal_(weight, std=0.05)
    save(tmp_path / "w.safetensors", network)
    degraded = torch.rand(1, 3, 8, 8)
    again = load(tmp_path / "w.safetensors").network
    with torch.no_grad():
        torch.testing.assert_close(again(degraded).mean, network(degraded).mean)
