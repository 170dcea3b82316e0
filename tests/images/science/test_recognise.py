"""Scientific files are told by their content; the name and the installed packages do not matter."""

import gzip
import struct

import numpy as np
import pytest
from PIL import Image

from helpers.science import bicubic, restored
from musigma.images.science import formats
from musigma.images.science.recognise import science_format
from musigma.types import ImageError


def tiff_of(tags, order="<", big=False):
    """Return the bytes of a TIFF that has nothing but a list of tags: (tag, type, count, value)."""
    mark = b"II" if order == "<" else b"MM"
    entries = b"".join(
        struct.pack(f"{order}HH{'Q' if big else 'I'}", tag, field_type, count)
        + value.ljust(8 if big else 4, b"\0")
        for tag, field_type, count, value in tags
    )
    if big:
        start = mark + struct.pack(f"{order}HHHQ", 43, 8, 0, 16)
        return start + struct.pack(f"{order}Q", len(tags)) + entries + bytes(8)
    return mark + struct.pack(f"{order}HIH", 42, 8, len(tags)) + entries + bytes(4)


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("order", ["<", ">"])
def test_tags_of_all_kinds_of_tiff(tmp_path, order, big):
    path = tmp_path / "a.tif"
    samples = [(277, 3, 1, struct.pack(f"{order}H", n)) for n in (3, 5)]
    for tags, expected in (
        ([samples[0]], None),
        ([samples[1]], "GeoTIFF"),
        ([samples[0], (34735, 3, 1, b"\0\0")], "GeoTIFF"),
        ([(270, 2, 4, b"<OME"), samples[0]], "OME-TIFF"),
    ):
        path.write_bytes(tiff_of(tags, order, big))
        assert science_format(path) == expected


def test_other_formats(tmp_path):
    for start, expected in (
        (b"SIMPLE  =                    T", "FITS"),
        (b"\x76\x2f\x31\x01\2\0\0\0", "EXR"),
        (b"\x89PNG", None),
        (b"II*\0", None),
        (b"II*\0\xff\xff\xff\xff", None),
        (b"", None),
    ):
        (tmp_path / "a").write_bytes(start)
        assert science_format(tmp_path / "a") == expected
    assert science_format(tmp_path / "missing") is None


def test_a_photograph_in_a_tiff_goes_the_usual_way(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (9, 8, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.tif", dpi=(300, 300), description="on holiday")
    assert science_format(tmp_path / "a.tif") is None
    done = restored(bicubic(), tmp_path / "a.tif")
    assert done.science is None
    with Image.open(done.output) as result:
        assert (result.size, result.mode) == ((16, 18), "RGB")


def test_a_world_file_beside_a_tiff_says_where_it_lies(tmp_path):
    rasterio = pytest.importorskip("rasterio", reason="needs rasterio (musigma[science])")
    Image.new("RGB", (8, 9)).save(tmp_path / "map.tif")
    (tmp_path / "map.tfw").write_text("10\n0\n0\n-10\n500005\n5399995\n")
    assert science_format(tmp_path / "map.tif") == "GeoTIFF"
    done = restored(bicubic(), tmp_path / "map.tif")
    with rasterio.open(done.output) as result:
        assert result.transform == rasterio.Affine(5, 0, 500_000, 0, -5, 5_400_000)


def test_what_gzip_has_compressed_is_named(tmp_path):
    (tmp_path / "a.fits").write_bytes(gzip.compress(b"SIMPLE  ="))
    with pytest.raises(ImageError, match="is compressed by gzip; unpack it"):
        restored(bicubic(), tmp_path / "a.fits")


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(formats, "import_module", absent)
    (tmp_path / "a.fits").write_bytes(b"SIMPLE  =                    T")
    with pytest.raises(ImageError, match=r"is a FITS file, and astropy is not installed") as error:
        restored(bicubic(), tmp_path / "a.fits")
    assert str(error.value).endswith("pip install 'musigma[science]'")
