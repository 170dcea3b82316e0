"""Error maps are those of the file as it is saved, also where the format loses information."""

import pytest
import torch

from musigma.images.image_io import BAND, ImageMeta, image_writer, read_image
from musigma.restoration.saving_error import Bands, with_saving_error
from musigma.types import Prediction


def noisy(height, width, seed=0):
    """A smooth picture with noise, which JPEG and WebP cannot keep."""
    generator = torch.Generator().manual_seed(seed)
    waves = torch.sin(torch.arange(width) / 9) * torch.cos(torch.arange(height) / 7)[:, None]
    image = 0.5 + 0.3 * waves.expand(1, 3, height, width)
    return image + 0.05 * torch.randn(image.shape, generator=generator)


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.bmp", "a.tif"])
@pytest.mark.parametrize("channels", [1, 3])
def test_what_is_stored_is_known_band_by_band(tmp_path, name, channels):
    image = noisy(150, 61)[:, :channels]
    with image_writer(tmp_path / name, tuple(image.shape), ImageMeta()) as rows:
        stored = torch.cat([rows.stored(band) for band in image.split(BAND, 2)], 2)
        rows.write(image)
    torch.testing.assert_close(stored, read_image(tmp_path / name)[0], rtol=0, atol=1e-6)
    assert float((stored - image.clamp(0, 1)).abs().max()) > 0


def test_lossless_webp_and_alpha(tmp_path):
    image = noisy(70, 61)
    shape = tuple(image.shape)
    with image_writer(tmp_path / "a.webp", shape, ImageMeta(), alpha=True, quality=100) as rows:
        stored = torch.cat([rows.stored(band) for band in image.split(BAND, 2)], 2)
        rows.write(image, torch.full((1, 1, 70, 61), 0.5))
    torch.testing.assert_close(stored, read_image(tmp_path / "a.webp")[0])


def test_bands_hold_all_rows_once():
    image, sigma = noisy(300, 5), noisy(300, 5, seed=1)
    for heights in ([300], [1] * 300, [64, 128, 108], [70, 10, 200, 20], [63, 2, 235]):
        bands, taken = Bands(), []
        for mean, error in zip(image.split(heights, 2), sigma.split(heights, 2), strict=True):
            taken += bands.add(Prediction(mean, error))
        taken += bands.last()
        assert [band.mean.shape[2] for band in taken] == [64, 64, 64, 64, 44]
        assert torch.equal(torch.cat([band.mean for band in taken], 2), image)
        assert torch.equal(torch.cat([band.sigma for band in taken], 2), sigma)
    plain = Bands()
    assert list(plain.add(Prediction(image[:, :, :10], None))) == []
    (band,) = plain.last()
    assert band.sigma is None


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.webp"])
@pytest.mark.parametrize("quality", [95, 60])
def test_intervals_hold_what_the_file_holds(tmp_path, name, quality):
    """Errors of a known size: the share inside the intervals is the same after saving."""
    mean = noisy(320, 320)
    std = torch.full_like(mean, 0.02)
    truth = mean + std * torch.randn(mean.shape, generator=torch.Generator().manual_seed(2))
    truth = truth.clamp(0, 1)
    with image_writer(tmp_path / name, tuple(mean.shape), ImageMeta(), quality=quality) as rows:
        stored = torch.cat([rows.stored(band) for band in mean.split(BAND, 2)], 2)
        rows.write(mean)
    maps = {"sigma": std, "std": std, "half_width": 1.645 * std}
    widened = with_saving_error(maps, mean, stored)
    assert torch.equal(widened["sigma"], std)
    saved = read_image(tmp_path / name)[0]
    inside = float(((truth - saved).abs() <= widened["half_width"]).float().mean())
    assert inside == pytest.approx(0.9, abs=0.01)
    if name != "a.png":  # without the saving error the intervals of the file would be too short
        assert float(((truth - saved).abs() <= maps["half_width"]).float().mean()) < 0.89


def test_a_value_that_is_certain_gets_the_saving_error():
    mean = torch.full((1, 1, 8, 8), 0.5)
    zeros = torch.zeros_like(mean)
    maps = with_saving_error({"sigma": zeros, "std": zeros, "half_width": zeros}, mean, mean + 0.1)
    torch.testing.assert_close(maps["std"], torch.full_like(mean, 0.1))
    torch.testing.assert_close(maps["half_width"], torch.full_like(mean, 0.2))
