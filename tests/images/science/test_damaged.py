"""Damaged scientific files: a short line or a result, and never another kind of error."""

import logging
import warnings

import numpy as np
import pytest

from helpers.science import bicubic, restored, waves, write_geotiff
from musigma.types import ImageError


def write_sample(path):
    data = waves(18, 25, high=3000).astype(np.float32)
    if path.suffix == ".fits":
        fits = pytest.importorskip("astropy.io.fits", reason="needs astropy (musigma[science])")
        fits.PrimaryHDU(data).writeto(path)
    elif path.suffix == ".exr":
        exr = pytest.importorskip("OpenEXR", reason="needs OpenEXR (musigma[science])")
        exr.File({"compression": exr.ZIP_COMPRESSION}, {"Y": data}).write(str(path))
    elif path.suffixes == [".ome", ".tif"]:
        tifffile = pytest.importorskip("tifffile", reason="needs tifffile (musigma[science])")
        tifffile.imwrite(path, data, metadata={"axes": "YX"}, compression="zlib")
    else:
        pytest.importorskip("rasterio", reason="needs rasterio (musigma[science])")
        write_geotiff(path, data[None], compress="deflate")


def error_of(path):
    """Restore a file; return the text of the refusal, or `None` where there is a result."""
    try:
        restored(bicubic(), path, value_range=(0, 3000), max_pixels=100_000)
    except ImageError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", ["a.tif", "a.ome.tif", "a.fits", "a.exr"])
def test_more_pixels_than_the_limit_are_refused(tmp_path, name):
    write_sample(tmp_path / name)
    with pytest.raises(ImageError, match=r"planes of 450 pixels .* limit of 449; .*`max_pixels`"):
        restored(bicubic(), tmp_path / name, value_range=(0, 3000), max_pixels=449)
    assert restored(bicubic(), tmp_path / name, value_range=(0, 3000), max_pixels=450)


def test_a_sparse_file_of_a_few_bytes_is_refused(tmp_path):
    rasterio = pytest.importorskip("rasterio", reason="needs rasterio (musigma[science])")
    size = {"width": 100_000, "height": 100_000, "count": 1, "dtype": "uint8"}
    blocks = {"tiled": True, "blockxsize": 4096, "blockysize": 4096, "sparse_ok": True}
    crs = {"crs": "EPSG:32632", "transform": rasterio.Affine(10, 0, 5e5, 0, -10, 54e5)}
    path = tmp_path / "sparse.tif"
    rasterio.open(path, "w", driver="GTiff", **size, **blocks, **crs).close()
    assert path.stat().st_size < 20_000
    with pytest.raises(ImageError, match=r"declares planes of 10,000,000,000 pixels, and has \d"):
        restored(bicubic(), path)


@pytest.mark.parametrize("name", ["a.tif", "a.ome.tif", "a.fits", "a.exr"])
def test_damaged_bytes(tmp_path, name, monkeypatch):
    # The libraries tell of damage in their own ways, too.
    monkeypatch.setattr(logging.getLogger("tifffile"), "disabled", True)
    path = tmp_path / name
    write_sample(path)
    data = path.read_bytes()
    random = np.random.default_rng(0)
    num_refused = 0
    for trial in range(40):
        damaged = bytearray(data)
        if trial % 4 == 0:
            del damaged[random.integers(4, len(data)) :]
        for position in random.integers(4, min(len(data), 600), 3):
            if position < len(damaged):
                damaged[position] = random.integers(256)
        path.write_bytes(damaged)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            text = error_of(path)
        if text is not None:
            num_refused += 1
            assert text.startswith(str(path))
            assert "\n" not in text
    assert num_refused > 0
