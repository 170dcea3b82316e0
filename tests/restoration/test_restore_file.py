"""Restoring one file: nothing is written unless all about it is right."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.natural import natural
from helpers.networks import build
from musigma.functional.resize import resize
from musigma.functional.sensor_noise import sensor_noise
from musigma.images.image_io import ImageMeta, read_image, write_image
from musigma.images.listing import ImageSource
from musigma.model import Model, load
from musigma.networks import create
from musigma.prediction.predict import predict
from musigma.restoration import picture_job
from musigma.restoration.options import Options
from musigma.restoration.picture_job import read_picture
from musigma.restoration.restore_file import restore_file
from musigma.restoration.restore_image import restore_image
from musigma.restoration.viewer import data as viewer_data
from musigma.types import ConfigError, ImageError


def model_of(name="edsr-baseline", scale=2, **options):
    return Model(network=build(name, scale, **options), name=name)


def source_in(folder, name="a.png"):
    write_image(folder / name, torch.rand(1, 3, 7, 5, generator=torch.Generator().manual_seed(0)))
    return ImageSource(folder / name, Path(name))


def test_the_outcome_names_files_and_size_and_the_result_is_that_of_predict(tmp_path):
    model, source = model_of(sigma=True), source_in(tmp_path)
    done = restore_file(model, source, Options(folder=tmp_path / "out", sigma=True))
    assert (done.source, done.output) == (source.path, tmp_path / "out" / "a.png")
    assert done.files["sigma"] == tmp_path / "out" / "a.sigma.png"
    assert (done.width, done.height) == (10, 14)
    assert 0 < done.seconds < 60
    expected = predict(model.network, read_image(source.path)[0]).mean
    written = read_image(done.output)[0]
    assert torch.equal((written * 255).round(), (expected.clamp(0, 1) * 255).round())
    plain = restore_file(model, source, Options(folder=tmp_path / "plain"))
    assert plain.files == {}
    assert [path.name for path in (tmp_path / "plain").iterdir()] == ["a.png"]


def test_equal_red_green_and_blue_are_denoised_as_a_gray_picture(tmp_path):
    """Such a file was hardly denoised: its noise looked like detail, and was estimated as none."""
    y, x = torch.meshgrid(torch.arange(64), torch.arange(64), indexing="ij")
    clean = (0.5 + 0.3 * torch.sin(x / 9) * torch.cos(y / 7))[None, None]
    noisy = sensor_noise(clean, std=25, generator=torch.Generator().manual_seed(0)).clamp(0, 1)
    write_image(tmp_path / "grey.png", noisy)
    write_image(tmp_path / "rgb.png", noisy.expand(1, 3, 64, 64))
    model, options = load("drunet-small"), Options(folder=tmp_path / "out", estimate_noise=True)
    gray, rgb = (
        restore_file(model, ImageSource(tmp_path / name, Path(name)), options)
        for name in ("grey.png", "rgb.png")
    )
    assert rgb.estimated_noise_std == pytest.approx(gray.estimated_noise_std) != 0
    assert "it is gray" in rgb.promise_reason
    of_gray, of_rgb = (read_image(done.output)[0] for done in (gray, rgb))
    assert of_rgb.shape == (1, 3, 64, 64)
    assert torch.equal(of_rgb, of_gray.expand(1, 3, 64, 64))
    assert float((of_rgb - clean).square().mean()) < 0.3 * float((noisy - clean).square().mean())


def test_a_black_and_white_picture_in_rgb_gets_no_tint(tmp_path):
    """The three channels came back up to several levels apart."""
    gray = natural(24, 32, channels=1)
    write_image(tmp_path / "bw.png", gray.expand(1, 3, 24, 32))
    options = Options(folder=tmp_path / "out", npz=True)
    done = restore_file(
        load("photo", scale=2), ImageSource(tmp_path / "bw.png", Path("bw.png")), options
    )
    arrays = np.load(done.files["npz"])
    assert arrays["mean"].shape == (1, 3, 48, 64)
    for name in ("mean", "sigma", "half_width"):
        assert np.ptp(arrays[name], axis=1).max() == 0
    assert not np.array_equal(arrays["mean"][0, 0, ::2, ::2], gray[0, 0])


def test_measured_values_that_fill_a_small_part_of_16_bits_are_told(tmp_path):
    counts = natural(24, 32, channels=1) * 2000 / 65535
    write_image(tmp_path / "cells.tif", counts, ImageMeta(format="TIFF", channels=1, bits=16))
    source = ImageSource(tmp_path / "cells.tif", Path("cells.tif"))
    options = Options(folder=tmp_path / "out")
    (warning,) = restore_file(model_of(), source, options).warnings
    assert f"--range 0,{round(float(counts.max() * 65535))} suits better" in warning
    write_image(source.path, counts * 20, ImageMeta(format="TIFF", channels=1, bits=16))
    assert restore_file(model_of(), source, options).warnings == []


def test_its_own_source_is_refused(tmp_path):
    source = source_in(tmp_path)
    with pytest.raises(ImageError, match="would replace its own source; choose another output"):
        restore_file(model_of(), source, Options(folder=tmp_path))


def test_an_error_map_needs_a_sigma_branch(tmp_path):
    with pytest.raises(ConfigError, match="edsr-baseline has no sigma branch; leave `sigma`"):
        restore_file(model_of(), source_in(tmp_path), Options(folder=tmp_path / "out", sigma=True))
    assert not (tmp_path / "out").exists()


def test_a_network_that_takes_the_noise_level_must_be_told(tmp_path):
    model = model_of("drunet", 1)
    image = torch.rand(1, 3, 9, 7, generator=torch.Generator().manual_seed(0))
    options = Options(folder=tmp_path)
    with pytest.raises(ConfigError, match="drunet needs the noise level"):
        restore_image(model, image, options)
    (strip,) = restore_image(model, image, replace(options, noise_std=25.0))
    assert torch.equal(strip.mean, predict(model.network, image, noise_std=25.0).mean)


def test_bicubic_needs_no_weights(tmp_path):
    bicubic = Model(network=create("bicubic", scale=3), name="bicubic")
    done = restore_file(bicubic, source_in(tmp_path), Options(folder=tmp_path / "out"))
    assert (done.width, done.height) == (15, 21)


def test_the_page_of_a_large_picture_is_made_from_a_smaller_view(tmp_path, monkeypatch):
    monkeypatch.setattr(viewer_data, "MAX_PIXELS", 12)
    model, source = model_of(sigma=True), source_in(tmp_path)
    restore_file(model, source, Options(folder=tmp_path / "out", page=True, sigma=True))
    text = (tmp_path / "out" / "a.html").read_text()
    assert "5 \N{MULTIPLICATION SIGN} 7 \N{RIGHTWARDS ARROW} 10 \N{MULTIPLICATION SIGN} 14" in text
    assert "pixels is shown and read at 3 \N{MULTIPLICATION SIGN} 4." in text


def test_the_noise_level_of_a_large_picture_comes_from_its_middle(tmp_path, monkeypatch):
    monkeypatch.setattr(picture_job, "NOISE_SIDE", 96)
    clean = torch.full((1, 3, 200, 210), 0.5)
    clean[..., 52:148, 57:153] += torch.randn(1, 3, 96, 96, generator=generator()) * 20 / 255
    write_image(tmp_path / "a.png", clean)
    options = Options(folder=tmp_path / "out", estimate_noise=True)
    source = ImageSource(tmp_path / "a.png", Path("a.png"))
    done = restore_file(model_of("drunet", 1), source, options)
    assert done.noise_std == pytest.approx(20, rel=0.1)


def generator():
    return torch.Generator().manual_seed(0)


def noisy_source(folder, name, quality=95):
    image = torch.full((1, 3, 96, 96), 0.5)
    image += torch.randn(1, 3, 96, 96, generator=generator()) * 20 / 255
    write_image(folder / name, image, quality=quality)
    return ImageSource(folder / name, Path(name))


def test_the_estimated_noise_level_is_on_the_page(tmp_path):
    options = Options(folder=tmp_path / "out", estimate_noise=True, page=True)
    done = restore_file(model_of("drunet", 1), noisy_source(tmp_path, "a.png"), options)
    assert done.noise_estimated
    assert done.warnings == []
    page = done.files["page"].read_text()
    assert f"{done.noise_std:.3g} of 255, estimated from the picture" in page
    told = replace(options, estimate_noise=False, noise_std=25.0)
    done = restore_file(model_of("drunet", 1), noisy_source(tmp_path, "a.png"), told)
    page = done.files["page"].read_text()
    assert "<td>25 of 255</td>" in page
    assert f"{done.estimated_noise_std:.3g} of 255, estimated from the picture" in page
    assert done.estimated_noise_std == pytest.approx(20, rel=0.15)


def test_noise_in_a_jpeg_is_found_and_said_to_be_not_white(tmp_path):
    # The estimator for white noise found less than 2 levels of the 20 in such a file.
    options = Options(folder=tmp_path / "out", estimate_noise=True, page=True)
    source = noisy_source(tmp_path, "a.jpg", quality=75)
    done = restore_file(model_of("drunet", 1), source, options)
    assert done.noise_std == pytest.approx(20, rel=0.2)
    assert not done.noise_is_white
    (warning,) = done.warnings
    assert "is not white" in warning
    assert "weights photo" in warning
    assert warning in done.files["page"].read_text()


def test_an_estimate_from_a_picture_with_blocks_is_said_to_be_uncertain(tmp_path):
    write_image(tmp_path / "a.jpg", natural(96, 96), ImageMeta(), quality=40)
    options = Options(folder=tmp_path / "out", estimate_noise=True)
    source = ImageSource(tmp_path / "a.jpg", Path("a.jpg"))
    done = restore_file(model_of("drunet", 1), source, options)
    assert done.noise_is_white
    (warning,) = done.warnings
    assert "may be stronger than the estimate of" in warning
    assert "weights photo" in warning


@pytest.mark.parametrize("large", [False, True])
def test_an_unlike_picture_gets_the_reason_and_no_promise(tmp_path, large):
    model = load("edsr-baseline", scale=2)
    side = 700 if large else 96
    clean = resize(natural(2 * side, 2 * side), scale=0.5).clamp(0, 1)
    noisy = clean + torch.randn(clean.shape, generator=generator()) * 15 / 255
    write_image(tmp_path / "a.png", noisy)
    job = read_picture(
        model, ImageSource(tmp_path / "a.png", Path("a.png")), Options(folder=tmp_path / "out")
    )
    assert job.promise.text is None
    assert "the picture has noise of about 1" in job.promise.reason


def test_frame_and_pixel_limit_reach_the_reader(tmp_path):
    from PIL import Image

    pages = [Image.new("L", (9, 8), level) for level in (0, 255)]
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    source = ImageSource(tmp_path / "a.tif", Path("a.tif"))
    bicubic = Model(network=create("bicubic", scale=2), name="bicubic")
    options = Options(folder=tmp_path / "out", frame=1)
    done = restore_file(bicubic, source, options)
    assert float(read_image(done.output)[0].min()) == 1
    with pytest.raises(ImageError, match="with `frame`, 0 to 1"):
        restore_file(bicubic, source, replace(options, frame=None))
    with pytest.raises(ImageError, match=r"limit of 71; .*`max_pixels`"):
        restore_file(bicubic, source, replace(options, max_pixels=71))
