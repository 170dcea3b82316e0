"""``musigma denoise``: the way of `upscale`, with a noise level."""

import json

import pytest
import torch
from PIL import Image

from musigma.functional.noise import image_generator
from musigma.functional.sensor_noise import sensor_noise
from musigma.images.image_io import read_image, write_image
from musigma.model import load, save
from musigma.networks import create, with_sigma
from musigma.prediction.predict import predict


@pytest.fixture(scope="module")
def denoiser(tmp_path_factory):
    """A file of random weights: a small DRUNet with a sigma branch."""
    torch.manual_seed(0)
    base = create("drunet", scale=1, widths=[8, 8, 8, 8], num_blocks=1)
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    save(path, with_sigma(base, width=8, depth=1))
    return path


def noisy(folder, name="noisy.png", *, num_channels=3, level=20):
    """Write a smooth picture with noise."""
    y, x = torch.meshgrid(torch.arange(67) / 20, torch.arange(61) / 20, indexing="ij")
    image = (0.5 + 0.1 * torch.sin(x + y)).expand(1, num_channels, -1, -1)
    image = sensor_noise(image, std=level, generator=image_generator(name, 0))
    write_image(folder / name, image)
    return folder / name


def test_pictures_go_through_the_network_with_their_noise_level(musigma, denoiser, tmp_path):
    source, out = noisy(tmp_path), tmp_path / "out"
    words = ("-o", out, "--noise-std", "20", "--model", denoiser, "--sigma", "--npz", "--json")
    result = musigma("denoise", source, *words)
    assert result.code == 0
    (done,) = json.loads(result.out)["done"]
    assert (done["width"], done["height"], done["noise_std"]) == (61, 67, 20)
    assert {path.name for path in out.glob("[!.]*")} == {
        "noisy.png",
        "noisy.sigma.png",
        "noisy.error-map.png",
        "noisy.npz",
    }
    image, _ = read_image(source)
    expected = predict(load(denoiser).network, image, noise_std=20).mean.clamp(0, 1)
    torch.testing.assert_close(read_image(out / "noisy.png")[0], expected, rtol=0, atol=0.51 / 255)


def test_level_is_estimated_for_each_picture(musigma, denoiser, tmp_path):
    for level in (5, 30):
        noisy(tmp_path / "in", f"{level}.png", level=level)
    words = ("-o", tmp_path / "out", "--noise-std", "auto", "--model", denoiser, "--json")
    result = musigma("denoise", tmp_path / "in", *words)
    assert result.code == 0
    for done in json.loads(result.out)["done"]:
        level = int(done["source"].rsplit("/", 1)[1].removesuffix(".png"))
        assert done["noise_std"] == pytest.approx(level, rel=0.15)


def test_the_estimated_level_is_always_shown(musigma, denoiser, tmp_path):
    source = noisy(tmp_path, level=30)
    words = ("-o", tmp_path / "out", "--noise-std", "auto", "--model", denoiser)
    (done,) = json.loads(musigma("denoise", source, *words, "--json").out)["done"]
    assert done["noise_estimated"] is True
    result = musigma("denoise", source, *words)
    assert f"{source}: estimated noise level {done['noise_std']:.3g} of 255" in result.err
    assert "warning" not in result.err
    told = musigma("denoise", source, *words[:3], "30", *words[4:])
    assert f"{source}: estimated noise level " in told.err


def test_noise_that_grows_with_the_signal_is_shown_for_gray_pictures(musigma, denoiser, tmp_path):
    ramp = torch.linspace(0.1, 0.8, 200).expand(1, 1, 160, 200)
    counted = sensor_noise(ramp, gain=6, std=2, generator=image_generator("cells", 0))
    write_image(tmp_path / "cells.png", counted)
    write_image(tmp_path / "equal.png", counted.expand(1, 3, -1, -1))  # which is gray, too
    tinted = counted * torch.tensor([1.0, 0.9, 0.8]).view(1, 3, 1, 1)
    write_image(tmp_path / "colour.png", tinted)
    words = ("-o", tmp_path / "out", "--noise-std", "20", "--model", denoiser)
    (done,) = json.loads(musigma("denoise", tmp_path / "cells.png", *words, "--json").out)["done"]
    assert done["noise_growth"].startswith("variance ")
    files = [tmp_path / f"{name}.png" for name in ("cells", "equal", "colour")]
    result = musigma("denoise", *files, *words)
    lines = [line for line in result.err.splitlines() if "estimated noise level" in line]
    growth = f"; it grows with the signal: {done['noise_growth']}"
    assert [line.endswith(growth) for line in lines] == [True, True, False]


def test_noise_in_a_jpeg_is_a_warning(musigma, denoiser, tmp_path):
    source = tmp_path / "night.jpg"
    with Image.open(noisy(tmp_path, "night.png", level=30)) as picture:
        picture.save(source, quality=80)  # with 4:2:0, which removes most noise of the colors
    words = ("-o", tmp_path / "out", "--noise-std", "auto", "--model", denoiser)
    result = musigma("denoise", source, *words)
    assert f"warning: {source}: The noise, of about " in result.err
    assert "is not white" in result.err
    (done,) = json.loads(musigma("denoise", source, *words, "--json").out)["done"]
    assert "weights photo" in done["warnings"][0]
    assert done["noise_is_white"] is False


def test_a_picture_too_small_for_an_estimate_is_named(musigma, denoiser, tmp_path):
    write_image(tmp_path / "small.png", torch.zeros(1, 3, 9, 8))
    words = ("-o", tmp_path / "out", "--noise-std", "auto", "--model", denoiser)
    result = musigma("denoise", tmp_path / "small.png", *words)
    assert result.code == 1
    (line,) = result.errors
    assert "small.png" in line
    assert "8 x 9 pixels are too few to estimate the noise level" in line


def test_gray_pictures_come_back_gray_from_a_color_network(musigma, denoiser, tmp_path):
    source = noisy(tmp_path, num_channels=1)
    words = ("-o", tmp_path / "out", "--noise-std", "20", "--model", denoiser)
    assert musigma("denoise", source, *words).code == 0
    assert read_image(tmp_path / "out" / "noisy.png")[0].shape == (1, 1, 67, 61)


def test_color_pictures_need_a_color_network(musigma, tmp_path):
    save(tmp_path / "grey.safetensors", create("dncnn", scale=1, num_layers=3, width=8))
    words = ("-o", tmp_path / "out", "--model", tmp_path / "grey.safetensors")
    noisy(tmp_path / "in", "colour.png")
    noisy(tmp_path / "in", "grey.png", num_channels=1)
    result = musigma("denoise", tmp_path / "in", *words)
    assert result.code == 1
    (line,) = result.errors
    assert "colour.png" in line
    assert "use a network for color, such as drunet" in line
    assert [path.name for path in (tmp_path / "out").glob("[!.]*")] == ["grey.png"]


@pytest.mark.parametrize("level", ["-5", "256", "nan", "inf", "much", "0x10", ""])
def test_absurd_levels_are_refused(musigma, denoiser, tmp_path, level):
    words = ("-o", tmp_path / "out", f"--noise-std={level}", "--model", denoiser)
    result = musigma("denoise", noisy(tmp_path), *words)
    assert result.code == 2
    (line,) = result.errors
    assert "auto or a level from 0 to 255 in 8-bit units" in line
    assert not (tmp_path / "out").exists()


def test_a_level_goes_with_networks_that_are_told_it(musigma, denoiser, tmp_path):
    source, out = noisy(tmp_path), tmp_path / "out"
    result = musigma("denoise", source, "-o", out, "--model", denoiser)
    assert result.code == 2
    assert "drunet needs the noise level; give --noise-std" in result.errors[0]
    save(tmp_path / "blind.safetensors", create("dncnn-colour", scale=1, num_layers=3, width=8))
    words = ("-o", out, "--model", tmp_path / "blind.safetensors")
    assert musigma("denoise", source, *words).code == 0
    result = musigma("denoise", source, *words, "--noise-std", "25")
    assert result.code == 2
    assert "dncnn-colour takes no noise level; leave --noise-std out" in result.errors[0]


def test_networks_that_enlarge_are_refused(musigma, weights, tmp_path):
    result = musigma("denoise", noisy(tmp_path), "-o", tmp_path / "out", "--model", weights)
    assert result.code == 2
    assert "tiny.safetensors enlarges by 2, not by 1" in result.errors[0]
    words = ("-o", tmp_path / "out", "--model", "bicubic", "--noise-std", "auto")
    result = musigma("denoise", noisy(tmp_path), *words)
    assert "bicubic enlarges pictures; 'musigma upscale' uses it" in result.errors[0]


def test_sigma_needs_a_branch(musigma, tmp_path):
    save(tmp_path / "a.safetensors", create("dncnn-colour", scale=1, num_layers=3, width=8))
    words = ("-o", tmp_path / "out", "--model", tmp_path / "a.safetensors", "--sigma")
    result = musigma("denoise", noisy(tmp_path), *words)
    assert result.code == 2
    assert "no sigma branch" in result.errors[0]


def test_network_without_weights_says_what_to_do(musigma, tmp_path):
    words = ("-o", tmp_path / "out", "--noise-std", "25", "--model", "drunet")
    result = musigma("denoise", noisy(tmp_path), *words)
    assert result.code == 2
    assert "no trained weights ship for drunet x1; pass a weights file" in result.errors[0]
