import sys

import numpy as np
import pytest
import torch
from PIL import Image

from musigma.images.image_io import read_image, write_image
from musigma.restoration.sigma_files import read_sigma, write_sigma
from musigma.types import ConfigError, ImageError


def random_sigma(channels=3, height=37, width=31, top=0.1):
    return torch.rand(1, channels, height, width, generator=torch.Generator().manual_seed(0)) * top


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("top", [0.1, 1.0, 2.5])
def test_png_comes_back_within_half_a_step(tmp_path, channels, top):
    sigma = random_sigma(channels, top=top)
    write_sigma(tmp_path / "s.png", sigma, kind="png")
    found = read_sigma(tmp_path / "s.png")
    assert found.shape == sigma.shape
    step = max(1, float(sigma.max())) / 65535
    assert (found - sigma).abs().max() <= 0.501 * step


def test_png_says_its_unit_and_has_that_of_an_image(tmp_path):
    sigma = torch.full((1, 1, 2, 3), 0.25)
    write_sigma(tmp_path / "s.png", sigma, kind="png")
    with Image.open(tmp_path / "s.png") as image:
        assert image.mode == "I;16"
        assert (np.asarray(image) == round(0.25 * 65535)).all()
        assert image.text["musigma:sigma_max"] == "1.0"
        assert "sample / 65535 * sigma_max" in image.text["musigma:unit"]


def test_npz_is_exact_and_may_hold_the_mean(tmp_path):
    sigma, mean = random_sigma(), random_sigma(top=1)
    write_sigma(tmp_path / "s.npz", sigma.double(), kind="npz", mean=mean)
    assert torch.equal(read_sigma(tmp_path / "s.npz"), sigma)
    with np.load(tmp_path / "s.npz") as arrays:
        assert sorted(arrays) == ["mean", "sigma"]
        assert np.array_equal(arrays["mean"], mean.numpy())
        assert arrays["sigma"].dtype == np.float32


def pixels_of(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


@pytest.mark.parametrize("shape", [(300, 600), (517, 613), (1, 2048)])
def test_picture_shows_each_pixel_in_its_colour(tmp_path, shape):
    import matplotlib

    height, width = shape
    sigma = random_sigma(1, height, width)
    write_sigma(tmp_path / "s.png", sigma, kind="picture")
    pixels = pixels_of(tmp_path / "s.png")
    levels = sigma[0, 0].numpy() * 255
    colours = matplotlib.colormaps["magma"](levels / np.percentile(levels, 99.5), bytes=True)
    margin = min(round(width / 40), 28)
    shown = pixels[margin : margin + height, margin : margin + width].astype(int)
    assert np.abs(shown - colours[..., :3]).max() <= 3  # one step of the map's 256 colours
    assert (pixels[:margin] == 255).all()
    assert (pixels[margin + height :] != 255).any()  # the scale bar


@pytest.mark.parametrize(
    ("shape", "shown"),
    [
        ((37, 31), (37 * 17, 31 * 17)),
        ((100, 4000), (51, 2048)),
        ((1, 1), (512, 512)),
        ((3000, 9), (2048, 6)),
    ],
)
def test_picture_has_a_sensible_size(tmp_path, shape, shown):
    write_sigma(tmp_path / "s.png", random_sigma(1, *shape), kind="picture")
    height, width = pixels_of(tmp_path / "s.png").shape[:2]
    assert shown[0] < height < shown[0] + 250
    assert shown[1] < width < shown[1] + 350


def test_picture_of_nothing(tmp_path):
    write_sigma(tmp_path / "s.png", torch.zeros(1, 3, 5, 5), kind="picture")
    assert (pixels_of(tmp_path / "s.png")[100, 100] < 10).all()


def test_drawing_leaves_pyplot_alone(tmp_path):
    before = set(sys.modules)
    write_sigma(tmp_path / "s.png", random_sigma(), kind="picture")
    assert "matplotlib.pyplot" not in set(sys.modules) - before


@pytest.mark.parametrize("kind", ["png", "npz", "picture"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -0.1])
def test_bad_sigma_is_never_written(tmp_path, kind, bad):
    sigma = random_sigma()
    sigma[0, 0, 3, 4] = bad
    path = tmp_path / ("s.npz" if kind == "npz" else "s.png")
    with pytest.raises(ImageError, match="sigma must be finite and not negative"):
        write_sigma(path, sigma, kind=kind)
    assert list(tmp_path.iterdir()) == []


def test_bad_settings(tmp_path):
    sigma = random_sigma()
    with pytest.raises(ConfigError, match="no kind of sigma file is 'pgn'; did you mean 'png'"):
        write_sigma(tmp_path / "s.png", sigma, kind="pgn")
    with pytest.raises(ImageError, match=r"kind 'npz' must end in \.npz"):
        write_sigma(tmp_path / "s.png", sigma, kind="npz")
    with pytest.raises(ConfigError, match="mean goes into"):
        write_sigma(tmp_path / "s.png", sigma, kind="png", mean=sigma)
    with pytest.raises(ImageError, match=r"got \(3, 37, 31\)"):
        write_sigma(tmp_path / "s.png", sigma[0], kind="png")


def test_files_that_hold_no_sigma(tmp_path):
    write_image(tmp_path / "plain.png", random_sigma())
    write_image(tmp_path / "photo.jpg", random_sigma())
    write_sigma(tmp_path / "seen.png", random_sigma(), kind="picture")
    np.savez(tmp_path / "other.npz", mean=np.zeros(3))
    np.savez(tmp_path / "pickle.npz", sigma=np.array([{}], dtype=object))
    (tmp_path / "broken.npz").write_bytes(b"PK\3\4")
    names = ["plain.png", "photo.jpg", "seen.png", "other.npz", "pickle.npz", "broken.npz"]
    for name in [*names, "missing.npz", "missing.png"]:
        with pytest.raises(ImageError) as caught:
            read_sigma(tmp_path / name)
        assert str(caught.value).startswith(str(tmp_path / name))
        assert "\n" not in str(caught.value)


def test_sigma_png_is_an_image_too(tmp_path):
    sigma = random_sigma()
    write_sigma(tmp_path / "s.png", sigma, kind="png")
    values, meta = read_image(tmp_path / "s.png")
    assert meta.bits == 16
    assert (values - sigma).abs().max() <= 0.501 / 65535
