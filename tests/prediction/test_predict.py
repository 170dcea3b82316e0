"""`predict` gives what the whole network would give, for every picture, or says why it cannot."""

import pytest
import torch

from helpers.networks import build, image_and_level, image_for
from musigma.datasets.demo_photo import portrait
from musigma.model import load
from musigma.networks import Network, NetworkInfo, create, entries, with_sigma
from musigma.prediction import predict as predictor
from musigma.prediction.engines import TorchEngine
from musigma.prediction.predict import predict, predict_strips, with_noise_map
from musigma.prediction.stitching import collect_strips
from musigma.prediction.tiling import TILE_TOLERANCE, bytes_per_pixel
from musigma.types import ConfigError, ImageError, Prediction

SIZES = [(37, 31), (19, 43), (7, 61)]
TILES = [5, 16, 29]


@pytest.fixture
def small_tiles(monkeypatch):
    """Let tiles read their border and no more, so that small pictures put it to the test."""
    monkeypatch.setattr(predictor, "SMALL_CONVOLUTION", 0)


def exact_network(scale):
    """An EDSR with sigma in which float32 has no rounding: few bits in, small whole weights."""
    network = with_sigma(
        create("edsr-baseline", scale=scale, num_blocks=1, width=4), width=4, depth=2
    )
    generator = torch.Generator().manual_seed(scale)
    for parameter in network.parameters():
        signs = torch.randint(-1, 2, parameter.shape, generator=generator)
        parameter.data = signs.float() if parameter.numel() > 1 else torch.tensor([0.5])
    network.base.shift.mean.zero_()
    return network.eval()


@pytest.mark.parametrize("scale", [2, 3, 4])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.usefixtures("small_tiles")
def test_tiles_give_the_whole_bit_for_bit(scale, size):
    # Small convolutions add in another order than large ones: so here no sum is rounded.
    network = exact_network(scale)
    generator = torch.Generator().manual_seed(0)
    image = torch.randint(0, 9, (1, 3, *size), generator=generator) / 8
    with torch.inference_mode():
        whole = network(image)
        assert torch.equal(whole.mean.double(), network.double()(image.double()).mean)
        network.float()
    for tile in (1000, *TILES):
        found = predict(network, image, tile=tile)
        assert torch.equal(found.mean, whole.mean), tile
        # A sigmoid is rounded, and the last values of a row perhaps by another routine.
        torch.testing.assert_close(found.sigma, whole.sigma, rtol=TILE_TOLERANCE, atol=0)


EXACT = [
    entry.name
    for entry in entries()
    if build(entry.name, entry.scales[-1]).receptive_radius is not None
]


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.usefixtures("small_tiles")
def test_tiles_of_every_network_with_a_radius(name):
    (scale,) = {entry.scales[-1] for entry in entries() if entry.name == name}
    network = build(name, scale, sigma=True)
    image, options = image_and_level(network, 37, 2 * network.receptive_radius + 23)
    whole, tiled = (predict(network, image, tile=tile, **options) for tile in (10_000, 19))
    for ours, theirs in zip(tiled, whole, strict=True):
        tolerance = TILE_TOLERANCE * max(1.0, theirs.abs().max().item())
        torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance)


def test_a_gray_picture_is_denoised_by_a_color_network():
    clean = portrait()[:, :, 100:196, 100:196].mean(1, keepdim=True)
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    mean, _ = load("drunet-small").predict(clean + noise * 25 / 255, noise_std=25)
    # Told 25, it took noise that is the same in all colors for a part of the picture: 23.3 dB.
    assert (mean - clean).square().mean() < 10**-2.7


def test_a_gray_picture_goes_through_a_color_network():
    network = build("edsr-baseline", 2, sigma=True)
    gray = torch.rand(1, 1, 9, 7, generator=torch.Generator().manual_seed(0))
    found, color = predict(network, gray), predict(network, gray.expand(1, 3, 9, 7))
    assert found.mean.shape == found.sigma.shape == (1, 1, 18, 14)
    expected = [part.mean(1, keepdim=True) for part in color]
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


def test_progress_counts_the_tiles():
    seen = []
    predict(
        create("bicubic", scale=2),
        torch.zeros(1, 3, 10, 15),
        tile=5,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(number, 6) for number in range(1, 7)]


def test_results_are_plain_tensors_that_may_be_changed():
    for values in predict(build("edsr-baseline", 2, sigma=True), torch.zeros(1, 3, 5, 4)):
        assert not values.requires_grad
        assert not values.is_inference()
        values.clamp_(0, 1)


@pytest.mark.parametrize(
    ("shape", "line"),
    [
        ((5, 4), r"got a tensor of shape \(5, 4\)"),
        ((1, 3, 0, 4), r"is empty: its shape is \(1, 3, 0, 4\)"),
        ((1, 4, 5, 4), "takes 3 channels and the image has 4"),
    ],
)
def test_images_that_do_not_fit_the_network_are_refused(shape, line):
    with pytest.raises(ImageError, match=line):
        predict(create("bicubic", scale=2), torch.zeros(shape))


class Strange(Network):
    """Returns its input, and sigma where there is one, with one value changed."""

    radius = 0

    def __init__(self, mean=0.0, sigma=None):
        super().__init__()
        self.info = NetworkInfo(
            scale=1,
            task="restoration",
            feature_channels=3,
            feature_scale=1,
            feature_receptive_radius=self.radius,
            receptive_radius=self.radius,
        )
        self.values = mean, sigma

    def features(self, degraded):
        return degraded

    def reconstruct(self, features, degraded):
        return features

    def forward(self, degraded):
        mean, sigma = self.values
        bar = None if sigma is None else torch.full_like(degraded, sigma)
        return Prediction(degraded + mean, bar)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_values_that_are_not_finite_are_refused(bad):
    image = torch.zeros(1, 3, 5, 4)
    for network in (Strange(mean=bad), Strange(sigma=bad)):
        with pytest.raises(ImageError, match="values that are not finite; check its weights"):
            predict(network, image)
    assert torch.equal(predict(Strange(sigma=0.5), image).mean, image)


def test_too_little_memory_says_how_much_is_needed():
    network = create("edsr-baseline", scale=2)
    with pytest.raises(ConfigError, match=r"1 MiB are too few .* `memory` to at least \d+ MiB"):
        predict(network, torch.zeros(1, 3, 5, 4), memory=2**20)


@pytest.mark.parametrize("tile", [0, -1])
def test_a_tile_without_pixels_is_refused(tile):
    with pytest.raises(ConfigError, match="at least one pixel"):
        predict(create("bicubic", scale=2), torch.zeros(1, 3, 5, 4), tile=tile)


def test_a_tile_that_does_not_fit_the_device_says_what_to_do():
    class Full(Strange):
        def forward(self, degraded):
            raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(
        ConfigError, match=r"a tile of 4 x 5 pixels, .* set `memory` or `tile` to less"
    ):
        predict(Full(), torch.zeros(1, 3, 5, 4))


class Narrow(TorchEngine):
    """Runs out of memory beyond a number of pixels; remembers the shapes it was given."""

    def __init__(self, network, most, *, batches=False):
        super().__init__(network)
        self.most, self.batches, self.read = most, batches, []

    def __call__(self, tiles):
        self.read.append(tuple(tiles.shape))
        if tiles[:, 0].numel() > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().__call__(tiles)


@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.usefixtures("small_tiles")
def test_tiles_that_do_not_fit_the_device_are_halved(batches):
    network, seen = exact_network(2), []
    image = torch.randint(0, 9, (1, 3, 90, 70), generator=torch.Generator().manual_seed(0)) / 8
    whole = predict(network, image)
    engine = Narrow(network, 40 * 40, batches=batches)
    found = predict(network, image, engine=engine, progress=lambda *now: seen.append(now))
    assert torch.equal(found.mean, whole.mean)
    torch.testing.assert_close(found.sigma, whole.sigma, rtol=TILE_TOLERANCE, atol=0)
    assert engine.read[0] == (1, 3, 90, 70)
    assert sum(n * height * width <= 1600 for n, _, height, width in engine.read) > 6
    assert seen == [(1, 1)]
    with pytest.raises(
        ConfigError, match=r"a tile of 70 x 90 pixels, .* set `memory` or `tile` to less"
    ):
        predict(network, image, engine=engine, tile=100)  # as the user said, and no other


@pytest.mark.usefixtures("small_tiles")
def test_equal_tiles_go_together_where_the_engine_gains_by_it():
    network = exact_network(2)
    image = torch.randint(0, 9, (1, 3, 40, 200), generator=torch.Generator().manual_seed(0)) / 8
    border, seen = network.receptive_radius, []
    alone, together = Narrow(network, 10**9), Narrow(network, 10**9, batches=True)
    expected = predict(network, image, engine=alone, tile=40)
    found = predict(network, image, engine=together, tile=40, progress=lambda n, _: seen.append(n))
    assert torch.equal(found.mean, expected.mean)
    torch.testing.assert_close(found.sigma, expected.sigma, rtol=TILE_TOLERANCE, atol=0)
    inner, outer = (40, 40 + 2 * border), (40, 40 + border)
    assert alone.read == [(1, 3, *size) for size in (outer, inner, inner, inner, outer)]
    assert together.read == [(1, 3, *outer), (3, 3, *inner), (1, 3, *outer)]
    assert seen == [1, 2, 3, 4, 5]
    together.read.clear()
    memory = 2 * bytes_per_pixel(network) * inner[0] * inner[1]
    predict(network, image, engine=together, tile=40, memory=memory)
    assert [shape[0] for shape in together.read] == [1, 2, 1, 1]


def test_a_result_that_does_not_fit_the_memory_says_so():
    huge = torch.zeros(1, 3, 1, 1).expand(1, 3, 2**26, 2**26)
    network = create("bicubic", scale=4)
    with pytest.raises(ImageError, match="a result of 268435456 x 268435456 pixels does not fit"):
        predict(network, huge, tile=2**30)


class Watched(Strange):
    """Remembers the sizes it was given."""

    def __init__(self):
        super().__init__()
        self.read = []

    def forward(self, degraded):
        self.read.append(tuple(degraded.shape[-2:]))
        return Prediction(degraded)


@pytest.mark.usefixtures("small_tiles")
def test_a_network_that_sees_everything_reads_a_border():
    """Its tiles are not exact, so that each reads 32 pixels on every side that has them."""

    class Global(Watched):
        radius = None

    network, image = Global().eval(), torch.rand(1, 3, 100, 20)
    # The weights of tiles that overlap add up to 1 but for the last bit.
    torch.testing.assert_close(predict(network, image, tile=25).mean, image, rtol=0, atol=2e-7)
    assert network.read == [(57, 20), (82, 20), (82, 20), (57, 20)]


def test_tiles_stay_within_the_memory():
    network, image = Watched().eval(), torch.rand(1, 3, 100, 90)
    budget = bytes_per_pixel(network) * 20**2
    assert torch.equal(predict(network, image, memory=budget).mean, image)
    assert max(height * width for height, width in network.read) <= 20**2
    network.read.clear()
    predict(network, image, tile=20)  # two gigabytes: as many pixels as keep the arithmetic whole
    assert set(network.read) == {(100, 90)}


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError(),
        RuntimeError("[enforce fail] . DefaultCPUAllocator: can't allocate memory: you tried ..."),
        RuntimeError("Exception from src/core.cpp: std::bad_alloc"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("name", ["imdn", "ffdnet-colour"])
@pytest.mark.usefixtures("small_tiles")
def test_a_tile_that_fills_the_memory_is_cut_and_counted(name, error):
    """On a CPU as on a GPU; a network with a noise map and one that sees the whole image."""
    network = build(name, 2 if name == "imdn" else 1, sigma=True)
    image, options = image_and_level(network, 150, 130)

    class Full(TorchEngine):
        def __call__(self, tiles):
            if tiles[:, 0].numel() > 110 * 110:
                raise error
            return super().__call__(tiles)

    whole = predict_strips(network, image, **options)
    expected = collect_strips(whole, whole.shape)
    assert whole.num_tiles == 1
    cut = predict_strips(network, image, engine=Full(network), **options)
    found = collect_strips(cut, cut.shape)
    assert cut.num_tiles > 1
    exact = network.receptive_radius is not None
    for ours, theirs in zip(found, expected, strict=True):
        tolerance = TILE_TOLERANCE if exact else 0.05
        torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance)


def test_other_errors_of_an_engine_are_not_taken_for_lack_of_memory():
    class Broken(TorchEngine):
        def __call__(self, tiles):
            raise RuntimeError("expected scalar type Float")

    network = create("bicubic", scale=2)
    with pytest.raises(ConfigError, match=r"cannot be run \(RuntimeError: expected scalar type"):
        predict(network, torch.zeros(1, 3, 5, 4), engine=Broken(network))


def test_a_network_in_training_mode_predicts_as_in_evaluation_mode():
    """SRResNet has batch norms, which give another image in training mode."""
    network, image = build("srresnet", 4), torch.rand(1, 3, 9, 8)
    expected = predict(network, image).mean
    before = {name: value.clone() for name, value in network.state_dict().items()}
    network.train()
    assert not torch.allclose(network(image).mean, expected, atol=1e-3)
    network.load_state_dict(before)
    torch.testing.assert_close(predict(network, image).mean, expected)
    assert all(module.training for module in network.modules())
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.float16, torch.float64])
def test_types_of_the_image_are_converted(dtype):
    network = build("edsr-baseline", 2, sigma=True)
    levels = torch.randint(0, 256, (1, 3, 9, 7), generator=torch.Generator().manual_seed(0))
    image = levels.to(dtype)
    if dtype is torch.uint16:
        image = (levels * 257).to(dtype)
    elif dtype.is_floating_point:
        image = (levels / 255).to(dtype)
    expected = predict(network, levels / 255)
    for ours, theirs in zip(predict(network, image), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-3)


def test_images_that_are_no_light_are_refused():
    network = create("bicubic", scale=2)
    with pytest.raises(ImageError, match="its values reach 255; divide it by 255"):
        predict(network, torch.full((1, 3, 5, 4), 255.0))
    with pytest.raises(ImageError, match="the image holds values that are not finite"):
        predict(network, torch.full((1, 3, 5, 4), torch.nan))


def test_a_batch_is_its_images_one_by_one():
    network, seen = build("edsr-baseline", 2, sigma=True), []
    batch = image_for(network, 9, 7, num_images=3)
    found = predict(network, batch, progress=lambda *now: seen.append(now))
    alone = [predict(network, image) for image in batch]
    assert torch.equal(found.mean, torch.cat([one.mean for one in alone]))
    assert torch.equal(found.sigma, torch.cat([one.sigma for one in alone]))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_the_noise_level_is_for_networks_that_take_it():
    image = torch.rand(1, 3, 9, 8)
    with pytest.raises(ConfigError, match="takes no noise level; leave `noise_std` out"):
        predict(create("bicubic", scale=2), image, noise_std=25)
    network = build("drunet-small", 1)
    with pytest.raises(ConfigError, match="give `noise_std` in 8-bit levels"):
        predict(network, image)
    for bad in (-1.0, float("nan"), float("inf"), "auto"):
        with pytest.raises(ConfigError, match="`noise_std` must be zero or a positive number"):
            predict(network, image, noise_std=bad)


def test_what_is_no_network_is_refused():
    with pytest.raises(ConfigError, match="predict takes a network, got Identity"):
        predict(torch.nn.Identity(), torch.rand(1, 3, 9, 8))


def test_noise_map_is_a_further_channel_on_the_scale_of_the_image():
    image = torch.rand(1, 3, 5, 4)
    mapped = with_noise_map(image, 51)
    assert torch.equal(mapped[:, :3], image)
    assert torch.equal(mapped[:, 3:], torch.full((1, 1, 5, 4), 0.2))
