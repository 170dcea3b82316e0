"""``musigma upscale`` and ``denoise`` on scientific files."""

import json

import numpy as np
import pytest

from helpers.science import waves, write_geotiff

rasterio = pytest.importorskip("rasterio", reason="needs rasterio (musigma[science])")


@pytest.fixture
def scene(tmp_path):
    bands = np.stack([waves(20, 30, high=9000, seed=n) for n in range(5)]).astype(np.uint16)
    write_geotiff(tmp_path / "scene.tif", bands)
    return tmp_path / "scene.tif"


def test_upscale_tells_how_it_was_done(musigma, weights, scene, tmp_path):
    words = (scene, "-o", tmp_path / "out", "--model", weights, "--range", "0,10000", "--json")
    result = musigma("upscale", *words)
    assert result.errors == []
    (entry,) = json.loads(result.out)["done"]
    assert (entry["width"], entry["height"]) == (60, 40)
    assert entry["science"]["bands"] == [f"band {n}" for n in range(1, 6)]
    assert entry["science"]["applied"].startswith("band by band")
    assert (entry["science"]["low"], entry["science"]["high"]) == (0, 10_000)
    with rasterio.open(tmp_path / "out" / "scene.tif") as restored:
        assert restored.count == 10
        assert restored.dtypes[0] == "uint16"
        assert restored.res == (5.0, 5.0)


def test_an_output_may_be_a_fits_file(musigma, weights, tmp_path):
    fits = pytest.importorskip("astropy.io.fits", reason="needs astropy (musigma[science])")
    fits.PrimaryHDU(waves(18, 25).astype(np.float32)).writeto(tmp_path / "a.fits")
    result = musigma("upscale", tmp_path / "a.fits", "-o", tmp_path / "b.fits", "--model", weights)
    assert result.errors == []
    with fits.open(tmp_path / "b.fits") as restored:
        assert [hdu.name for hdu in restored] == ["PRIMARY", "SCI", "ERR"]
        assert restored["ERR"].data.shape == (36, 50)


def test_resume_skips_what_is_done_with_the_same_range(musigma, weights, scene, tmp_path):
    words = ("upscale", scene, "-o", tmp_path / "out", "--model", weights, "--resume", "--json")
    assert len(json.loads(musigma(*words).out)["done"]) == 1
    assert json.loads(musigma(*words).out)["skipped"] == [str(scene)]
    assert len(json.loads(musigma(*words, "--range", "0,9000").out)["done"]) == 1


@pytest.mark.parametrize("text", ["5", "9,1", "a,b", "0,inf"])
def test_a_wrong_range_is_refused(musigma, weights, scene, tmp_path, text):
    result = musigma("upscale", scene, "-o", tmp_path, "--model", weights, "--range", text)
    assert result.code == 2
    assert "expected --range LOW,HIGH with LOW below HIGH" in result.errors[0]


def test_denoise_writes_the_same_size(musigma, scene, tmp_path):
    words = ("denoise", scene, "-o", tmp_path / "out", "--noise-std", "10", "--range", "0,9000")
    assert musigma(*words).errors == []
    with rasterio.open(tmp_path / "out" / "scene.tif") as restored:
        assert (restored.count, restored.height, restored.width) == (10, 20, 30)
        assert restored.descriptions[5] == "sigma band 1"
