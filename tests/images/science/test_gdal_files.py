"""No raster makes GDAL open a file that a stranger has named."""

from pathlib import Path

import numpy as np
import pytest

from helpers.science import write_geotiff
from musigma.images.science.formats import open_science
from musigma.types import ImageError

rasterio = pytest.importorskip("rasterio", reason="needs rasterio")

VRT = """<VRTDataset rasterXSize="8" rasterYSize="8"><VRTRasterBand dataType="Byte" band="1">
<SimpleSource><SourceFilename>/etc/passwd</SourceFilename></SimpleSource>
</VRTRasterBand></VRTDataset>"""


def raster(path: Path) -> Path:
    write_geotiff(path, np.arange(64, dtype=np.uint16).reshape(1, 8, 8))
    return path


def name_overviews(path: Path, named: str) -> None:
    with rasterio.open(path, "r+") as dataset:
        dataset.update_tags(ns="OVERVIEWS", OVERVIEW_FILE=named)


@pytest.mark.parametrize("named", ["/vsicurl/http://127.0.0.1:9/x.tif", "secret.tif"])
def test_overviews_in_a_file_that_the_raster_names_are_refused(tmp_path, named):
    """Else GDAL opens that file, or asks the server, as soon as it looks for a mask."""
    path = raster(tmp_path / "a.tif")
    name_overviews(path, named)
    with pytest.raises(ImageError, match="names another file for its overviews"):
        open_science(path, "GeoTIFF")


@pytest.mark.parametrize("name", ["a.tif.msk", "a.tif.ovr", "a.tif.OVR", "a.tif.ovr.ovr"])
def test_a_mask_or_overviews_in_a_format_that_names_files_are_refused(tmp_path, name):
    path = raster(tmp_path / "a.tif")
    (tmp_path / name).write_text(VRT)
    with pytest.raises(ImageError, match="beside it is no TIFF"):
        open_science(path, "GeoTIFF")


def test_overviews_beside_a_raster_may_not_name_others(tmp_path):
    path = raster(tmp_path / "a.tif")
    name_overviews(raster(tmp_path / "a.tif.ovr"), "secret.tif")
    with pytest.raises(ImageError, match="names another file for its overviews"):
        open_science(path, "GeoTIFF")


def test_auxiliary_files_of_erdas_are_refused_and_others_are_none(tmp_path):
    path = raster(tmp_path / "a.tif")
    (tmp_path / "a.aux").write_text(r"\relax")  # of LaTeX
    open_science(path, "GeoTIFF").close()
    (tmp_path / "a.aux").write_bytes(b"EHFA_HEADER_TAG\0" + bytes(100))
    with pytest.raises(ImageError, match="is a file of Erdas"):
        open_science(path, "GeoTIFF")


@pytest.mark.parametrize("name", ["https:a.tif", "s3:a.tif", "zip:a.tif", "file:a.tif"])
def test_names_that_look_like_addresses_are_names(tmp_path, monkeypatch, name):
    """Else rasterio asks a server for the file, or the cloud for credentials."""
    raster(tmp_path / "a.tif").rename(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    image = open_science(Path(name), "GeoTIFF")
    assert image.shape == (1, 8, 8)
    image.close()


def test_an_ordinary_mask_beside_a_raster_is_read(tmp_path):
    path = raster(tmp_path / "a.tif")
    mask = np.full((8, 8), 255, np.uint8)
    mask[2] = 0
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=False), rasterio.open(path, "r+") as dataset:
        dataset.write_mask(mask)
    assert (tmp_path / "a.tif.msk").is_file()
    image = open_science(path, "GeoTIFF")
    values = image.read(0, slice(0, 8), slice(0, 8))
    image.close()
    assert np.isnan(values[2]).all()
    assert not np.isnan(values[3]).any()
