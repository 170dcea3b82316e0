import pytest
import torch

from musigma.model import load_file
from musigma.networks import BuildSpec, card, create, with_sigma
from musigma.networks.denoising.drunet import recognise
from musigma.networks.weights_file import weights_of
from musigma.prediction.predict import GRAY_NOISE_FACTOR, predict, with_noise_map
from musigma.prediction.tiling import TILE_TOLERANCE
from musigma.types import ImageError

TINY = {"widths": (8, 8, 12, 16), "num_blocks": 1}


@pytest.mark.parametrize("name", ["drunet", "drunet-grey"])
def test_parameters_are_the_published_ones(name):
    # Published as 32.64M; the two differ in 9 x 64 weights for each channel in or out.
    assert card(name, scale=1).params == {"drunet": 32_640_960, "drunet-grey": 32_638_656}[name]


def test_macs_by_hand():
    # Per input pixel: head, tail, then at each resolution eight blocks of two convolutions (the
    # coarsest has four), and the halving and doubling between resolutions.
    widths = (64, 128, 256, 512)
    per_pixel = 9 * 64 * (4 + 3)
    for level, width in enumerate(widths):
        num_blocks = 4 if level == 3 else 8
        per_pixel += num_blocks * 2 * 9 * width**2 / 4**level
    per_pixel += sum(2 * 4 * widths[n] * widths[n + 1] / 4 ** (n + 1) for n in range(3))
    assert card("drunet", scale=1).macs_g == pytest.approx(per_pixel * 720 * 1280 / 1e9)


def test_small_form_costs_a_tenth_or_so():
    small, large = card("drunet-small", scale=1), card("drunet", scale=1)
    assert 2e6 < small.params < 4e6
    assert 7 < large.macs_g / small.macs_g < 12


def test_the_blind_form_is_the_small_one_without_the_noise_level():
    blind, small = (create(name, scale=1) for name in ("drunet-small-blind", "drunet-small"))
    assert (blind.in_channels, blind.out_channels) == (3, 3)
    assert not blind.takes_noise_level
    assert not create("drunet", scale=1, noise_level=False, **TINY).takes_noise_level
    differing = {k for k, v in weights_of(small).items() if v.shape != weights_of(blind)[k].shape}
    assert differing == {"m_head.weight"}


def test_a_state_dict_of_the_blind_form_is_recognised(tmp_path):
    ours = create("drunet-small-blind", scale=1, **TINY).eval()
    torch.save(weights_of(ours), tmp_path / "a.pth")
    network = load_file(tmp_path / "a.pth").network
    image = torch.rand(1, 3, 7, 5, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        assert torch.equal(network(image).mean, ours(image).mean)


@pytest.mark.parametrize("name", ["drunet", "drunet-grey"])
def test_official_names(name):
    # KAIR, models/network_unet.py, where a sequence of one layer is the layer itself.
    channels = 3 if name == "drunet" else 1
    with torch.device("meta"):
        state = weights_of(create(name, scale=1))
    shapes = {key: tuple(value.shape) for key, value in state.items()}
    assert len(shapes) == 64
    assert shapes["m_head.weight"] == (64, channels + 1, 3, 3)
    assert shapes["m_down1.0.res.0.weight"] == (64, 64, 3, 3)
    assert shapes["m_down1.4.weight"] == (128, 64, 2, 2)
    assert shapes["m_down3.3.res.2.weight"] == (256, 256, 3, 3)
    assert shapes["m_body.3.res.2.weight"] == (512, 512, 3, 3)
    assert shapes["m_up3.0.weight"] == (512, 256, 2, 2)
    assert shapes["m_up1.4.res.0.weight"] == (64, 64, 3, 3)
    assert shapes["m_tail.weight"] == (channels, 64, 3, 3)


@pytest.mark.parametrize("name", ["drunet", "drunet-grey"])
def test_a_file_saved_by_data_parallel_loads(name, tmp_path):
    ours = create(name, scale=1, **TINY).eval()
    torch.save({f"module.{k}": v for k, v in weights_of(ours).items()}, tmp_path / "a.pth")
    model = load_file(tmp_path / "a.pth")
    assert model.network.build_spec == BuildSpec(name, 1, TINY)
    image = torch.rand(1, ours.in_channels, 7, 5, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        assert torch.equal(model.network(image).mean, ours(image).mean)


def test_refuses_other_u_nets_of_the_release():
    state = dict(weights_of(create("drunet", scale=1, **TINY)))
    assert recognise({**state, "m_head.bias": torch.zeros(8)}) is None
    assert recognise({**state, "m_head.weight": torch.zeros(8, 2, 3, 3)}) is None
    assert recognise(weights_of(create("dncnn", scale=1, num_layers=3))) is None


def test_scales_with_its_input():
    # Without biases every layer is positively homogeneous (Mohan et al., ICLR 2020).
    network = create("drunet", scale=1, **TINY).double()
    image = with_noise_map(torch.rand(1, 3, 13, 11, dtype=torch.float64), 25)
    torch.testing.assert_close(network(image / 2).mean, network(image).mean / 2)


def test_padding_repeats_the_last_row_and_column():
    network = create("drunet-grey", scale=1, **TINY).eval()
    image = with_noise_map(torch.rand(1, 1, 13, 11), 25)
    rows, columns = torch.arange(16).clamp(max=12), torch.arange(16).clamp(max=10)
    padded = image[:, :, rows][..., columns]
    with torch.inference_mode():
        torch.testing.assert_close(network(image).mean, network(padded).mean[..., :13, :11])


def test_tiles_of_an_odd_image_give_the_whole():
    torch.manual_seed(0)
    network = with_sigma(create("drunet-grey", scale=1, **TINY), width=8, depth=1).eval()
    image = torch.rand(1, 1, 157, 11)
    whole, tiled = (predict(network, image, noise_std=25, tile=tile) for tile in (160, 30))
    torch.testing.assert_close(tiled.mean, whole.mean)
    torch.testing.assert_close(tiled.sigma, whole.sigma)


def test_a_gray_image_goes_through_as_three_equal_channels():
    network = create("drunet", scale=1, **TINY).eval()
    image = torch.rand(1, 1, 13, 11)
    with torch.inference_mode():
        level = 25 * GRAY_NOISE_FACTOR
        color = network(with_noise_map(image.expand(1, 3, 13, 11), level)).mean
    gray = predict(network, image, noise_std=25).mean
    torch.testing.assert_close(gray, color.mean(1, keepdim=True))


def test_equal_channels_are_a_gray_image_in_three_copies():
    network = with_sigma(create("drunet", scale=1, **TINY), width=8, depth=1).eval()
    image = torch.rand(1, 1, 300, 9)
    gray = predict(network, image, noise_std=25)
    color = predict(network, image.expand(1, 3, 300, 9), noise_std=25)
    torch.testing.assert_close(color.mean, gray.mean.expand(1, 3, 300, 9))
    torch.testing.assert_close(color.sigma, gray.sigma.expand(1, 3, 300, 9))
    almost = image.repeat(1, 3, 1, 1)
    almost[0, 2, 299, 8] += 0.1  # one value of the last row makes it a picture in colors
    told = predict(network, almost, noise_std=25).mean
    assert (told - color.mean)[..., :200, :].abs().max() > 1e-6


def test_wrong_channels_are_explained():
    color, gray = (create(name, scale=1, **TINY).eval() for name in ("drunet", "drunet-grey"))
    with pytest.raises(ImageError, match="takes 3 channels and the image has 2"):
        predict(color, torch.rand(1, 2, 13, 11), noise_std=25)
    with pytest.raises(ImageError, match="use a network for color, such as drunet"):
        predict(gray, torch.rand(1, 3, 13, 11), noise_std=25)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(157, 301), (199, 163), (143, 259)], ids=str)
def test_tiles_of_the_full_width_are_exact(size):
    """Within the promised rounding; `make test-everywhere` says where bits are equal."""
    torch.manual_seed(0)
    network = with_sigma(create("drunet-small", scale=1)).eval()
    image = torch.rand(1, 3, *size)
    whole, tiled = (predict(network, image, noise_std=25, tile=tile) for tile in (1000, 150))
    for theirs, ours in zip(whole, tiled, strict=True):
        assert (ours - theirs).abs().max() <= TILE_TOLERANCE * theirs.abs().max()


@pytest.mark.parametrize("size", [(37, 301), (29, 259)], ids=str)
def test_tiles_too_small_for_that_differ_by_rounding_alone(size):
    torch.manual_seed(0)
    network = create("drunet-small", scale=1).eval()
    image = torch.rand(1, 3, *size)
    whole = predict(network, image, noise_std=25, tile=1000).mean
    tiled = predict(network, image, noise_std=25, tile=64, memory=2**20).mean
    # 3.6e-7 was measured; one level of an 8-bit file is 3.9e-3.
    assert (tiled - whole).abs().max() < 3e-6
