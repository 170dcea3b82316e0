"""Restoring one file: nothing is written unless all about it is right."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from helpers.networks import build
from musigma.images.image_io import read_image, write_image
from musigma.images.listing import ImageSource
from musigma.model import Model
from musigma.networks import create
from musigma.prediction.predict import predict, with_noise_map
from musigma.restoration import output_files as results
from musigma.restoration import restore_file as files
from musigma.restoration.restore_file import (
    Options,
    calibration_of,
    find_clashes,
    restore,
    restore_file,
)
from musigma.restoration.viewer import page
from musigma.types import ConfigError, ImageError


def model_of(name="edsr-baseline", scale=2, **options):
    return Model(network=build(name, scale, **options), name=name)


def source_in(folder, name="a.png"):
    write_image(folder / name, torch.rand(1, 3, 7, 5, generator=torch.Generator().manual_seed(0)))
    return ImageSource(folder / name, Path(name))


def test_what_became_of_a_file(tmp_path):
    model, source = model_of(sigma=True), source_in(tmp_path)
    done = restore_file(model, source, Options(folder=tmp_path / "out", sigma=True))
    assert (done.source, done.output) == (source.path, tmp_path / "out" / "a.png")
    assert done.sigma == tmp_path / "out" / "a.sigma.png"
    assert (done.width, done.height) == (10, 14)
    assert 0 < done.seconds < 60
    expected = predict(model.network, read_image(source.path)[0]).mean
    written = read_image(done.output)[0]
    assert torch.equal((written * 255).round(), (expected.clamp(0, 1) * 255).round())
    plain = restore_file(model, source, Options(folder=tmp_path / "plain"))
    assert plain.sigma is None
    assert [path.name for path in (tmp_path / "plain").iterdir()] == ["a.png"]


def test_its_own_source_is_refused(tmp_path):
    source = source_in(tmp_path)
    with pytest.raises(ImageError, match="would replace its own source; choose another output"):
        restore_file(model_of(), source, Options(folder=tmp_path))


def test_an_error_map_needs_a_sigma_branch(tmp_path):
    with pytest.raises(ConfigError, match="edsr-baseline has no sigma branch; leave --sigma out"):
        restore_file(model_of(), source_in(tmp_path), Options(folder=tmp_path / "out", sigma=True))
    assert not (tmp_path / "out").exists()


def test_a_broken_calibration_is_found_before_anything_is_written(tmp_path):
    model = replace(model_of(sigma=True), metadata={"calibration": {"kind": "scale"}})
    with pytest.raises(ConfigError, match="a calibration has the keys"):
        restore_file(model, source_in(tmp_path), Options(folder=tmp_path / "out", sigma=True))
    assert not (tmp_path / "out").exists()


def test_no_calibration_means_none():
    assert calibration_of(model_of(sigma=True)) is None


def test_a_network_that_takes_the_noise_level_must_be_told(tmp_path):
    model = model_of("drunet", 1)
    image = torch.rand(1, 3, 9, 7, generator=torch.Generator().manual_seed(0))
    options = Options(folder=tmp_path)
    with pytest.raises(ConfigError, match="drunet must be told the noise level"):
        restore(model, image, options)
    (found,) = restore(model, image, replace(options, noise_std=25.0))
    assert torch.equal(found.mean, predict(model.network, with_noise_map(image, 25.0)).mean)


def clashing(sources, options):
    sources = [ImageSource(Path(path), Path(name)) for path, name in sources]
    return sorted(path.as_posix() for path in find_clashes(sources, options))


def test_clashes():
    plain, with_maps = Options(folder=Path("out")), Options(folder=Path("out"), sigma=True)
    apart = [("in/a.png", "a.png"), ("in/b.png", "b.png"), ("in/sub/a.png", "sub/a.png")]
    assert clashing(apart, with_maps) == []
    same_name = [("one/a.png", "a.png"), ("two/a.png", "a.png"), ("two/b.png", "b.png")]
    assert clashing(same_name, plain) == ["two/a.png"]
    same_map = [("in/a.png", "a.png"), ("in/a.jpg", "a.jpg")]
    assert clashing(same_map, plain) == []
    assert clashing(same_map, with_maps) == ["in/a.jpg"]
    map_as_source = [("in/a.png", "a.png"), ("in/a.sigma.png", "a.sigma.png")]
    assert clashing(map_as_source, with_maps) == ["in/a.sigma.png"]
    other_source = [("in/a.png", "a.png"), ("out/a.png", "b.png")]
    assert clashing(other_source, plain) == ["in/a.png"]


def test_bicubic_needs_no_weights(tmp_path):
    bicubic = Model(network=create("bicubic", scale=3), name="bicubic")
    done = restore_file(bicubic, source_in(tmp_path), Options(folder=tmp_path / "out"))
    assert (done.width, done.height) == (15, 21)


def test_the_page_of_a_large_picture_is_made_from_a_smaller_view(tmp_path, monkeypatch):
    for module in (page, results):
        monkeypatch.setattr(module, "MAX_SIDE", 4)
    model, source = model_of(sigma=True), source_in(tmp_path)
    restore_file(model, source, Options(folder=tmp_path / "out", page=True, sigma=True))
    text = (tmp_path / "out" / "a.html").read_text()
    assert "5 \N{MULTIPLICATION SIGN} 7 \N{RIGHTWARDS ARROW} 10 \N{MULTIPLICATION SIGN} 14" in text
    assert "pixels is shown and read at 3 \N{MULTIPLICATION SIGN} 4." in text


def test_the_noise_level_of_a_large_picture_comes_from_its_middle(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "NOISE_SIDE", 96)
    clean = torch.full((1, 3, 200, 210), 0.5)
    clean[..., 52:148, 57:153] += torch.randn(1, 3, 96, 96, generator=generator()) * 20 / 255
    write_image(tmp_path / "a.png", clean)
    options = Options(folder=tmp_path / "out", estimate_noise=True)
    source = ImageSource(tmp_path / "a.png", Path("a.png"))
    done = restore_file(model_of("drunet", 1), source, options)
    assert done.noise_std == pytest.approx(20, rel=0.1)


def generator():
    return torch.Generator().manual_seed(0)
