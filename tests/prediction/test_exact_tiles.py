"""Tiles give what the whole image gives, as near as `musigma.prediction.tiling` promises."""

import inspect
from dataclasses import replace

import pytest
import torch

from helpers.networks import REDUCED, build, image_and_level
from musigma.networks import create, entries, with_sigma
from musigma.networks.tile_exact_layers import SubPixelDeconv2d, WideConv2d
from musigma.prediction.predict import predict
from musigma.prediction.tiling import GLOBAL_OVERLAP, TILE_TOLERANCE

# Tiles read more than `tiling.SMALL_CONVOLUTION` pixels, so that these are cut into 2 to 6 of them.
SIZES = [(151, 157), (37, 613), (223, 101)]
TILES = [70, 90, 111]

# Narrow, so that all of this takes a minute. Groups of CARN-M keep 8 channels, since fewer are
# computed by another routine than the 16 of the real one.
NARROW = {"width": 16}
SETTINGS = {
    "carn": {"width": 8},
    "carn-multi": {"width": 8},
    "carn-m": {"width": 16, "num_groups": 2},
    "swinir-light": {"num_groups": 1, "num_blocks": 2, "width": 20, "num_heads": 2},
}


def small(name, scale):
    torch.manual_seed(0)
    settings = dict(REDUCED.get(name, {}))
    with torch.device("meta"):
        known = inspect.signature(type(create(name, scale=scale, **settings))).parameters
    settings |= {key: value for key, value in NARROW.items() if key in known}
    settings |= SETTINGS.get(name, {})
    return with_sigma(create(name, scale=scale, **settings), width=8, depth=1).eval()


def differences(network, sizes=SIZES):
    """The largest differences of mean and sigma, as shares of their largest values."""
    largest = [0.0, 0.0]
    for size in sizes:
        image, options = image_and_level(network, *size)
        whole = predict(network, image, tile=10_000, **options)
        for tile in TILES:
            tiled = predict(network, image, tile=tile, **options)
            for part, (ours, theirs) in enumerate(zip(tiled, whole, strict=True)):
                share = float((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-30))
                largest[part] = max(largest[part], share)
    return largest


def names(*, is_local):
    with torch.device("meta"):
        return [
            pytest.param(entry.name, entry.scales[0], id=entry.name)
            for entry in entries()
            if (create(entry.name, scale=entry.scales[0]).receptive_radius is not None) is is_local
        ]


@pytest.mark.parametrize(("name", "scale"), names(is_local=True))
def test_tiles_of_every_network_with_a_radius_are_near_the_whole(name, scale):
    # RPCNN compares 961 shifts of each pixel: one size takes as long as three of all others.
    sizes = SIZES[:1] if name.startswith("rpcnn") else SIZES
    assert max(differences(small(name, scale), sizes)) <= TILE_TOLERANCE


def test_tiles_of_a_network_that_sees_everything_are_near():
    mean, sigma = differences(build("imdn", 2, sigma=True), SIZES[:1])
    assert TILE_TOLERANCE < mean < 0.05  # with random weights, at the worst pixel
    assert 0 < sigma < 0.05


def test_tiles_of_a_network_that_sees_everything_blend_into_each_other():
    """Where tiles meet, the step from one level to the next becomes a ramp of 32 pixels."""

    class TileMean(type(create("bicubic", scale=2))):
        def __init__(self, *, scale):
            super().__init__(scale=scale)
            radii = {"receptive_radius": None, "feature_receptive_radius": None}
            self.info = replace(self.info, **radii)

        def reconstruct(self, features, degraded):
            level = degraded.mean((2, 3), keepdim=True).expand_as(degraded)
            return super().reconstruct(level, degraded)

    image = torch.zeros(1, 3, 30, 1000)
    image[..., 500:] = 1
    found = predict(TileMean(scale=2).eval(), image, tile=500).mean
    row = found[0, 0, 0]
    # Each tile reads 500 + 32 columns.
    left, right = 32 / 532, 500 / 532
    assert torch.allclose(row[: 2 * (500 - GLOBAL_OVERLAP)], torch.tensor(left), atol=1e-6)
    assert torch.allclose(row[2 * (500 + GLOBAL_OVERLAP) :], torch.tensor(right), atol=1e-6)
    ramp = row[2 * (500 - GLOBAL_OVERLAP) : 2 * (500 + GLOBAL_OVERLAP)]
    step = (right - left) / len(ramp)
    expected = left + step * (torch.arange(len(ramp)) + 0.5)
    assert torch.allclose(ramp, expected, atol=1e-6)
    assert torch.allclose(found, row.expand_as(found), atol=1e-6)


@pytest.mark.parametrize("dilation", [1, 2])
def test_a_wide_convolution_is_the_padded_one(dilation):
    torch.manual_seed(0)
    plain = torch.nn.Conv2d(3, 8, kernel_size=9, padding=4 * dilation, dilation=dilation)
    ours = WideConv2d(3, 8, kernel_size=9, dilation=dilation)
    ours.load_state_dict(plain.state_dict())
    image = torch.rand(1, 3, 37, 31)
    torch.testing.assert_close(ours(image), plain(image), rtol=0, atol=2e-6)


@pytest.mark.parametrize(("size", "scale"), [(9, 2), (9, 3), (9, 4), (17, 2), (5, 4), (2, 2)])
def test_a_sub_pixel_deconvolution_is_the_transposed_convolution(size, scale):
    torch.manual_seed(0)
    padding = (size - 1) // 2 if size > scale else 0
    options = {
        "stride": scale,
        "padding": padding,
        "output_padding": scale + 2 * padding - size,
        "bias": scale != 3,
    }
    plain = torch.nn.ConvTranspose2d(6, 3, size, **options)
    ours = SubPixelDeconv2d(6, 3, size, **options)
    ours.load_state_dict(plain.state_dict())
    image = torch.rand(1, 6, 37, 31)
    torch.testing.assert_close(ours(image), plain(image), rtol=0, atol=2e-6)
