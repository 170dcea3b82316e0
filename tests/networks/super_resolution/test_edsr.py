"""EDSR against its official release: names, sizes, arithmetic."""

import pytest
import torch
from torch.nn import functional

from musigma.networks import card, create, measure_receptive_radius, with_sigma
from musigma.networks.super_resolution.edsr import adapt, recognise
from musigma.networks.weights_file import weights_of

SCALES = [2, 3, 4]


@pytest.mark.parametrize(
    ("scale", "params", "macs_g"),
    # Lim et al. 2017 print 1.37M, 1.55M, 1.52M; MACs as in the tables of light networks.
    [(2, 1_369_859, 316.2), (3, 1_554_499, 160.1), (4, 1_517_571, 114.2)],
)
def test_cost_of_the_baseline(scale, params, macs_g):
    costs = card("edsr-baseline", scale=scale)
    assert costs.params == params
    assert round(costs.macs_g, 1) == macs_g


def test_cost_of_the_wide_form():
    # Lim et al. 2017, table 1: 43M parameters, the upsampler of x4 included.
    assert round(card("edsr", scale=4).params / 1e6) == 43


@pytest.mark.parametrize("scale", SCALES)
def test_names_and_shapes_are_the_official_ones(scale):
    # The keys of the released edsr_baseline_x2, x3 and x4 files, sub_mean and add_mean left out.
    with torch.device("meta"):
        state = weights_of(create("edsr-baseline", scale=scale))
    shapes = {key: tuple(value.shape) for key, value in state.items()}
    steps = {2: {"tail.0.0": 4}, 3: {"tail.0.0": 9}, 4: {"tail.0.0": 4, "tail.0.2": 4}}[scale]
    layers = {"head.0": (64, 3), "body.16": (64, 64), "tail.1": (3, 64)}
    layers |= {f"body.{block}.body.{layer}": (64, 64) for block in range(16) for layer in (0, 2)}
    layers |= {name: (64 * factor, 64) for name, factor in steps.items()}
    expected = {f"{name}.weight": (*size, 3, 3) for name, size in layers.items()}
    expected |= {f"{name}.bias": size[:1] for name, size in layers.items()}
    assert shapes == expected


def official_forward(state, degraded, scale, num_blocks):
    """The released network, written down from its description: images in 0..255."""

    def conv(name, x):
        return functional.conv2d(x, state[f"{name}.weight"], state[f"{name}.bias"], padding=1)

    mean = 255 * torch.tensor([0.4488, 0.4371, 0.4040]).view(1, 3, 1, 1)
    first = x = conv("head.0", 255 * degraded - mean)
    for block in range(num_blocks):
        x = x + conv(f"body.{block}.body.2", conv(f"body.{block}.body.0", x).relu())
    x = first + conv(f"body.{num_blocks}", x)
    for layer, step in {1: [], 2: [(0, 2)], 3: [(0, 3)], 4: [(0, 2), (2, 2)]}[scale]:
        x = functional.pixel_shuffle(conv(f"tail.0.{layer}", x), step)
    return (conv("tail.1", x) + mean) / 255


@pytest.mark.parametrize("scale", [1, *SCALES])
def test_arithmetic_is_the_official_one(scale):
    torch.manual_seed(0)
    network = create("edsr-baseline", scale=scale, num_blocks=2, width=8, value_range=255.0)
    degraded = torch.rand(2, 3, 13, 11)
    with torch.inference_mode():
        expected = official_forward(weights_of(network), degraded, scale, 2)
        torch.testing.assert_close(network(degraded).mean, expected, rtol=0, atol=1e-5)


def test_residuals_of_the_wide_form_are_scaled():
    wide = create("edsr", scale=2, num_blocks=1, width=8)
    plain = create("edsr", scale=2, num_blocks=1, width=8, res_scale=1.0)
    plain.load_state_dict(weights_of(wide))
    features = torch.rand(1, 8, 5, 4)
    difference = plain.body[0](features) - features
    torch.testing.assert_close(wide.body[0](features) - features, 0.1 * difference)


@pytest.mark.parametrize("scale", [1, *SCALES])
def test_recognised_by_its_keys(scale):
    state = weights_of(create("edsr-baseline", scale=scale, num_blocks=3, width=8))
    settings = {"num_blocks": 3, "width": 8, "value_range": 255.0}
    assert recognise(state) == ("edsr-baseline", scale, settings)


@pytest.mark.parametrize("scale", SCALES)
def test_the_wide_form_is_recognised_by_its_width(scale):
    wide = weights_of(create("edsr", scale=scale, num_blocks=1, width=256))
    assert recognise(wide)[:2] == ("edsr", scale)


def test_without_upsampling_the_last_convolution_makes_the_image():
    network = create("edsr-baseline", scale=1, num_blocks=2, width=4).double()
    assert network(torch.rand(1, 3, 5, 4).double()).mean.shape == (1, 3, 5, 4)
    assert measure_receptive_radius(network) == network.receptive_radius == 7


@pytest.mark.parametrize("other", ["rcan", "carn", "imdn", "vdsr", "srresnet", "san", "han"])
def test_leaves_other_networks_alone(other):
    with torch.device("meta"):
        assert recognise(weights_of(create(other, scale=2))) is None


def test_adapting_official_names_changes_nothing():
    state = weights_of(create("edsr-baseline", scale=4, num_blocks=2, width=8))
    assert adapt(state).keys() == state.keys()


@pytest.mark.parametrize("scale", SCALES)
def test_radius_is_what_the_gradient_shows(scale):
    base = create("edsr-baseline", scale=scale, num_blocks=2, width=4).double()
    assert measure_receptive_radius(base) == base.receptive_radius == 8
    assert measure_receptive_radius(base, of="features") == base.feature_receptive_radius == 6


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("depth", "radius"), [(4, 11), (2, 9), (1, 8)])
def test_radius_with_sigma_is_what_the_gradient_shows(scale, depth, radius):
    base = create("edsr-baseline", scale=scale, num_blocks=2, width=4)
    network = with_sigma(base, width=4, depth=depth).double()
    measured = [measure_receptive_radius(network, of=part) for part in ("mean", "sigma")]
    assert measured == [8, 7 + depth]  # the mean sees no more than before
    assert max(measured) == network.receptive_radius == radius
