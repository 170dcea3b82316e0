"""The files of a restored picture hold what their names say, and nothing else is replaced."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.networks import build
from musigma.images.image_io import ImageMeta, read_image, write_image
from musigma.images.listing import ImageSource
from musigma.model import Model
from musigma.restoration.error_maps import read_error_map
from musigma.restoration.options import Options
from musigma.restoration.output_files import find_clashes, output_paths
from musigma.restoration.restore_file import restore_file
from musigma.uncertainty.calibration import Calibration

CALIBRATION = Calibration(
    method="conformal-risk-control",
    knots=(0.3, 0.5),
    values=(0.2, 0.6),
    factor=1.5,
    coverage=0.9,
    confidence=None,
    num_images=100,
    protocol={"degradation": "bicubic", "scale": 2},
)


@pytest.fixture(scope="module")
def model():
    network = build("edsr-baseline", 2, sigma=True)
    return Model(network=network, name="edsr-baseline", calibration=CALIBRATION)


def restored(model, folder, name="a.png", **options):
    image = torch.rand(1, 3, 7, 5, generator=torch.Generator().manual_seed(0))
    write_image(folder / name, image, ImageMeta(bits=16))  # where rounding is too small to see
    source = ImageSource(folder / name, Path(name))
    done = restore_file(model, source, Options(folder=folder / "out", **options))
    return done, model.predict(read_image(source.path)[0])


def test_every_png_holds_the_quantity_of_its_name(model, tmp_path):
    done, prediction = restored(model, tmp_path, sigma=True)
    assert {name: path.name for name, path in done.files.items()} == {
        "sigma": "a.sigma.png",
        "std": "a.std.png",
        "half_width": "a.interval.png",
        "picture": "a.error-map.png",
    }
    expected = {
        "sigma": prediction.sigma,
        "std": CALIBRATION.std(prediction.sigma),
        "half_width": CALIBRATION.half_width(prediction.sigma),
    }
    for quantity, values in expected.items():
        stored = read_error_map(done.files[quantity])
        assert stored.quantity == quantity
        torch.testing.assert_close(stored.values, values.clamp(0, 1), rtol=0, atol=1 / 65535)
    # The three are far apart here, so that no file can be taken for another.
    assert float((expected["std"] - expected["sigma"]).abs().min()) > 1e-3
    low, high = model.interval(prediction)
    half_width = read_error_map(done.files["half_width"]).values
    torch.testing.assert_close((high - low) / 2, half_width, rtol=0, atol=2 / 65535)


def test_the_interval_of_a_jpeg_includes_its_loss(model, tmp_path):
    """The PNG is about the file beside it; the NPZ is about the float mean inside it."""
    done, prediction = restored(model, tmp_path, "a.jpg", npz=True)
    std = CALIBRATION.std(prediction.sigma)
    saved = read_error_map(done.files["std"])
    loss = read_image(done.output)[0] - prediction.mean.clamp(0, 1)
    # The result has 14 x 10 pixels: blocks of 8 x 8 and what is left.
    for rows, columns in ((slice(0, 8), slice(0, 8)), (slice(8, 14), slice(8, 10))):
        variance = loss[:, :, rows, columns].square().mean((2, 3), keepdim=True)
        expected = (std[:, :, rows, columns].square() + variance).sqrt()
        values = saved.values[:, :, rows, columns]
        torch.testing.assert_close(values, expected.clamp(0, 1), rtol=0, atol=2 / 65535)
    assert saved.info["includes"].startswith("the error of saving")
    torch.testing.assert_close(read_error_map(done.files["npz"], "std").values, std)
    assert "includes" not in read_error_map(done.files["npz"], "std").info


def test_the_npz_holds_all_quantities_under_their_names(model, tmp_path):
    done, prediction = restored(model, tmp_path, npz=True)
    with np.load(done.files["npz"]) as arrays:
        assert sorted(arrays) == ["half_width", "info", "mean", "sigma", "std"]
        stored = {name: torch.from_numpy(arrays[name]) for name in arrays if name != "info"}
        info = json.loads(arrays["info"].item())
    torch.testing.assert_close(stored["mean"], prediction.mean)
    torch.testing.assert_close(stored["sigma"], prediction.sigma)
    torch.testing.assert_close(stored["std"], CALIBRATION.std(prediction.sigma))
    torch.testing.assert_close(stored["half_width"], CALIBRATION.half_width(prediction.sigma))
    assert info["half_width"]["coverage"] == "0.9"
    assert info["half_width"]["promise"] == CALIBRATION.promise
    assert info["std"]["conditions"] == CALIBRATION.conditions


def test_the_interval_file_states_coverage_method_conditions_and_promise(model, tmp_path):
    done, _ = restored(model, tmp_path, sigma=True)
    info = read_error_map(done.files["half_width"]).info
    assert info["coverage"] == "0.9"
    assert info["calibration"] == "conformal-risk-control, 100 images"
    assert info["conditions"] == CALIBRATION.conditions
    assert info["promise"] == done.promise == CALIBRATION.promise
    jpeg, _ = restored(model, tmp_path, "b.jpg", sigma=True, page=True)
    assert jpeg.promise is None
    assert "it is a JPEG" in jpeg.promise_reason
    info = read_error_map(jpeg.files["half_width"]).info
    assert info["promise"] == f"none: {jpeg.promise_reason}"
    page = jpeg.files["page"].read_text()
    assert "No promise for this picture" in page
    assert f": {jpeg.promise_reason}." in page
    assert CALIBRATION.promise not in page


def test_the_picture_shows_the_std_and_says_so(model, tmp_path):
    done, _ = restored(model, tmp_path, sigma=True)
    with Image.open(done.files["picture"]) as picture:
        assert "std: the calibrated standard deviation" in picture.text["Description"]
    plain, _ = restored(replace(model, calibration=None), tmp_path / "plain", sigma=True)
    with Image.open(plain.files["picture"]) as picture:
        assert "sigma: the absolute error" in picture.text["Description"]


def test_without_a_calibration_there_is_sigma_alone(model, tmp_path):
    done, _ = restored(replace(model, calibration=None), tmp_path, npz=True)
    assert list(done.files) == ["sigma", "picture", "npz"]
    assert all(path.is_file() for path in done.files.values())
    assert len(list((tmp_path / "out").iterdir())) == 4
    with np.load(done.files["npz"]) as arrays:
        assert sorted(arrays) == ["info", "mean", "sigma"]
    assert (done.promise, done.promise_reason) == (None, None)


def clashing(sources, options):
    sources = [ImageSource(Path(path), Path(name)) for path, name in sources]
    return sorted(path.as_posix() for path in find_clashes(sources, options))


def test_results_that_would_share_a_file_are_found():
    plain, with_maps = Options(folder=Path("out")), Options(folder=Path("out"), sigma=True)
    apart = [("in/a.png", "a.png"), ("in/b.png", "b.png"), ("in/sub/a.png", "sub/a.png")]
    assert clashing(apart, with_maps) == []
    same_name = [("one/a.png", "a.png"), ("two/a.png", "a.png"), ("two/b.png", "b.png")]
    assert clashing(same_name, plain) == ["two/a.png"]
    same_map = [("in/a.png", "a.png"), ("in/a.jpg", "a.jpg")]
    assert clashing(same_map, plain) == []
    assert clashing(same_map, with_maps) == ["in/a.jpg"]
    for ending in ("sigma", "std", "interval", "error-map"):
        map_as_source = [("in/a.png", "a.png"), (f"in/a.{ending}.png", f"a.{ending}.png")]
        assert clashing(map_as_source, with_maps) == [f"in/a.{ending}.png"]
    other_source = [("in/a.png", "a.png"), ("out/a.png", "b.png")]
    assert clashing(other_source, plain) == ["in/a.png"]


def test_names_of_all_files():
    options = Options(folder=Path("out"), npz=True, page=True)
    names = [path.name for path in output_paths(Path("out/a.b.tif"), options).values()]
    assert names == [
        "a.b.sigma.png",
        "a.b.std.png",
        "a.b.interval.png",
        "a.b.error-map.png",
        "a.b.npz",
        "a.b.html",
    ]
    assert output_paths(Path("out/a.png"), Options(folder=Path("out"))) == {}
