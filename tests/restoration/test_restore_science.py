"""Scientific files through the library: range of values, options, promise; and much in little."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.science import CALIBRATION, bicubic, restored, unchanged, waves, write_geotiff
from musigma.images.listing import ImageSource
from musigma.model import load, save
from musigma.networks import create
from musigma.restoration.batch import Failed, restore_files
from musigma.restoration.options import Options
from musigma.types import ConfigError, ImageError

rasterio = pytest.importorskip("rasterio", reason="needs rasterio (musigma[science])")


def scene(folder, dtype="uint16", high=9000, num_bands=1, name="a.tif"):
    bands = np.stack([waves(20, 30, high=high, seed=n) for n in range(num_bands)]).astype(dtype)
    write_geotiff(folder / name, bands)
    return folder / name


def test_the_range_is_declared_measured_or_given(tmp_path):
    done = restored(bicubic(), scene(tmp_path))
    assert (done.science.low, done.science.high) == (0, 65535)
    assert done.science.range_origin == "declared by the file"
    assert "--range suits better" in done.warnings[0]
    done = restored(bicubic(), scene(tmp_path, "float32"))
    assert done.science.range_origin == "measured in the file"
    assert 0 < done.science.low < done.science.high < 9000
    assert "was measured; give --range" in done.warnings[0]
    done = restored(bicubic(), scene(tmp_path, "float32", 0.9))
    assert (done.science.low, done.science.high) == (0, 1)
    done = restored(bicubic(), scene(tmp_path), value_range=(0, 10_000))
    assert (done.science.low, done.science.high, done.warnings) == (0, 10_000, [])


def test_weights_of_five_channels_bring_their_range(tmp_path):
    network = create("fsrcnn", scale=2, channels=5)
    save(tmp_path / "own.safetensors", network, value_range=(0, 10_000))
    model = load(tmp_path / "own.safetensors")
    done = restored(model, scene(tmp_path, num_bands=5))
    assert (done.science.low, done.science.high) == (0, 10_000)
    assert done.science.range_origin == "stored with the weights"
    assert done.science.applied == "all 5 bands jointly"
    with rasterio.open(tmp_path / "a.tif") as source, rasterio.open(done.output) as result:
        image = torch.from_numpy(source.read().astype(np.float32) / 10_000)[None]
        expected = model.predict(image).mean[0].double().numpy() * 10_000
        np.testing.assert_allclose(result.read(), expected.clip(0, 65535), atol=0.51)
    wrong = replace(model, metadata={"value_range": "large"})
    with pytest.raises(ConfigError, match="value_range of the weights must be two numbers"):
        restored(wrong, scene(tmp_path, num_bands=5))


def test_no_range_can_be_found_where_all_values_are_equal(tmp_path):
    write_geotiff(tmp_path / "a.tif", np.full((1, 9, 9), 7, np.float32))
    with pytest.raises(ImageError, match="its values are all 7; give the range of values"):
        restored(bicubic(), tmp_path / "a.tif")


def test_a_tiff_with_a_range_needs_no_georeference(tmp_path):
    bands = waves(20, 30, high=9000)[None].astype(np.float32)
    write_geotiff(tmp_path / "a.tif", bands, transform=None, crs=None)
    with pytest.raises(ImageError):
        restored(unchanged(), tmp_path / "a.tif")
    done = restored(unchanged(), tmp_path / "a.tif", value_range=(0, 10_000))
    with pytest.warns(rasterio.errors.NotGeoreferencedWarning):
        result = rasterio.open(done.output)
    with result:
        np.testing.assert_array_equal(result.read(1), bands[0])


def test_a_photograph_has_no_range(tmp_path):
    from PIL import Image

    Image.new("RGB", (5, 5)).save(tmp_path / "a.png")
    with pytest.raises(ImageError, match=r"a\.png: is an ordinary picture, whose range of values"):
        restored(bicubic(), tmp_path / "a.png", value_range=(0, 1))


@pytest.mark.parametrize("option", [{"npz": True}, {"page": True}, {"size": (90, None)}])
def test_options_for_photographs_are_refused(tmp_path, option):
    with pytest.raises(ImageError, match="is a scientific file, for which there is no"):
        restored(unchanged(), scene(tmp_path), **option)
    assert not (tmp_path / "out").exists()


def test_another_format_is_refused(tmp_path):
    source = ImageSource(scene(tmp_path), Path("a.png"))
    (outcome,) = restore_files(bicubic(), [source], Options(folder=tmp_path / "out"))
    assert isinstance(outcome, Failed)
    assert "a GeoTIFF file is written in its own format, not as .png" in outcome.error


def test_weights_for_photographs_promise_nothing(tmp_path):
    done = restored(unchanged(), scene(tmp_path))
    assert done.promise is None
    reason = "it holds measured values, and the model is calibrated on photographs"
    assert reason in done.promise_reason
    with rasterio.open(done.output) as result:
        assert result.tags()["MUSIGMA_PROMISE"] == f"none: {done.promise_reason}"
    suited = replace(CALIBRATION, data={"name": "scenes", "formats": ["GeoTIFF"]})
    done = restored(unchanged(calibration=suited), scene(tmp_path))
    assert done.promise == suited.promise


def test_without_a_calibration_the_plane_is_called_sigma(tmp_path):
    done = restored(unchanged(calibration=None), scene(tmp_path))
    assert (done.science.error_quantity, done.science.interval_factor) == ("sigma", None)
    with rasterio.open(done.output) as result:
        assert "not calibrated" in result.tags()["MUSIGMA_MEANING"]


def test_scientific_files_and_photographs_in_one_batch(tmp_path):
    from PIL import Image

    Image.new("RGB", (5, 5)).save(tmp_path / "b.png")
    paths = [scene(tmp_path), tmp_path / "b.png", scene(tmp_path, name="c.tif")]
    (tmp_path / "c.tif").write_bytes(paths[0].read_bytes()[:400])
    steps = []
    outcomes = restore_files(
        bicubic(),
        [ImageSource(path, Path(path.name)) for path in paths],
        Options(folder=tmp_path / "out"),
        progress=lambda source, done, total: steps.append((source.path.name, done, total)),
    )
    by_name = {outcome.source.name: outcome for outcome in outcomes}
    assert isinstance(by_name["c.tif"], Failed)
    assert by_name["a.tif"].science.format == "GeoTIFF"
    assert by_name["b.png"].science is None
    assert steps == [("a.tif", 1, 1), ("b.png", 1, 1)]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.tif", "b.png"]


def test_too_little_memory_is_told_with_what_is_needed(tmp_path):
    path = scene(tmp_path)
    with pytest.raises(ImageError, match="rows of 60 pixels and one tile need 1 MiB") as error:
        restored(bicubic(), path, memory=2**17)
    assert str(error.value).endswith("set `memory` to that or more")


FULL_DISK = """
import resource, signal, sys
from musigma.cli.main import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
main()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs the limits of Linux")
@pytest.mark.parametrize("compress", [None, "deflate"])
def test_a_full_disk_leaves_no_result(tmp_path, compress):
    noise = np.random.default_rng(0).integers(1, 255, (1, 400, 400), np.uint8)
    profile = {"compress": compress} if compress else {}
    write_geotiff(tmp_path / "a.tif", noise, **profile)
    words = ["upscale", tmp_path / "a.tif", "-o", tmp_path / "out", "--model", "bicubic", "-s", "2"]
    command = [sys.executable, "-c", FULL_DISK, *map(str, words), "--device", "cpu"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "error: " in done.stderr
    assert not list((tmp_path / "out").glob("*.tif"))


PROGRAM = """
import resource, sys
from musigma.cli.main import main
resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))
main()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs the limits of Linux")
def test_forty_megapixels_in_one_gibibyte(tmp_path):
    """The float result alone would take 1.9 GB."""
    from rasterio.windows import Window

    row = waves(1, 8000, high=250).astype(np.uint8)
    write_geotiff(tmp_path / "small.tif", np.ones((1, 1, 1), np.uint8))
    with rasterio.open(tmp_path / "small.tif") as small:
        profile = small.profile | {"height": 5000, "width": 8000, "tiled": False}
    with rasterio.open(tmp_path / "a.tif", "w", **profile) as dataset:
        for top in range(0, 5000, 500):
            rows = np.repeat(row, 500, 0) + (np.arange(500) % 5).astype(np.uint8)[:, None]
            dataset.write(rows, 1, window=Window(0, top, 8000, 500))
    words = ["upscale", tmp_path / "a.tif", "-o", tmp_path / "out", "--model", "bicubic", "-s", "2"]
    words += ["--memory", "300MiB", "--device", "cpu", "--json"]
    command = [sys.executable, "-c", PROGRAM, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (entry,) = json.loads(done.stdout)["done"]
    assert (entry["width"], entry["height"]) == (16_000, 10_000)
    assert entry["science"]["format"] == "GeoTIFF"
    with rasterio.open(tmp_path / "a.tif") as source:
        crop = source.read(1, window=Window(2990, 3990, 120, 120))
    expected = bicubic().predict(crop).mean[0, 0].numpy()[20:-20, 20:-20] * 255
    with rasterio.open(entry["output"]) as result:
        values = result.read(1, window=Window(6000, 8000, 200, 200))
    np.testing.assert_allclose(values, expected.clip(0, 255), atol=0.51)
