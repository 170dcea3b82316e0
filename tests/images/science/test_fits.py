"""FITS: header, WCS, integers with an offset and missing values come back; astropy is the judge."""

import warnings

import numpy as np
import pytest

from helpers.science import bicubic, restored, unchanged, waves
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
