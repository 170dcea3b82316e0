"""The eight views are turned back exactly; mean and sigma are plain averages."""

import torch

from helpers.networks import build
from musigma.prediction.engines import TorchEngine
from musigma.prediction.predict import predict
from musigma.prediction.self_ensemble import SelfEnsemble
from musigma.types import Prediction


class Pointwise:
    """An engine that multiplies three colors by a fourth channel, value by value."""

    name, device, batches = "pointwise", torch.device("cpu"), False

    def __call__(self, tiles):
        return Prediction(tiles[:, :3] * tiles[:, 3:])


class Ramp:
    """Adds to each value the number of its column, which no other view does."""

    name, device, batches = "ramp", torch.device("cpu"), False

    def __call__(self, tiles):
        ramp = torch.arange(tiles.shape[-1]).float().expand_as(tiles)
        return Prediction(tiles + ramp, 2 * ramp)


def test_an_engine_that_does_not_care_for_direction_is_not_changed():
    """With a noise level that differs from pixel to pixel: it turns with the image."""
    # Multiples of 1/16: their products and the sum of eight of them are exact.
    tiles = torch.randint(0, 17, (2, 4, 7, 5), generator=torch.Generator().manual_seed(0)) / 16
    ensemble = SelfEnsemble(Pointwise())
    found = ensemble(tiles)
    assert torch.equal(found.mean, tiles[:, :3] * tiles[:, 3:])
    assert found.sigma is None
    assert ensemble.name == "pointwise x8"


def test_mean_and_sigma_are_averages_over_the_views():
    """By hand: columns 0..W-1 and, transposed, rows 0..H-1, each once from either side."""
    tiles = torch.zeros(1, 3, 7, 5)
    found = SelfEnsemble(Ramp())(tiles)
    assert torch.equal(found.mean, torch.full_like(tiles, ((7 - 1) / 2 + (5 - 1) / 2) / 2))
    assert torch.equal(found.sigma, 2 * found.mean)


def test_a_network_treats_all_views_alike_then():
    """The ensemble of a flipped image is the flipped ensemble, up to the order of the sum."""
    network = build("edsr-baseline", 2, sigma=True)
    engine = SelfEnsemble(TorchEngine(network))
    image = torch.rand(1, 3, 13, 11, generator=torch.Generator().manual_seed(1))
    single, found, flipped = network(image), engine(image), engine(image.flip(-1))
    for one, ours, theirs in zip(single, found, flipped, strict=True):
        torch.testing.assert_close(ours, theirs.flip(-1), rtol=0, atol=1e-6)
        assert (one - ours).abs().max() > 1e-4


def test_tiles_give_the_whole():
    network = build("edsr-baseline", 2, sigma=True)
    engine = SelfEnsemble(TorchEngine(network))
    image = torch.rand(1, 3, 37, 211, generator=torch.Generator().manual_seed(2))
    # With so little memory tiles read their border of 6 pixels and no more.
    tiled, whole = predict(network, image, engine=engine, memory=2**21), engine(image)
    for ours, theirs in zip(tiled, whole, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
