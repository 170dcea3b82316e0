"""Error bars from noisy targets: the noise is measured, and taken off."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from musigma.adaptation.noisy_truth import calibrate_on_noisy, measure_on_noisy
from musigma.datasets.catalog import Dataset, find_dataset
from musigma.degradations.pairs import Pair
from musigma.evaluation.protocol import restoration
from musigma.functional.noisy_pairs import MeasuredNoise, fit_noise, measure_difference
from musigma.functional.poisson_gaussian import PoissonGaussian, estimate_poisson_gaussian
from musigma.model import Model
from musigma.networks import Network, NetworkInfo, with_sigma
from musigma.types import DataError

PROTOCOL = restoration(None, scale=1)
NUM = 6


class BoxBlur(Network):
    """The mean of 5 x 5 pixels: the error to a smooth scene is a fifth of the noise."""

    def __init__(self) -> None:
        super().__init__()
        self.info = NetworkInfo(
            scale=1,
            task="denoising",
            feature_channels=3,
            feature_scale=1,
            feature_receptive_radius=2,
            receptive_radius=2,
        )

    def features(self, degraded: Tensor) -> Tensor:
        padded = torch.nn.functional.pad(degraded, (2, 2, 2, 2), mode="replicate")
        return torch.nn.functional.avg_pool2d(padded, 5, stride=1)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        return features


@pytest.fixture(scope="module")
def model() -> Model:
    torch.manual_seed(0)
    return Model(network=with_sigma(BoxBlur(), width=4, depth=1).eval(), name="blur")


def scene(number: int, size: int = 96) -> np.ndarray:
    y, x = np.mgrid[0:size, 0:size]
    waves = [np.sin(x / period + y / (period + 5) + number) for period in (20, 25, 30)]
    return 0.5 + 0.3 * np.stack(waves, axis=2)


def noisy(clean: np.ndarray, std: float, gain: float, seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=clean.shape)
    return clean + noise * np.sqrt(std**2 + gain * clean)


def noise_of(std: float, gain: float) -> MeasuredNoise:
    return MeasuredNoise(PoissonGaussian(gain=255 * gain, std=255 * std, black=0.0))


def as_image(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values).permute(2, 0, 1)[None].float()


def write_pairs(folder: Path, std: float, gain: float) -> Dataset:
    for side in range(2):
        (folder / str(side)).mkdir(parents=True)
        for number in range(NUM):
            values = noisy(scene(number), std, gain, seed=2 * number + side)
            pixels = (255 * values).clip(0, 255).round().astype(np.uint8)
            Image.fromarray(pixels).save(folder / str(side) / f"{number}.png")
    return find_dataset(folder / "0", degraded=folder / "1")


@pytest.mark.parametrize(("std", "gain"), [(0.05, 0.0), (0.02, 0.01), (0.0, 0.02)])
def test_the_noise_of_pairs_is_found(std, gain):
    pairs = [
        Pair(*(as_image(noisy(scene(n), std, gain, seed=2 * n + side)) for side in range(2)))
        for n in range(NUM)
    ]
    found = fit_noise(pairs)
    levels = torch.tensor([0.3, 0.5, 0.7])
    expected = noise_of(std, gain).variance(levels)
    torch.testing.assert_close(found.variance(levels), expected, rtol=0.04, atol=0)


def test_one_picture_and_two_give_the_same_law():
    """Both estimates have one form, in 8-bit levels, so that they can be compared."""
    clean = scene(0, size=256)
    first, second = (as_image(noisy(clean, 0.02, 0.02, seed=side)) for side in range(2))
    of_pair, of_one = fit_noise([Pair(first, second)]).law, estimate_poisson_gaussian(first)
    assert type(of_pair) is type(of_one)
    assert of_pair.gain == pytest.approx(0.02 * 255, rel=0.1)
    assert of_one.gain == pytest.approx(of_pair.gain, rel=0.15)


def test_a_law_survives_its_record():
    noise = MeasuredNoise(PoissonGaussian(5.0, 3.0, 0.0), (0.1, 0.9), (0.01, 0.02))
    assert MeasuredNoise.from_json(noise.as_json()) == noise


def test_equal_pictures_are_refused():
    image = as_image(scene(0))
    with pytest.raises(DataError, match="there is no noise between them"):
        fit_noise([Pair(image, image)])


def test_a_shift_and_another_exposure_are_told_from_noise():
    image = np.random.default_rng(0).random((12, 12, 3)).repeat(16, 0).repeat(16, 1)
    first, second = (as_image(noisy(image, 0.05, 0.0, seed=side)) for side in range(2))
    assert measure_difference(Pair(first, second)).is_noise_alone
    shifted = measure_difference(Pair(first[..., :-1], second[..., 1:]))
    assert 0.5 < shifted.shift < 1.5
    assert not shifted.is_noise_alone
    brighter = measure_difference(Pair(first + 0.02, second))
    assert brighter.offset == pytest.approx(0.02, abs=0.003)
    assert not brighter.is_noise_alone


@pytest.mark.parametrize(("std", "gain"), [(0.08, 0.0), (0.03, 0.01)])
def test_intervals_hold_the_clean_scene_which_was_never_seen(tmp_path, model, std, gain):
    dataset = write_pairs(tmp_path, std, gain)
    calibrated = calibrate_on_noisy(model, dataset, PROTOCOL, noise_of(std, gain))
    inside = []
    for number in range(NUM, 2 * NUM):
        prediction = model.predict(as_image(noisy(scene(number), std, gain, seed=1000 + number)))
        half_width = calibrated.calibration.half_width(prediction.sigma)
        error = (prediction.mean - as_image(scene(number))).abs()
        inside.append((error <= half_width).double().mean())
    assert float(torch.stack(inside).mean()) == pytest.approx(0.9, abs=0.04)
    # The error is a fifth of the noise, and so are the intervals.
    typical = (std**2 + 0.5 * gain) ** 0.5 / 5
    assert float(half_width.mean()) == pytest.approx(1.645 * typical, rel=0.25)
    assert "for the clean scene" in calibrated.calibration.promise


def test_coverage_and_psnr_are_measured_on_noisy_pairs(tmp_path, model):
    dataset = write_pairs(tmp_path, 0.08, 0.0)
    calibrated = calibrate_on_noisy(model, dataset, PROTOCOL, noise_of(0.1, 0.0))
    assert calibrated.noise.std == pytest.approx(0.08, rel=0.03)  # the size is fitted anew
    result = measure_on_noisy(model, dataset, PROTOCOL, calibrated)
    assert result["coverage_noisy"] == pytest.approx(0.9, abs=0.01)
    clean = -20 * np.log10(0.08 / 5)
    assert result["psnr"] == pytest.approx(clean, abs=1.0)
    assert result["psnr_noisy"] < 23
    assert result["pictures"].keys() == {str(number) for number in range(NUM)}


def test_an_error_below_the_noise_gives_a_small_interval_and_no_nan(tmp_path, model):
    """Where more noise is taken off than there is, nothing is left: the floor of sigma."""
    dataset = write_pairs(tmp_path, 0.08, 0.0)
    for item in dataset.items:  # equal pictures of twice the difference: too much is taken off
        pixels = np.asarray(Image.open(item.target)).astype(np.int16)
        other = np.asarray(Image.open(item.degraded)).astype(np.int16)
        moved = (other + (other - pixels)).clip(0, 255).astype(np.uint8)
        Image.fromarray(moved).save(item.degraded)
    calibrated = calibrate_on_noisy(model, dataset, PROTOCOL, noise_of(0.1, 0.0))
    assert all(np.isfinite(value) for value in calibrated.calibration.values)
