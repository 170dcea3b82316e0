"""Files of hundreds of planes: the work is done for many of them at once."""

from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.science import write_geotiff
from musigma.images.listing import ImageSource
from musigma.images.science import band_runs
from musigma.images.science.band_runs import BandReader, BandWriter
from musigma.images.science.formats import open_science
from musigma.model import Model
from musigma.networks import create, with_sigma
from musigma.restoration import plane_groups
from musigma.restoration.batch import restore_files
from musigma.restoration.options import Options
from musigma.restoration.restore_science import _few
from musigma.types import ImageError

rasterio = pytest.importorskip("rasterio", reason="needs rasterio")


STORED = {"interleave": "pixel", "compress": "deflate"}


class Counted:
    """A raster in memory that counts calls; for each of them rasterio looks at all bands."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.calls = values, 0
        self.dtypes = [values.dtype.name] * len(values)

    def read(self, bands, window):
        self.calls += 1
        rows, columns = window.toslices()
        return self.values[[band - 1 for band in bands], rows, columns]

    def write(self, samples, bands, window):
        self.calls += 1
        rows, columns = window.toslices()
        self.values[[band - 1 for band in bands], rows, columns] = samples


def test_small_bands_are_read_in_few_calls():
    values = np.random.default_rng(0).integers(0, 999, (700, 8, 6)).astype(np.uint16)
    dataset = Counted(values)
    bands = tuple(range(1, 701, 2))  # not all of them
    reader = BandReader(dataset, bands)
    for index, band in enumerate(bands):
        for rows, columns in ((slice(0, 8), slice(0, 6)), (slice(2, 5), slice(1, 3))):
            part = reader.read(index, rows, columns)
            np.testing.assert_array_equal(part, values[band - 1, rows, columns])
    assert dataset.calls == 2


def test_large_bands_are_read_one_by_one_and_not_kept():
    dataset = Counted(np.zeros((3, 600, 600), np.uint16))
    reader = BandReader(dataset, (1, 2, 3))
    for index in (0, 1, 2, 0):
        reader.read(index, slice(0, 600), slice(0, 600))
    assert dataset.calls == 4


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr(band_runs, "KEPT_BYTES", 4000)
    values = np.arange(40 * 64 * 8, dtype=np.uint8).reshape(40, 64, 8)
    reader = BandReader(Counted(values), tuple(range(1, 41)))
    for top in range(0, 64, 8):
        part = reader.read(5, slice(top, top + 8), slice(0, 8))
        np.testing.assert_array_equal(part, values[5, top : top + 8])
        assert sum(run.nbytes for run in reader._runs.values()) <= 4000


def test_small_bands_are_written_in_few_calls():
    values = np.random.default_rng(0).integers(0, 999, (300, 8, 6)).astype(np.uint16)
    dataset = Counted(np.zeros_like(values))
    writer = BandWriter(dataset)
    for band, samples in enumerate(values, 1):
        writer.write(band, 0, samples[:5])
        writer.write(band, 5, samples[5:])
    writer.finish()
    np.testing.assert_array_equal(dataset.values, values)
    assert dataset.calls == 2


def test_a_file_of_many_bands_is_restored_band_by_band(tmp_path, monkeypatch):
    """What the network gets together is what it would get one by one, and no band is misplaced."""
    torch.manual_seed(0)
    values = np.random.default_rng(0).integers(0, 60000, (90, 13, 17)).astype(np.uint16)
    write_geotiff(tmp_path / "bands.tif", values, **STORED)
    source = ImageSource(tmp_path / "bands.tif", Path("bands.tif"))
    network = with_sigma(create("edsr-baseline", scale=2, num_blocks=1, width=8), width=8)
    model = Model(network=network.eval(), name="tiny")
    results = []
    for name, pixels in (("together", plane_groups.SMALL_PLANE), ("alone", 0)):
        monkeypatch.setattr(plane_groups, "SMALL_PLANE", pixels)
        options = Options(folder=tmp_path / name)
        list(restore_files(model, [source], options))
        path = tmp_path / name / "bands.tif"
        assert path.stat().st_size < 4 * 90 * 2 * 2 * 4 * 13 * 17
        with rasterio.open(path) as file:
            assert file.count == 180
            results.append(file.read().astype(np.int64))
    assert np.abs(results[0] - results[1]).max() <= 1  # rounding to integers
    assert len(np.unique(results[0][:90].mean((1, 2)))) > 80


def test_more_bands_than_rasterio_can_handle_are_refused(tmp_path):
    path = tmp_path / "bands.tif"
    write_geotiff(path, np.zeros((4097, 2, 2), np.uint8), **STORED)
    with pytest.raises(ImageError, match=r"has 4,097 bands, and at most 4,096 are restored"):
        open_science(path, "GeoTIFF")


def test_of_very_many_parts_that_are_left_out_a_few_are_named():
    assert _few(["a", "b"]) == "a, b"
    text = _few([f"the extension E{n}" for n in range(2000)])
    assert text.endswith("the extension E15, and 1984 more")
