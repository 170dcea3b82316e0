"""FITS: header, WCS, integers with an offset and missing values come back; astropy is the judge."""

import warnings

import numpy as np
import pytest

from helpers.science import bicubic, restored, unchanged, waves
from musigma.images.science.fits import scale_wcs
from musigma.types import ImageError

fits = pytest.importorskip("astropy.io.fits", reason="needs astropy (musigma[science])")
from astropy.wcs import WCS  # noqa: E402


def header_of_a_sky(**others):
    header = fits.Header()
    header["OBJECT"] = "M 31"
    header["BUNIT"] = "adu"
    header["CTYPE1"], header["CTYPE2"] = "RA---TAN-SIP", "DEC--TAN-SIP"
    header["CRVAL1"], header["CRVAL2"] = 10.68, 41.27
    header["CRPIX1"], header["CRPIX2"] = 14.0, 9.5
    header["CD1_1"], header["CD1_2"] = -2e-4, 1e-5
    header["CD2_1"], header["CD2_2"] = 1e-5, 2e-4
    header["A_ORDER"], header["B_ORDER"] = 2, 2
    header["A_2_0"], header["B_1_1"] = 3e-5, -2e-5
    header.update(others)
    return header


def check_same_sky(before, after, scale, size):
    """Corners of pixels must be at the same place of the sky."""
    rows, columns = (edge.ravel() for edge in np.meshgrid([0, 5, size[0]], [0, 8, size[1]]))
    world = before.all_pix2world(columns - 0.5, rows - 0.5, 0)
    moved = after.all_pix2world(columns * scale - 0.5, rows * scale - 0.5, 0)
    np.testing.assert_allclose(moved, world, rtol=0, atol=1e-10)


@pytest.mark.parametrize("in_primary", [True, False])
def test_the_sky_stays_in_place(tmp_path, in_primary):
    data, header = waves(18, 25, high=900).astype(np.float32), header_of_a_sky()
    hdus = [fits.PrimaryHDU(data, header)]
    if not in_primary:
        hdus = [fits.PrimaryHDU(), fits.ImageHDU(data, header, name="SCI")]
    fits.HDUList(hdus).writeto(tmp_path / "a.fits")
    done = restored(bicubic(2), tmp_path / "a.fits")
    with fits.open(done.output) as result:
        result.verify("exception")
        after = result["SCI"].header
        assert after["BUNIT"] == "adu"
        assert after["OBJECT"] == "M 31"
        assert after["BITPIX"] == -32
        assert result["SCI"].data.shape == (36, 50)
        check_same_sky(WCS(header), WCS(after), 2, (18, 25))


def test_a_wcs_of_steps_and_angles(tmp_path):
    header = header_of_a_sky(CTYPE1="RA---TAN", CTYPE2="DEC--TAN", CDELT1=-2e-4, CDELT2=2e-4)
    for key in ("CD1_1", "CD1_2", "CD2_1", "CD2_2", "A_ORDER", "B_ORDER", "A_2_0", "B_1_1"):
        del header[key]
    header["PC1_1"], header["PC1_2"] = 0.8, -0.6
    header["PC2_1"], header["PC2_2"] = 0.6, 0.8
    data = waves(18, 25).astype(np.float32)
    fits.PrimaryHDU(data, header).writeto(tmp_path / "a.fits")
    done = restored(bicubic(3), tmp_path / "a.fits")
    check_same_sky(WCS(header), WCS(fits.getheader(done.output, "SCI")), 3, (18, 25))


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "int32", "float32", "float64"])
def test_what_a_network_leaves_alone_is_equal_to_the_bit(tmp_path, dtype):
    data = waves(18, 25, high=200 if dtype == "uint8" else 3000).astype(dtype)
    fits.PrimaryHDU(data).writeto(tmp_path / "a.fits")
    done = restored(unchanged(), tmp_path / "a.fits")
    with fits.open(tmp_path / "a.fits") as source, fits.open(done.output) as result:
        for key in ("BITPIX", "BZERO", "BSCALE"):
            assert result["SCI"].header.get(key) == source[0].header.get(key)
        np.testing.assert_array_equal(result["SCI"].data, data)
        assert result["ERR"].data.dtype == np.dtype(">f4")
        assert (result["ERR"].data > 0).all()


def test_missing_values_and_scaled_integers(tmp_path):
    raw = np.arange(450, dtype=np.int16).reshape(18, 25)
    raw[3, 4] = -32768
    hdu = fits.PrimaryHDU(raw)
    hdu.header["BSCALE"], hdu.header["BZERO"], hdu.header["BLANK"] = 0.5, 100.0, -32768
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hdu.writeto(tmp_path / "a.fits")
    data = (tmp_path / "a.fits").read_bytes()
    assert b"BZERO   =                100.0" in data
    with fits.open(tmp_path / "a.fits") as source:
        expected = source[0].data.copy()
    done = restored(unchanged(), tmp_path / "a.fits", value_range=(100, 400))
    with fits.open(done.output) as result:
        np.testing.assert_array_equal(result["SCI"].data, expected)
        assert np.isnan(result["SCI"].data).sum() == 1
        np.testing.assert_array_equal(np.isnan(result["ERR"].data), np.isnan(expected))


def test_a_cube_and_its_errors_in_units(tmp_path):
    data = np.stack([waves(18, 25, high=500, seed=n) for n in range(3)]).astype(np.float32)
    header = fits.Header({"DATAMIN": 0.0, "DATAMAX": 1000.0, "BUNIT": "Jy/beam"})
    fits.PrimaryHDU(data, header).writeto(tmp_path / "a.fits")
    model = unchanged()
    done = restored(model, tmp_path / "a.fits")
    assert (done.science.low, done.science.high) == (0, 1000)
    assert done.science.range_origin == "declared by the file"
    sigma = model.predict(data[1] / 1000).sigma
    with fits.open(done.output) as result:
        np.testing.assert_array_equal(result["SCI"].data, data)
        expected = model.calibration.std(sigma)[0, 0].numpy() * 1000
        np.testing.assert_allclose(result["ERR"].data[1], expected, rtol=1e-5)
        assert result["ERR"].header["BUNIT"] == "Jy/beam"
        assert "calibrated standard deviation" in str(result["ERR"].header["COMMENT"])
        assert "DATAMIN" not in result["SCI"].header


def test_other_extensions_are_named(tmp_path):
    data = waves(18, 25).astype(np.float32)
    hdus = [fits.PrimaryHDU(), fits.ImageHDU(data, name="SCI"), fits.ImageHDU(data, name="DQ")]
    fits.HDUList(hdus).writeto(tmp_path / "a.fits")
    done = restored(bicubic(2), tmp_path / "a.fits")
    assert done.warnings == ["The result does not have these parts of the file: the extension DQ."]


def test_a_file_without_a_picture_is_refused(tmp_path):
    fits.PrimaryHDU().writeto(tmp_path / "a.fits")
    with pytest.raises(ImageError, match=r"a\.fits: holds no picture"):
        restored(bicubic(2), tmp_path / "a.fits")


def test_a_compressed_picture(tmp_path):
    data = waves(18, 25, high=3000).astype(np.int16)
    hdus = [fits.PrimaryHDU(), fits.CompImageHDU(data, header_of_a_sky(), name="SCI")]
    fits.HDUList(hdus).writeto(tmp_path / "a.fits")
    done = restored(unchanged(), tmp_path / "a.fits")
    with fits.open(done.output) as result:
        result.verify("exception")
        np.testing.assert_array_equal(result["SCI"].data, data)
        assert result["SCI"].header["CRPIX1"] == 14.0
        assert "ZCMPTYPE" not in result["SCI"].header


def linear_header(**others):
    header = header_of_a_sky(CTYPE1="RA---TAN", CTYPE2="DEC--TAN")
    for key in ("A_ORDER", "B_ORDER", "A_2_0", "B_1_1"):
        del header[key]
    header.update(others)
    return header


def test_a_wcs_that_is_inherited_from_the_first_header(tmp_path):
    data, header = waves(18, 25).astype(np.float32), linear_header()
    extension = fits.ImageHDU(data, fits.Header({"INHERIT": True, "GAIN": 2.0}))
    fits.HDUList([fits.PrimaryHDU(header=header), extension]).writeto(tmp_path / "a.fits")
    done = restored(bicubic(2), tmp_path / "a.fits")
    after = fits.getheader(done.output, "SCI")
    assert after["GAIN"] == 2
    assert "INHERIT" not in after
    check_same_sky(WCS(header), WCS(after), 2, (18, 25))


def test_a_cube_whose_axes_are_mixed(tmp_path):
    header = fits.Header({"CTYPE1": "RA---TAN", "CTYPE2": "DEC--TAN", "CTYPE3": "VELO"})
    header.update({"CRVAL1": 10.0, "CRVAL2": 40.0, "CRVAL3": 5.0, "CRPIX1": 3.0, "CRPIX3": 1.0})
    header.update({"CDELT1": -1e-4, "CDELT2": 1e-4, "CDELT3": 100.0, "PC1_3": 0.01, "PC3_1": 0.02})
    data = np.stack([waves(18, 25, seed=n) for n in range(3)]).astype(np.float32)
    fits.PrimaryHDU(data, header).writeto(tmp_path / "a.fits")
    done = restored(bicubic(2), tmp_path / "a.fits")
    before, after = WCS(header), WCS(fits.getheader(done.output, "SCI"))
    for x, y in ((0, 0), (7, 3), (24, 17)):
        world = before.all_pix2world([[x, y, 1]], 0)
        same = after.all_pix2world([[2 * x + 0.5, 2 * y + 0.5, 1]], 0)
        np.testing.assert_allclose(same, world, atol=1e-10)


def test_steps_without_a_kind_of_axis_and_pixels_of_the_detector(tmp_path):
    header = fits.Header({"CRPIX1": 5.0, "CDELT1": 0.2, "CDELT2": 0.4, "LTV1": -100.0})
    fits.PrimaryHDU(waves(18, 25).astype(np.float32), header).writeto(tmp_path / "a.fits")
    after = fits.getheader(restored(bicubic(2), tmp_path / "a.fits").output, "SCI")
    assert (after["CRPIX1"], after["CDELT1"], after["CDELT2"]) == (9.5, 0.1, 0.2)
    # The first pixel is number 101 of the detector; its centre is at 1.5 of the result.
    assert after["LTM1_1"] * 101 + after["LTV1"] == 1.5


def test_scaled_integers_declare_no_range(tmp_path):
    raw = waves(18, 25, high=3000).astype(np.int16)
    fits.PrimaryHDU(raw).writeto(tmp_path / "a.fits")
    with fits.open(tmp_path / "a.fits", mode="update", do_not_scale_image_data=True) as file:
        file[0].header["BSCALE"], file[0].header["BZERO"] = 0.003, -7.5
    done = restored(unchanged(), tmp_path / "a.fits")
    assert done.science.range_origin == "measured in the file"
    with fits.open(tmp_path / "a.fits") as source, fits.open(done.output) as result:
        np.testing.assert_array_equal(result["SCI"].data, source[0].data)


@pytest.mark.parametrize(
    ("card", "text"),
    [
        ("CRPIX1  = '11.3    '", "CRPIX1 is '11.3', where a number was expected"),
        ("CRPIX1  = 12,5 nonsense", "cannot be read as FITS"),
        ("CTYPE1  = 'WAVE-TAB'", "its WCS has distortion tables"),
        ("CPDIS1  = 'LOOKUP  '", "its WCS has distortion tables"),
    ],
)
def test_a_wcs_that_cannot_be_scaled_is_refused(tmp_path, card, text):
    header = linear_header(CPDIS1=1)
    fits.PrimaryHDU(waves(18, 25).astype(np.float32), header).writeto(tmp_path / "a.fits")
    data = (tmp_path / "a.fits").read_bytes()
    place = data.index(card[:9].encode())
    if "CPDIS1" not in card:
        other = data.index(b"CPDIS1  =")
        data = data[:other] + b" " * 80 + data[other + 80 :]
    (tmp_path / "a.fits").write_bytes(data[:place] + card.ljust(80).encode() + data[place + 80 :])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ImageError, match=text):
            restored(bicubic(2), tmp_path / "a.fits")


def test_extensions_of_one_name_are_told_apart(tmp_path):
    data = waves(18, 25).astype(np.float32)
    hdus = [fits.ImageHDU(data, name="SCI", ver=n) for n in (1, 2)]
    fits.HDUList([fits.PrimaryHDU(), *hdus]).writeto(tmp_path / "a.fits")
    (warning,) = restored(bicubic(2), tmp_path / "a.fits").warnings
    assert warning == "The result does not have these parts of the file: the extension SCI,2."


@pytest.mark.parametrize("kind", ["RICE_1", "GZIP_2", "HCOMPRESS_1"])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_compressed_types(tmp_path, kind, dtype):
    data = waves(18, 25, high=200).astype(dtype)
    hdus = [fits.PrimaryHDU(), fits.CompImageHDU(data, compression_type=kind)]
    fits.HDUList(hdus).writeto(tmp_path / "a.fits.fz")
    done = restored(unchanged(), tmp_path / "a.fits.fz")
    with fits.open(tmp_path / "a.fits.fz") as source, fits.open(done.output) as result:
        assert result["SCI"].data.dtype.newbyteorder("=") == np.dtype(dtype)
        np.testing.assert_array_equal(result["SCI"].data, source[1].data)


def test_a_number_of_the_wcs_that_stands_twice_is_scaled_once():
    card = ("CD1_1", 6.0)
    header = fits.Header([card, card])
    scale_wcs(header, 2)
    assert header["CD1_1"] == 3
