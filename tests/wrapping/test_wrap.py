"""Error bars for a network of somebody else: learned, calibrated, stored and found again."""

import pytest
import torch

import musigma
from helpers.foreign import double, write_function, write_onnx, write_pictures
from musigma.datasets.catalog import find_dataset
from musigma.evaluation.baseline_models import calibrated, make_baseline
from musigma.evaluation.evaluate import evaluate
from musigma.evaluation.protocol import super_resolution
from musigma.types import ConfigError, DataError, WeightsError
from musigma.wrapping import WrapSettings, wrap
from musigma.wrapping.answers import choose_patch
from musigma.wrapping.wrap import split_pictures

SMALL = WrapSettings(width=12, depth=2, queries=24, steps=80, batch=4, minutes=5, patch=24)
IMAGE = torch.rand(1, 3, 20, 16, generator=torch.Generator().manual_seed(2))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Pictures with a smooth half and a rough half."""
    return write_pictures(tmp_path_factory.mktemp("data") / "pictures", 30)


@pytest.fixture(scope="module")
def model(pictures):
    """A function with error bars."""
    lines = []
    wrapped = wrap(double, pictures, settings=SMALL, device="cpu", report=lines.append)
    assert lines[0] == "double enlarges by 2"
    assert "learned sigma in 80 updates" in lines
    return wrapped


def test_the_mean_is_that_of_the_network_to_the_bit(model):
    assert torch.equal(model.predict(IMAGE).mean, double(IMAGE))


def test_sigma_is_better_than_a_constant(model, pictures):
    protocol, dataset = super_resolution(2), find_dataset(pictures)
    own = evaluate(model.network, dataset, protocol, calibration=model.calibration)
    constant = make_baseline("constant", [model], protocols=[protocol], held_out=dataset)
    constant = calibrated(constant, dataset, [protocol], coverage=0.9)
    flat = evaluate(constant.network, dataset, protocol, calibration=constant.calibration)
    assert own.summary["pll_calibrated"] > flat.summary["pll_calibrated"] + 0.3
    assert own.summary["coverage"] > 0.85


def test_the_calibration_names_its_pictures_and_inputs(model):
    calibration = model.calibration
    assert calibration.method == "conformal-risk-control"
    assert calibration.num_images == 20  # a quarter of the pictures would be too few
    assert calibration.protocol["degradation"] == "bicubic"
    assert "clean, shrunk by 2 with bicubic" in calibration.promise
    assert calibration.reference is not None
    low, high = model.interval(model.predict(IMAGE))
    assert bool((low < high).all())


def test_stored_error_bars_find_their_network_again(model, tmp_path):
    path = tmp_path / "sigma.safetensors"
    model.save(path)
    loaded = musigma.load(path, network=double)
    assert loaded.calibration == model.calibration
    assert loaded.metadata["wraps"] == {"type": "function", "name": "double", "value_range": 1.0}
    assert loaded.digest == model.digest
    for ours, theirs in zip(loaded.predict(IMAGE), model.predict(IMAGE), strict=True):
        assert torch.equal(ours, theirs)
    same = write_function(tmp_path / "same.py")
    assert musigma.load(path, network=same).name == same


def test_error_bars_are_refused_without_their_network(model, tmp_path):
    path = tmp_path / "sigma.safetensors"
    model.save(path)
    with pytest.raises(WeightsError, match="holds the error bars of another network, 'double'"):
        musigma.load(path)
    with pytest.raises(WeightsError, match="answered a test picture otherwise"):
        musigma.load(path, network=write_function(tmp_path / "other.py", factor=0.9))
    with pytest.raises(WeightsError, match="for a network that enlarges by 2"):
        musigma.load(path, network=lambda image: double(double(image)))
    other = tmp_path / "edsr.safetensors"
    musigma.load("edsr-baseline", scale=2).save(other)
    with pytest.raises(WeightsError, match="was not written by 'musigma wrap'"):
        musigma.load(other, network=double)


def test_a_file_of_other_content_is_refused(pictures, tmp_path):
    pytest.importorskip("onnxruntime")
    network, path = write_onnx(tmp_path / "net.onnx"), tmp_path / "sigma.safetensors"
    quick = WrapSettings(width=4, depth=1, queries=2, steps=2, batch=2, patch=16)
    wrap(network, pictures, settings=quick, device="cpu").save(path)
    assert torch.equal(musigma.load(path, network=network).predict(IMAGE).mean, double(IMAGE))
    write_onnx(network, offset=1e-4)
    with pytest.raises(WeightsError, match="a file of other content"):
        musigma.load(path, network=network)


def test_the_pictures_decide_the_range_of_values(pictures, tmp_path):
    """An offset of 0.05 passes as 0..1 for the test picture; the pictures show that it is 255."""
    pytest.importorskip("onnxruntime")
    network = write_onnx(tmp_path / "net.onnx", offset=0.05)
    quick = WrapSettings(width=4, depth=1, queries=2, steps=2, batch=2, patch=16)
    model = wrap(network, pictures, settings=quick, device="cpu")
    assert model.metadata["wraps"]["value_range"] == 255.0


def test_a_network_that_keeps_the_size_is_wrapped_for_noise(pictures, tmp_path):
    def identity(image):
        return image

    quick = WrapSettings(width=4, depth=1, queries=4, steps=60, batch=2, patch=16)
    with pytest.raises(
        ConfigError, match=r"must be told how its inputs are made: give `noise_std` \(such"
    ):
        wrap(identity, pictures, settings=quick, device="cpu")
    model = wrap(identity, pictures, noise_std=25, settings=quick, device="cpu")
    prediction = model.predict(IMAGE)
    assert torch.equal(prediction.mean, IMAGE)
    # The error of the identity is the noise.
    assert float(model.std(prediction).mean()) == pytest.approx(25 / 255, rel=0.15)
    model.save(tmp_path / "sigma.safetensors")
    assert musigma.load(tmp_path / "sigma.safetensors", network=identity, scale=1).scale == 1


def test_pairs_of_files_are_learned_from(pictures, tmp_path):
    low = tmp_path / "low"
    low.mkdir()
    for path in pictures.iterdir():
        musigma.write_image(low / path.name, musigma.read_image(path)[0][..., ::2, ::2])
    quick = WrapSettings(width=4, depth=1, queries=2, steps=2, batch=2, patch=16)
    model = wrap(double, pictures, low=low, settings=quick, device="cpu")
    assert model.calibration.protocol["degradation"] == "pairs"
    assert model.metadata["training"]["data"]["inputs"] == "pairs"
    with pytest.raises(ConfigError, match="held out of --data"):
        wrap(double, pictures, low=low, held_out=pictures, settings=quick)


def test_the_same_seed_gives_the_same_error_bars(pictures):
    quick = WrapSettings(width=4, depth=1, queries=4, steps=3, batch=2, patch=16)
    digests = {wrap(double, pictures, settings=quick, device="cpu").digest for _ in range(2)}
    assert len(digests) == 1


def test_time_ends_the_work(pictures):
    endless = WrapSettings(
        width=4, depth=1, queries=10**6, steps=10**9, batch=1, patch=16, minutes=1e-3
    )
    assert wrap(double, pictures, settings=endless, device="cpu").calibration is not None


def test_too_few_pictures_are_refused_with_the_number(tmp_path):
    folder = write_pictures(tmp_path / "few", 5)
    with pytest.raises(DataError, match="few has 5 pictures, and it takes at least 28"):
        wrap(double, folder)
    with pytest.raises(
        DataError, match="to calibrate on, has 5 pictures, and it takes at least 20"
    ):
        wrap(double, write_pictures(tmp_path / "more", 8), held_out=folder)


def test_held_out_pictures_are_spread_and_not_learned_from(pictures):
    dataset = find_dataset(pictures)
    learning, calibration = split_pictures(dataset, 9)
    names = [{item.name for item in part.items} for part in (learning, calibration)]
    assert [len(part) for part in names] == [21, 9]
    assert not names[0] & names[1]


def test_small_pictures_make_small_crops_or_are_refused(pictures, tmp_path):
    assert choose_patch(find_dataset(pictures), 2, largest=48) == 32
    tiny = find_dataset(write_pictures(tmp_path / "tiny", 3, side=24))
    with pytest.raises(DataError, match="most pictures of tiny have sides below 32 pixels"):
        choose_patch(tiny, 2, largest=48)


def test_settings_are_checked():
    with pytest.raises(ConfigError, match="minutes must be above zero, got 0"):
        WrapSettings(minutes=0)


def test_a_network_for_special_sizes_is_refused_before_it_learns(tmp_path):
    def only_multiples_of_eight(image):
        height, width = image.shape[-2:]
        assert height % 8 == width % 8 == 0, "sides must be multiples of 8"
        return double(image)

    pictures = write_pictures(tmp_path / "pictures", 30, side=60)
    reports = []
    with pytest.raises(ConfigError, match="sides must be multiples of 8; a network for special"):
        wrap(only_multiples_of_eight, pictures, settings=SMALL, report=reports.append)
    assert len(reports) == 1  # nothing was learned
