"""Calibrating on a mixture of degradations: the map of sigma, the factors, and their use."""

import numpy as np
import pytest
import torch
from PIL import Image

from musigma.datasets.catalog import find_dataset
from musigma.evaluation import calibrate, evaluate_model, protocol_for
from musigma.evaluation.calibrate import collect_held_out, split_off_map_images
from musigma.functional.scores import interval_coverage
from musigma.images.image_io import read_image
from musigma.images.listing import list_images
from musigma.model import load, save
from musigma.networks import create, with_sigma
from musigma.restoration.batch import restore_files
from musigma.restoration.error_maps import read_error_map
from musigma.restoration.options import Options
from musigma.types import WeightsError
from musigma.uncertainty.fitting import HeldOut, fit_conformal_risk_control, fit_isotonic

SIZE = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Fifty small waves with noise of various strength."""
    folder = tmp_path_factory.mktemp("held-out") / "waves"
    folder.mkdir()
    generator = np.random.default_rng(0)
    y, x = np.mgrid[:SIZE, :SIZE]
    for number in range(50):
        wave = 128 + 80 * np.sin(x / (3 + number % 7) + y / 7)[..., None]
        noisy = wave + generator.normal(0, 2 + number % 9, (SIZE, SIZE, 3))
        picture = Image.fromarray(noisy.clip(0, 255).astype(np.uint8))
        picture.save(folder / f"{number:02}.png")
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    torch.manual_seed(0)
    network = with_sigma(create("edsr-baseline", scale=2, num_blocks=1, width=8), width=8, depth=1)
    path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    save(path, network)
    return load(path)


@pytest.fixture(scope="module")
def mixture(model):
    return [protocol_for(model.network, degradation=text) for text in ("bicubic", "noise(10)")]


@pytest.fixture(scope="module")
def calibrated(model, folder, mixture, tmp_path_factory):
    """The model after calibration on the mixture, from its file."""
    calibration = calibrate(model, find_dataset(folder), mixture)
    path = tmp_path_factory.mktemp("calibrated") / "c.safetensors"
    save(path, model, calibration=calibration.to_dict())
    return load(path)


def test_a_mixture_fits_the_map_and_the_factors_to_different_images(
    model, folder, mixture, calibrated
):
    dataset, calibration = find_dataset(folder), calibrated.calibration
    of_map, of_factors = split_off_map_images(dataset)
    assert [item.name for item in of_map.items] == [f"{n:02}" for n in range(0, 50, 5)]
    assert {*of_map.items} | {*of_factors.items} == {*dataset.items}
    assert calibration.num_images == len(of_factors.items) == 40
    base = fit_isotonic(collect_held_out(model, of_map, mixture), coverage=0.9)
    assert calibration.knots == base.knots
    assert len(base.knots) > 1
    ratios = np.array(calibration.values) / np.array(base.values)
    np.testing.assert_allclose(ratios, ratios[0])
    assert calibration.coverages == (0.5, 0.8, 0.9, 0.95)


def test_without_a_mixture_or_with_few_images_all_images_fit_the_factors(model, folder, mixture):
    dataset = find_dataset(folder)
    single = calibrate(model, dataset, mixture[0])
    assert (len(single.knots), single.num_images) == (1, 50)
    plain = calibrate(model, dataset, mixture, sigma_map=False)
    assert (len(plain.knots), plain.num_images) == (1, 50)
    few = calibrate(model, type(dataset)("few", dataset.items[:49]), mixture)
    assert (len(few.knots), few.num_images) == (1, 49)


def test_the_record_has_the_coverage_at_every_level(calibrated, folder, mixture):
    result = evaluate_model(calibrated, find_dataset(folder), mixture[0]).result
    levels = [result[name] for name in ("coverage_50", "coverage_80", "coverage", "coverage_95")]
    assert levels == sorted(levels)
    assert 0 < levels[0] < levels[-1] <= 1
    assert "coverage_99" not in result


def test_whole_tiled_and_streamed_intervals_agree(calibrated, folder, tmp_path):
    image = read_image(folder / "07.png")[0]
    whole = calibrated.interval(calibrated.predict(image), coverage=0.95)
    tiled = calibrated.interval(calibrated.predict(image, tile=10), coverage=0.95)
    torch.testing.assert_close(tiled, whole, rtol=1e-4, atol=1e-5)
    options = Options(folder=tmp_path / "out", npz=True, tile=10, coverage=0.95)
    for result in restore_files(calibrated, list_images([folder / "07.png"]), options):
        assert not isinstance(result, Exception), result
    half_width = read_error_map(tmp_path / "out" / "07.npz", "half_width").values
    expected = (whole.high - whole.low) / 2
    torch.testing.assert_close(half_width, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"knots": ["NaN"]}, "made of numbers, got 'NaN'"),
        ({"reference": {"limits": 3}}, "the reference of a calibration"),
        ({"reference": {"limits": {"rolloff": [10**400, 0]}, "num_inputs": 1}}, "too large"),
    ],
)
def test_a_calibration_that_makes_no_sense_gives_one_line(
    model, calibrated, tmp_path, changes, message
):
    path = tmp_path / "hostile.safetensors"
    save(path, model, calibration=calibrated.calibration.to_dict() | changes)
    with pytest.raises(WeightsError, match=message) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def images_with_small_sigmas_too_small(generator, num_images):
    """Return mean, target, sigma: the error grows as the root of sigma, so sigma is no error."""
    sigma = 2.0 ** (-9 + 6 * torch.rand(num_images, 1, 32, 32, generator=generator))
    level = torch.exp(0.1 * torch.randn(num_images, 1, 1, 1, generator=generator))
    error = level * 0.2 * sigma.sqrt() * torch.randn(sigma.shape, generator=generator)
    return error, torch.zeros_like(error), sigma


def test_the_map_makes_small_and_large_sigmas_hold_alike():
    generator = torch.Generator().manual_seed(0)
    of_map, plain = HeldOut(), HeldOut()
    of_map.update(*images_with_small_sigmas_too_small(generator, 20))
    mapped = HeldOut(fit_isotonic(of_map, coverage=0.9))
    images = images_with_small_sigmas_too_small(generator, 80)
    for held_out in (mapped, plain):
        held_out.update(*images)
    mean, target, sigma = images_with_small_sigmas_too_small(generator, 80)
    covered = {}
    for name, held_out in (("mapped", mapped), ("plain", plain)):
        calibration = fit_conformal_risk_control(held_out, coverage=0.9)
        inside = (target - mean).abs() <= calibration.half_width(sigma)
        parts = (sigma < 2**-8, sigma > 2**-4)
        covered[name] = [float(inside[part].double().mean()) for part in parts]
        share = interval_coverage(mean, target, calibration.half_width(sigma)).mean()
        assert float(share) == pytest.approx(0.9, abs=0.02)
    assert covered["mapped"] == pytest.approx([0.9, 0.9], abs=0.03)
    assert covered["plain"][0] < 0.75
    assert covered["plain"][1] > 0.97
