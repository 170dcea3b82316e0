import json
import sys
import tracemalloc
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from musigma.images.image_io import read_image, write_image
from musigma.restoration import error_maps
from musigma.restoration.error_maps import (
    QUANTITIES,
    describe,
    draw_error_map,
    error_maps_of,
    read_error_map,
    write_error_map,
)
from musigma.restoration.promise import Promise
from musigma.types import ConfigError, ImageError
from musigma.uncertainty.calibration import Calibration

CALIBRATION = Calibration(
    method="conformal-risk-control",
    knots=(0.01, 0.02),
    values=(0.015, 0.04),
    factor=2.0,
    coverage=0.9,
    confidence=None,
    num_images=100,
    protocol={"degradation": "bicubic", "scale": 2},
)


def random_errors(channels=3, height=37, width=31, top=0.1):
    return torch.rand(1, channels, height, width, generator=torch.Generator().manual_seed(0)) * top


@pytest.mark.parametrize("quantity", QUANTITIES)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("top", [0.1, 1.0, 2.5])
def test_png_comes_back_within_half_a_step_with_its_name(tmp_path, quantity, channels, top):
    values = random_errors(channels, top=top)
    write_error_map(tmp_path / "s.png", values, quantity)
    stored = read_error_map(tmp_path / "s.png")
    assert stored.quantity == quantity
    assert stored.values.shape == values.shape
    step = max(1, float(values.max())) / 65535
    assert (stored.values - values).abs().max() <= 0.501 * step


def test_the_three_quantities_are_those_of_the_calibration():
    sigma = random_errors()
    maps = error_maps_of(sigma, CALIBRATION)
    assert torch.equal(maps["sigma"], sigma)
    assert torch.equal(maps["std"], CALIBRATION.std(sigma))
    assert torch.equal(maps["half_width"], CALIBRATION.half_width(sigma))
    assert list(error_maps_of(sigma, None)) == ["sigma"]


def test_png_says_what_it_holds_and_its_unit(tmp_path):
    values = torch.full((1, 1, 2, 3), 0.25)
    for quantity in QUANTITIES:
        write_error_map(tmp_path / "s.png", values, quantity)
        with Image.open(tmp_path / "s.png") as image:
            assert image.mode == "I;16"
            assert (np.asarray(image) == round(0.25 * 65535)).all()
            assert image.text["musigma:quantity"] == quantity
            assert image.text["musigma:meaning"].startswith(f"{quantity}: ")
            assert image.text["musigma:scale"] == "1.0"
            assert image.text["musigma:unit"].startswith("value = sample / 65535 * scale")


def test_only_the_interval_says_its_coverage_and_promise(tmp_path):
    values = torch.full((1, 1, 2, 3), 0.25)
    promise = Promise(None, "it is a JPEG \u2026")  # not Latin-1
    for quantity in QUANTITIES:
        info = describe(quantity, CALIBRATION, promise)
        write_error_map(tmp_path / "s.png", values, quantity, info=info)
        stored = read_error_map(tmp_path / "s.png").info
        assert ("coverage" in stored) == (quantity == "half_width")
        assert ("conditions" in stored) == (quantity != "sigma")
    assert stored["coverage"] == "0.9"
    assert stored["calibration"] == "conformal-risk-control, 100 images"
    assert stored["conditions"] == CALIBRATION.conditions
    assert stored["promise"] == "none: it is a JPEG \u2026"
    kept = describe("half_width", CALIBRATION, Promise(CALIBRATION.promise, None))
    assert kept["promise"] == CALIBRATION.promise


def test_another_quantity_than_asked_for_is_refused(tmp_path):
    write_error_map(tmp_path / "s.png", random_errors(), "half_width")
    with pytest.raises(ImageError, match=r"s\.png: holds half_width, not sigma"):
        read_error_map(tmp_path / "s.png", "sigma")
    with pytest.raises(ConfigError, match="there is no quantity 'stdd'; did you mean 'std'"):
        read_error_map(tmp_path / "s.png", "stdd")


def test_npz_holds_several_quantities(tmp_path):
    maps = error_maps_of(random_errors(), CALIBRATION)
    info = np.array(json.dumps({"std": {"meaning": "std: ..."}}))
    arrays = {name: values.numpy() for name, values in maps.items()}
    np.savez(tmp_path / "a.npz", **arrays, info=info)
    for name, values in maps.items():
        stored = read_error_map(tmp_path / "a.npz", name)
        assert stored.quantity == name
        assert torch.equal(stored.values, values)
    assert read_error_map(tmp_path / "a.npz").quantity == "sigma"
    assert read_error_map(tmp_path / "a.npz", "std").info == {"meaning": "std: ..."}


def pixels_of(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


@pytest.mark.parametrize("shape", [(300, 600), (517, 1013), (1, 2048)])
def test_picture_shows_each_pixel_in_its_color(tmp_path, shape):
    import matplotlib

    height, width = shape
    values = random_errors(1, height, width)
    draw_error_map(tmp_path / "s.png", values, "std")
    pixels = pixels_of(tmp_path / "s.png")
    levels = values[0, 0].numpy() * 255
    colors = matplotlib.colormaps["magma"](levels / np.percentile(levels, 99.5), bytes=True)
    margin = min(round(width / 40), 28)
    shown = pixels[margin : margin + height, margin : margin + width].astype(int)
    assert np.abs(shown - colors[..., :3]).max() <= 3  # one step of the map's 256 colors
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
    draw_error_map(tmp_path / "s.png", random_errors(1, *shape), "sigma")
    height, width = pixels_of(tmp_path / "s.png").shape[:2]
    assert shown[0] < height < shown[0] + 250
    assert shown[1] < width < shown[1] + 500


def test_picture_says_what_it_shows(tmp_path, monkeypatch):
    from matplotlib.colorbar import Colorbar

    labels, set_label = [], Colorbar.set_label

    def watched(self, label, **options):
        labels.append(label)
        set_label(self, label, **options)

    monkeypatch.setattr(Colorbar, "set_label", watched)
    for quantity in QUANTITIES:
        info = describe(quantity, CALIBRATION)
        draw_error_map(tmp_path / "s.png", random_errors(), quantity, info=info)
        with Image.open(tmp_path / "s.png") as image:
            assert quantity in image.text["Description"]
            assert (CALIBRATION.conditions in image.text["Description"]) == (quantity != "sigma")
    labels = [label for label in labels if label]
    assert [label.split(": ")[0] for label in labels] == list(QUANTITIES)
    assert all(label.endswith("(levels of 255)") for label in labels)


def test_picture_of_zeros(tmp_path):
    draw_error_map(tmp_path / "s.png", torch.zeros(1, 3, 5, 5), "sigma")
    assert (pixels_of(tmp_path / "s.png")[100, 100] < 10).all()


def test_drawing_leaves_pyplot_alone(tmp_path):
    before = set(sys.modules)
    draw_error_map(tmp_path / "s.png", random_errors(), "sigma")
    assert "matplotlib.pyplot" not in set(sys.modules) - before


def test_a_picture_of_the_largest_size_takes_little_memory(tmp_path):
    values = torch.rand(1, 1, 1024, 2048)
    draw_error_map(tmp_path / "first.png", values[..., :9, :9], "std")  # loads matplotlib
    tracemalloc.start()
    draw_error_map(tmp_path / "s.png", values, "std")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30 * values.numel()  # bytes; a figure of matplotlib takes 100 for each pixel


@pytest.mark.parametrize("write", [write_error_map, draw_error_map])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -0.1])
def test_bad_values_are_never_written(tmp_path, write, bad):
    values = random_errors()
    values[0, 0, 3, 4] = bad
    with pytest.raises(ImageError, match="std must be finite and not negative"):
        write(tmp_path / "s.png", values, "std")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("write", [write_error_map, draw_error_map])
def test_error_maps_of_unknown_quantity_suffix_or_shape_are_refused(tmp_path, write):
    values = random_errors()
    with pytest.raises(ConfigError, match="there is no quantity 'sgima'; did you mean 'sigma'"):
        write(tmp_path / "s.png", values, "sgima")
    with pytest.raises(ImageError, match=r"must end in \.png"):
        write(tmp_path / "s.npz", values, "sigma")
    with pytest.raises(ImageError, match=r"got \(3, 37, 31\)"):
        write(tmp_path / "s.png", values[0], "sigma")


def test_files_that_hold_no_error_map(tmp_path):
    write_image(tmp_path / "plain.png", random_errors())
    write_image(tmp_path / "photo.jpg", random_errors())
    draw_error_map(tmp_path / "seen.png", random_errors(), "sigma")
    good = np.zeros((1, 1, 2, 2), np.float32)
    arrays = {
        "other": {"mean": good},
        "pickle": {"sigma": np.array([{}], dtype=object)},
        "double": {"sigma": good.astype(np.float64)},
        "flat": {"sigma": good[0, 0]},
        "negative": {"sigma": good - 1},
        "not-finite": {"sigma": good + np.nan},
    }
    for name, content in arrays.items():
        np.savez(tmp_path / f"{name}.npz", **content)
    (tmp_path / "broken.npz").write_bytes(b"PK\3\4")
    names = [
        "plain.png",
        "photo.jpg",
        "seen.png",
        "broken.npz",
        *(f"{name}.npz" for name in arrays),
    ]
    for name in [*names, "missing.npz", "missing.png"]:
        with pytest.raises(ImageError) as caught:
            read_error_map(tmp_path / name)
        assert str(caught.value).startswith(str(tmp_path / name))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("scale", ["nan", "inf", "-1.0", "0", "much"])
def test_a_scale_that_is_none_is_refused(tmp_path, scale):
    from PIL.PngImagePlugin import PngInfo

    text = PngInfo()
    text.add_text("musigma:quantity", "sigma")
    text.add_text("musigma:scale", scale)
    Image.new("L", (2, 2)).save(tmp_path / "bad.png", pnginfo=text)
    with pytest.raises(ImageError, match="does not say which error it holds"):
        read_error_map(tmp_path / "bad.png")


def test_an_error_map_is_an_image_too(tmp_path):
    values = random_errors()
    write_error_map(tmp_path / "s.png", values, "sigma")
    pixels, meta = read_image(tmp_path / "s.png")
    assert meta.bits == 16
    assert (pixels - values).abs().max() <= 0.501 / 65535


def test_an_npz_whose_array_is_no_array_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("sigma", "no array")
    with pytest.raises(ImageError, match="holds no sigma that can be read"):
        read_error_map(tmp_path / "a.npz", "sigma")


def test_an_npz_that_unpacks_to_more_than_any_picture_is_refused(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "a.npz", sigma=np.zeros((1, 3, 64, 64), np.float32))
    monkeypatch.setattr(error_maps, "MAX_PIXELS", 64 * 63)
    with pytest.raises(ImageError, match=r"49,280 bytes, and at most 48,384 are read"):
        read_error_map(tmp_path / "a.npz", "sigma")


def test_an_npz_whose_description_unpacks_to_more_than_any_is_refused(tmp_path):
    values = np.zeros((1, 1, 2, 2), np.float32)
    np.savez_compressed(tmp_path / "a.npz", sigma=values, info=np.array("x" * 5_000_000))
    with pytest.raises(ImageError, match=r"info has 20,000,128 bytes, and at most 16,777,216 are"):
        read_error_map(tmp_path / "a.npz", "sigma")


def test_an_npz_with_a_second_member_of_the_same_name(tmp_path):
    """NumPy would read the one without the suffix, of whatever size and kind it is."""
    values = np.ones((1, 1, 2, 2), np.float32)
    np.savez(tmp_path / "a.npz", sigma=values, info=np.array("{}"))
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        for name in ("sigma", "info"):
            archive.writestr(name, bytes(1000))
    assert read_error_map(tmp_path / "a.npz").values.sum() == 4
