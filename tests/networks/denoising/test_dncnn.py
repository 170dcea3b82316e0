import os
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from musigma.datasets.catalog import find_dataset
from musigma.evaluation import denoising
from musigma.evaluation.evaluate import evaluate
from musigma.model import load_file
from musigma.networks import BuildSpec, card, create
from musigma.networks.denoising.dncnn import recognise
from musigma.networks.weights_file import weights_of

DATA = Path(os.environ.get("MUSIGMA_DATA", "data"))
RELEASED = DATA.parent / "checkpoints" / "dncnn_gray_25.pth"


@pytest.mark.parametrize(
    ("name", "channels", "num_layers"), [("dncnn", 1, 17), ("dncnn-colour", 3, 20)]
)
def test_parameters_by_hand(name, channels, num_layers):
    # With batch norm folded, each layer has weights and biases.
    first, last = (channels * 9 + 1) * 64, (64 * 9 + 1) * channels
    costs = card(name, scale=1)
    assert costs.params == first + (num_layers - 2) * (64 * 9 + 1) * 64 + last
    # Of 720 x 1280 pixels, each weight is used once for each.
    biases = 64 * (num_layers - 1) + channels
    assert costs.macs_g == pytest.approx((costs.params - biases) * 720 * 1280 / 1e9)
    # A receptive field of 35 x 35 for 17 layers, 41 x 41 for 20.
    assert costs.receptive_radius == num_layers


def test_official_names():
    # The keys of a released file for gray images at level 25 (KAIR, models/network_dncnn.py).
    state = weights_of(create("dncnn", scale=1))
    shapes = {key: tuple(value.shape) for key, value in state.items()}
    assert len(shapes) == 34
    assert shapes["model.0.weight"] == (64, 1, 3, 3)
    assert shapes["model.2.weight"] == (64, 64, 3, 3)
    assert shapes["model.30.bias"] == (64,)
    assert shapes["model.32.weight"] == (1, 64, 3, 3)


@pytest.mark.parametrize("name", ["dncnn", "dncnn-colour"])
def test_a_file_saved_by_data_parallel_loads(name, tmp_path):
    ours = create(name, scale=1, num_layers=17, width=8).eval()
    torch.save({f"module.{k}": v for k, v in weights_of(ours).items()}, tmp_path / "a.pth")
    model = load_file(tmp_path / "a.pth")
    assert model.network.build_spec == BuildSpec(name, 1, {"num_layers": 17, "width": 8})
    image = torch.rand(1, ours.in_channels, 7, 5, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        assert torch.equal(model.network(image).mean, ours(image).mean)


@pytest.mark.parametrize(
    ("stack", "first", "other", "eps"),
    [
        # KAIR trains Conv + BN + ReLU between the first and the last layer (models/basicblock.py).
        ("model", True, True, 1e-4),
        # The authors' code of 2017 (cszn/DnCNN): only the first convolution has a bias.
        ("dncnn", True, False, 1e-4),
        # SaoYan/DnCNN-PyTorch: no biases, and batch norms as PyTorch makes them.
        ("dncnn", False, False, 1e-5),
    ],
)
def test_batch_norms_are_folded(stack, first, other, eps, tmp_path):
    layers = [nn.Conv2d(1, 8, 3, padding=1, bias=first), nn.ReLU()]
    for _ in range(15):
        layers += [nn.Conv2d(8, 8, 3, padding=1, bias=other), nn.BatchNorm2d(8, eps=eps), nn.ReLU()]
    theirs = nn.Sequential(*layers, nn.Conv2d(8, 1, 3, padding=1, bias=other))
    for layer in layers[2::3]:
        layer.weight.data *= 0.03  # small variances, so that epsilon counts
    image = torch.rand(4, 1, 9, 7, generator=torch.Generator().manual_seed(0))
    theirs.train()(image)  # moves the running means and variances away from 0 and 1
    theirs.eval()
    torch.save({f"{stack}.{k}": v for k, v in weights_of(theirs).items()}, tmp_path / "a.pth")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        network = load_file(tmp_path / "a.pth").network
    assert network.build_spec == BuildSpec("dncnn", 1, {"num_layers": 17, "width": 8})
    with torch.inference_mode():
        torch.testing.assert_close(network(image).mean, image - theirs(image))


@pytest.mark.parametrize(
    ("stack", "first", "other"), [("model", False, False), ("dncnn", True, True)]
)
def test_batch_norms_of_unknown_origin_are_named(stack, first, other, tmp_path):
    theirs = nn.Sequential(
        nn.Conv2d(1, 8, 3, bias=first),
        nn.ReLU(),
        *(15 * (nn.Conv2d(8, 8, 3, bias=other), nn.BatchNorm2d(8), nn.ReLU())),
        nn.Conv2d(8, 1, 3, bias=other),
    )
    torch.save({f"{stack}.{k}": v for k, v in weights_of(theirs).items()}, tmp_path / "a.pth")
    with pytest.warns(UserWarning, match="does not tell what the batch norms of this DnCNN add"):
        load_file(tmp_path / "a.pth")


@pytest.mark.parametrize("num_layers", [2, 3, 4, 16, 18])
def test_another_stack_of_convolutions_is_no_dncnn(num_layers):
    """Networks of any kind are called model; their results would be wrong without a word."""
    state = weights_of(create("dncnn-colour", scale=1, num_layers=num_layers, width=8))
    assert recognise(state) is None
    named = {key.replace("model", "dncnn"): value for key, value in state.items()}
    assert (recognise(named) is None) == (num_layers == 2)


@pytest.mark.parametrize("other", ["ircnn", "ircnn-colour", "ffdnet", "ffdnet-colour", "drunet"])
def test_leaves_other_denoisers_alone(other):
    with torch.device("meta"):
        assert recognise(weights_of(create(other, scale=1))) is None


@pytest.mark.parametrize("other", ["edsr-baseline", "vdsr", "srcnn"])
def test_leaves_networks_that_enlarge_alone(other):
    assert recognise(weights_of(create(other, scale=2))) is None


def test_predicts_the_noise():
    network = create("dncnn", scale=1, num_layers=3, width=8)
    for parameter in network.model[-1].parameters():
        torch.nn.init.zeros_(parameter)
    image = torch.rand(1, 1, 7, 5)
    assert torch.equal(network(image).mean, image)


@pytest.mark.slow
@pytest.mark.parametrize(("data", "published"), [("Set12", 30.43)])
def test_released_weights_give_the_published_psnr(data, published):
    # Zhang et al. 2017, at noise level 25; 0.03 dB for another draw of the noise and for the
    # rounding to 8 bits. BSD68, which takes six times as long, gave 29.227 where 29.23 is printed.
    if not RELEASED.is_file() or not (DATA / "denoising" / data).is_dir():
        pytest.skip(f"MUSIGMA_DATA names no folder with denoising/{data} and ../checkpoints")
    network = load_file(RELEASED).network
    actual = evaluate(network, find_dataset(data), denoising(25, channels=1))
    assert actual.summary["psnr"] == pytest.approx(published, abs=0.03)
