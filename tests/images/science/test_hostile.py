"""Scientific files made to do harm: no other file is read, and memory is bounded before."""

import gzip
import io
import os
import resource
import struct
import zlib

import numpy as np
import pytest

from helpers.science import bicubic, restored, waves
from musigma.images.science.quiet import silent_stderr
from musigma.types import ImageError, short_repr

MIB = 2**20
OME = "http://www.openmicroscopy.org/Schemas/OME/2016-06"


def refusal(path, **options):
    """Return why a file is refused; the process must not grow by much meanwhile."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ImageError) as caught:
        restored(bicubic(), path, value_range=(0, 3000), **options)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < 150, f"{grown:.0f} MiB"
    text = str(caught.value)
    assert "\n" not in text
    return text


def write_ome(
    path, *, sizes='SizeC="1" SizeZ="1" SizeT="1"', data="<TiffData/>", more="", **options
):
    tifffile = pytest.importorskip("tifffile", reason="needs tifffile (musigma[science])")
    text = (
        f'<?xml version="1.0" encoding="UTF-8"?><OME xmlns="{OME}"><Image ID="Image:0">'
        f'<Pixels ID="Pixels:0" DimensionOrder="XYCZT" Type="uint16" SizeX="20" SizeY="24" {sizes}>'
        f"{data}</Pixels></Image>{more}</OME>"
    )
    picture = np.full((24, 20), 100, np.uint16)
    tifffile.imwrite(path, picture, description=text.encode(), metadata=None, **options)
    return path


@pytest.mark.parametrize("place", ["absolute", "above", "beside"])
def test_names_in_a_description_are_not_opened(tmp_path, place):
    (tmp_path / "in").mkdir()
    secret = {"absolute": tmp_path, "above": tmp_path, "beside": tmp_path / "in"}[
        place
    ] / "s.ome.tif"
    write_ome(secret)
    named = {"absolute": str(secret), "above": "../s.ome.tif", "beside": "s.ome.tif"}[place]
    uuid = f'<UUID FileName="{named}">urn:uuid:0</UUID>'
    data = f'<TiffData IFD="0" PlaneCount="1">{uuid}</TiffData>'
    text = refusal(write_ome(tmp_path / "in" / "a.ome.tif", data=data))
    assert "pictures of its stack are in another file" in text
    assert short_repr(named) in text


def test_a_file_that_names_itself_is_read(tmp_path):
    uuid = '<UUID FileName="a.ome.tif">urn:uuid:0</UUID>'
    path = write_ome(tmp_path / "a.ome.tif", data=f'<TiffData IFD="0">{uuid}</TiffData>')
    assert restored(bicubic(), path, value_range=(0, 3000)).output.is_file()


MODULO = (
    '<StructuredAnnotations><XMLAnnotation ID="Annotation:0" Namespace="x/modulo"><Value><Modulo>'
    '<ModuloAlongZ Type="other" Start="0" End="3000000000"/></Modulo></Value></XMLAnnotation>'
    "</StructuredAnnotations>"
)


@pytest.mark.parametrize(
    "changes",
    [
        {"sizes": 'SizeC="1" SizeZ="300000000" SizeT="1"'},
        {"sizes": 'SizeC="30000" SizeZ="30000" SizeT="30000"'},
        {"data": '<TiffData PlaneCount="300000000"/>'},
        {"data": '<TiffData IFD="0" NumPlanes="300000000"/>'},
        {"more": MODULO},
    ],
)
def test_a_stack_of_more_pictures_than_the_file_has(tmp_path, changes):
    text = refusal(write_ome(tmp_path / "a.ome.tif", **changes))
    assert "pictures of the stack are missing: there are 1" in text


def test_sizes_below_one(tmp_path):
    sizes = 'SizeC="-30000" SizeZ="1" SizeT="30000"'
    assert "sizes [-30000, 1, 30000]" in refusal(write_ome(tmp_path / "a.ome.tif", sizes=sizes))


def test_bits_that_the_type_does_not_have(tmp_path):
    sizes = 'SizeC="1" SizeZ="1" SizeT="1" SignificantBits="9999999999"'
    path = write_ome(tmp_path / "a.ome.tif", sizes=sizes)
    assert restored(bicubic(), path).science.high == 65535


def test_a_compressed_picture_that_becomes_too_long(tmp_path):
    tifffile = pytest.importorskip("tifffile", reason="needs tifffile (musigma[science])")
    path = write_ome(tmp_path / "a.ome.tif", compression="zlib")
    content, long = bytearray(path.read_bytes()), zlib.compress(bytes(400 * MIB))
    with tifffile.TiffFile(path) as file:
        offset, size = (file.pages[0].tags[code].valueoffset for code in (273, 279))
    content[offset : offset + 4] = struct.pack("<I", len(content))
    content[size : size + 4] = struct.pack("<I", len(long))
    path.write_bytes(bytes(content) + long)
    assert "compressed data are longer than its pictures" in refusal(path)


def test_a_compressed_fits_is_looked_at_before_it_is_unpacked(tmp_path):
    fits = pytest.importorskip("astropy.io.fits", reason="needs astropy (musigma[science])")
    path = tmp_path / "a.fits"
    picture = fits.CompImageHDU(
        np.zeros((64, 64), np.int16), compression_type="GZIP_1", tile_shape=(64, 64)
    )
    fits.HDUList([fits.PrimaryHDU(), picture]).writeto(path)
    content = path.read_bytes()
    for axis in (1, 2):
        small, large = (f"ZNAXIS{axis} = {side:>20}".encode() for side in (64, 16000))
        assert small in content
        content = content.replace(small, large)
    path.write_bytes(content)
    assert "declares planes of 256,000,000 pixels" in refusal(path)
    path.write_bytes(content + bytes(20_000))
    assert "reading it needs 489 MiB at once, and 256 are allowed" in refusal(
        path, memory=256 * MIB
    )


def compressed_fits(path, kind, values, shape):
    """Write a compressed picture; return the file and where its tiles begin."""
    fits = pytest.importorskip("astropy.io.fits", reason="needs astropy (musigma[science])")
    picture = fits.CompImageHDU(values, compression_type=kind, tile_shape=shape)
    fits.HDUList([fits.PrimaryHDU(), picture]).writeto(path)
    with fits.open(path, disable_image_compression=True) as file:
        table = file[1]
        return path.read_bytes(), table.fileinfo()["datLoc"] + table.size - table.header["PCOUNT"]


@pytest.mark.parametrize("sides", [(17, 20), (0, 0), (2**31 - 1, 2), (20, 16)])
def test_a_tile_of_hcompress_that_declares_another_size(tmp_path, sides):
    """The decoder would write behind the end of its memory, or divide by zero."""
    path = tmp_path / "a.fits"
    values = np.arange(32 * 40, dtype=np.int32).reshape(32, 40)
    content, start = compressed_fits(path, "HCOMPRESS_1", values, (16, 20))
    assert content[start : start + 10] == b"\xdd\x99" + struct.pack(">ii", 16, 20)
    path.write_bytes(content[: start + 2] + struct.pack(">ii", *sides) + content[start + 10 :])
    assert f"a tile of [16, 20] declares the sizes {list(sides)}" in refusal(path)


@pytest.mark.parametrize("kind", ["GZIP_1", "GZIP_2", "HCOMPRESS_1"])
def test_tiles_of_no_size(tmp_path, kind):
    path = tmp_path / "a.fits"
    content, _ = compressed_fits(path, kind, np.zeros((32, 40), np.int32), (16, 20))
    path.write_bytes(with_card(content, b"ZTILE1  = -1"))
    assert "ZTILE1 is -1, and cannot be less than 1" in refusal(path)


@pytest.mark.parametrize("kind", ["GZIP_1", "GZIP_2"])
def test_a_compressed_fits_tile_that_becomes_too_long(tmp_path, kind):
    path = tmp_path / "a.fits"
    content, start = compressed_fits(path, kind, np.zeros((32, 40), np.int32), (32, 40))
    long = gzip.compress(bytes(400 * MIB))
    content = with_card(content[:start] + long + bytes(2880), b"PCOUNT  = %d" % len(long))
    path.write_bytes(content[: start - 8] + struct.pack(">ii", len(long), 0) + content[start:])
    assert "its compressed data are longer than its picture" in refusal(path)


@pytest.mark.parametrize("place", [(-5, 8), (0, 10**9), (10**9, 8), (10**9, -(10**9))])
def test_a_compressed_fits_tile_that_lies_elsewhere(tmp_path, place):
    path = tmp_path / "a.fits"
    content, start = compressed_fits(path, "RICE_1", np.zeros((32, 40), np.int32), (32, 40))
    first, size = place
    path.write_bytes(content[: start - 8] + struct.pack(">ii", size, first) + content[start:])
    assert "a tile lies outside of its part of the file" in refusal(path)


def test_reading_one_large_compressed_tile_needs_memory(tmp_path):
    path = tmp_path / "a.fits"
    compressed_fits(path, "RICE_1", np.zeros((1000, 1000), np.int16), (1000, 1000))
    # The picture has 2 bytes for a pixel, and the unpacked tile 4 in each of up to four copies.
    assert "reading it needs 18 MiB at once" in refusal(path, memory=10 * MIB)


def test_a_fits_file_whose_mark_of_missing_values_is_a_text(tmp_path):
    fits = pytest.importorskip("astropy.io.fits", reason="needs astropy (musigma[science])")
    path = tmp_path / "a.fits"
    picture = fits.PrimaryHDU(waves(18, 25, high=3000).astype(np.int16))
    picture.writeto(path)
    content = path.read_bytes()
    end = b"END".ljust(80)
    path.write_bytes(content.replace(end + b" " * 80, b"BLANK   = 'x'".ljust(80) + end, 1))
    assert restored(bicubic(), path, value_range=(0, 3000)).output.is_file()


def fits_bytes(*parts):
    """Return a FITS file of a small picture and of further parts."""
    fits = pytest.importorskip("astropy.io.fits", reason="needs astropy (musigma[science])")
    stream = io.BytesIO()
    fits.HDUList([fits.PrimaryHDU(waves(18, 25).astype("f4")), *parts]).writeto(stream)
    return stream.getvalue()


def with_card(content, card):
    """Change a card of the last header in which it stands, or add it to the first header."""
    place = content.rfind(card.split(b"=")[0] + b"=")
    if place >= 0:
        return content[:place] + card.ljust(80) + content[place + 80 :]
    end = b"END".ljust(80)
    return content.replace(end + b" " * 80, card.ljust(80) + end, 1)


@pytest.mark.parametrize(
    ("card", "text"),
    [
        (b"NAXIS2  = 'xxxxxxxxxx'", "NAXIS2 is 'xxxxxxxxxx', where a whole number was expected"),
        (b"NAXIS2  = 1.8E1", "NAXIS2 is 1.8E1, where"),
        (b"NAXIS2  = -18", "NAXIS2 is -18, and cannot be less than 0"),
        (b"GCOUNT  = 'x'", "GCOUNT is 'x', where"),
        (b"NAXIS1= 26", "NAXIS1 is both 25 and 26"),
        (b"TFIELDS = 9999999999", "declares 9999999999 columns, more than 999"),
    ],
)
def test_sizes_of_a_fits_file_that_are_none(tmp_path, card, text):
    """astropy multiplies them before it looks at them: a text would be repeated."""
    path = tmp_path / "a.fits"
    path.write_bytes(with_card(fits_bytes(), card))
    assert text in refusal(path)


@pytest.mark.parametrize("has_groups", [False, True])
def test_no_part_of_a_fits_file_hides_from_the_check(tmp_path, has_groups):
    fits = pytest.importorskip("astropy.io.fits", reason="needs astropy (musigma[science])")
    table = fits.BinTableHDU(np.zeros(3, [("a", "i4")]))
    content = with_card(fits_bytes(table), b"TFIELDS = 9999999999")
    if has_groups:  # then the first axis does not count
        axis = b"NAXIS1  = %20d"
        assert axis % 25 in content
        content = with_card(content, b"GROUPS  = T").replace(axis % 25, axis % 0, 1)
    path = tmp_path / "a.fits"
    path.write_bytes(content)
    assert "declares 9999999999 columns" in refusal(path)


def test_what_lies_behind_the_last_part_of_a_fits_file_is_not_read(tmp_path):
    path = tmp_path / "a.fits"
    path.write_bytes(fits_bytes())
    with path.open("r+b") as file:
        file.truncate(2**32)
    assert restored(bicubic(), path, value_range=(0, 1)).output.is_file()


def test_a_fits_header_without_an_end(tmp_path):
    path = tmp_path / "a.fits"
    path.write_bytes(fits_bytes().replace(b"END".ljust(80), b"".ljust(80)))
    assert "a header has no END" in refusal(path)
    with path.open("r+b") as file:
        file.truncate(2**32)
    assert "a header has no END within its first 4 MiB" in refusal(path)


@pytest.mark.parametrize("bits", [0x7F800001, 0x7FC00000])
def test_every_kind_of_nan_is_a_missing_value(tmp_path, bits, recwarn):
    fits = pytest.importorskip("astropy.io.fits", reason="needs astropy (musigma[science])")
    values = waves(18, 25).astype(">f4")
    values.view(">u4")[3, 4] = bits
    fits.PrimaryHDU(values).writeto(tmp_path / "a.fits")
    done = restored(bicubic(), tmp_path / "a.fits", value_range=(0, 1))
    assert np.isnan(fits.getdata(done.output, "SCI")).sum() == 4
    assert [str(each.message) for each in recwarn if each.category is RuntimeWarning] == []


def test_a_block_of_a_geotiff_that_does_not_fit(tmp_path):
    rasterio = pytest.importorskip("rasterio", reason="needs rasterio (musigma[science])")
    size = {"width": 900, "height": 1000, "count": 1, "dtype": "float64"}
    blocks = {"tiled": True, "blockxsize": 16384, "blockysize": 16384, "sparse_ok": True}
    place = {"crs": "EPSG:32632", "transform": rasterio.Affine(10, 0, 5e5, 0, -10, 54e5)}
    path = tmp_path / "a.tif"
    rasterio.open(path, "w", driver="GTiff", **size, **blocks, **place).close()
    assert "reading it needs 4096 MiB at once" in refusal(path, memory=256 * MIB)


def write_exr(path, *, channels, width, height):
    """Write an EXR file whose table of rows leads nowhere."""

    def attribute(name, kind, value):
        return f"{name}\0{kind}\0".encode() + struct.pack("<I", len(value)) + value

    names = [f"c{n:04}\0".encode() + struct.pack("<iB3xii", 2, 0, 1, 1) for n in range(channels)]
    box = struct.pack("<4i", 0, 0, width - 1, height - 1)
    header = b"\x76\x2f\x31\x01" + struct.pack("<I", 2)
    header += attribute("channels", "chlist", b"".join(names) + b"\0")
    header += attribute("compression", "compression", b"\3")
    header += attribute("dataWindow", "box2i", box) + attribute("displayWindow", "box2i", box)
    header += attribute("lineOrder", "lineOrder", b"\0")
    header += attribute("pixelAspectRatio", "float", struct.pack("<f", 1))
    header += attribute("screenWindowCenter", "v2f", struct.pack("<2f", 0, 0))
    header += attribute("screenWindowWidth", "float", struct.pack("<f", 1)) + b"\0"
    num_parts = (height + 15) // 16
    path.write_bytes(
        header + struct.pack("<Q", len(header) + 8 * num_parts) * num_parts + bytes(99)
    )
    return path


def test_an_exr_file_of_many_channels(tmp_path):
    pytest.importorskip("OpenEXR", reason="needs OpenEXR (musigma[science])")
    path = write_exr(tmp_path / "a.exr", channels=100, width=4000, height=4000)
    with pytest.raises(ImageError, match=r"needs 6104 MiB at once, and 256 are allowed"):
        restored(bicubic(), path, memory=256 * MIB)


def test_an_exr_file_whose_result_does_not_fit(tmp_path):
    exr = pytest.importorskip("OpenEXR", reason="needs OpenEXR (musigma[science])")
    path = tmp_path / "a.exr"
    exr.File({"compression": exr.ZIP_COMPRESSION}, {"Y": waves(600, 600).astype("f4")}).write(
        str(path)
    )
    with pytest.raises(ImageError, match=r"the file, its result and one tile need \d+ MiB"):
        restored(bicubic(), path, memory=5 * MIB)


def test_a_damaged_exr_file_writes_no_line_of_its_own(tmp_path, capfd):
    pytest.importorskip("OpenEXR", reason="needs OpenEXR (musigma[science])")
    path = write_exr(tmp_path / "\x1b]0;owned\x07.exr", channels=1, width=40, height=40)
    with pytest.raises(ImageError, match="cannot be read as EXR"):
        restored(bicubic(), path)
    assert capfd.readouterr() == ("", "")


def test_a_damaged_ome_tiff_writes_no_line_of_its_own(tmp_path, capfd):
    path = write_ome(tmp_path / "a.ome.tif", data='<TiffData FirstZ="9"/>')
    restored(bicubic(), path, value_range=(0, 3000))
    assert capfd.readouterr() == ("", "")


def test_stderr_comes_back(capfd):
    with silent_stderr():
        os.write(2, b"lost")
    os.write(2, b"kept")
    assert capfd.readouterr().err == "kept"
