"""GeoTIFF: georeference, types, nodata and band names come back; rasterio is the judge."""

import numpy as np
import pytest

from helpers.science import bicubic, restored, unchanged, waves, write_geotiff
from musigma.images.science.geotiff import BLOCK
from musigma.types import ImageError

rasterio = pytest.importorskip("rasterio", reason="needs rasterio (musigma[science])")


def stack(num_bands=4, dtype="uint16", high=10_000, size=(21, 30)):
    bands = [waves(*size, high=high, seed=n) for n in range(num_bands)]
    return np.stack(bands).astype(dtype)


@pytest.mark.parametrize(
    ("dtype", "high"),
    [("uint8", 250), ("int16", 3000), ("uint16", 60_000), ("float32", 1e4), ("float64", 1e-3)],
)
def test_what_a_network_leaves_alone_is_equal_to_the_bit(tmp_path, dtype, high):
    bands = stack(2, dtype, high)
    write_geotiff(tmp_path / "a.tif", bands)
    done = restored(unchanged(), tmp_path / "a.tif")
    with rasterio.open(done.output) as result:
        assert result.dtypes == (dtype,) * 4
        np.testing.assert_array_equal(result.read([1, 2]), bands)


def test_the_georeference_is_that_of_smaller_pixels(tmp_path):
    profile = write_geotiff(tmp_path / "a.tif", stack())
    done = restored(bicubic(2), tmp_path / "a.tif")
    with rasterio.open(tmp_path / "a.tif") as source, rasterio.open(done.output) as result:
        assert result.crs == source.crs
        assert result.bounds == source.bounds
        assert result.res == (5.0, 5.0)
        assert (result.height, result.width) == (42, 60)
        assert result.dtypes == source.dtypes
        assert result.count == profile["count"]  # bicubic predicts no errors


def test_names_units_scales_tags_and_bits_come_back(tmp_path):
    bands = stack(3, high=4000)
    write_geotiff(tmp_path / "a.tif", bands, nbits=12, compress="deflate")
    with rasterio.open(tmp_path / "a.tif", "r+") as source:
        source.descriptions = ("blue", "red", "near infrared")
        source.units = ("reflectance",) * 3
        source.scales, source.offsets = (1e-4,) * 3, (-0.1,) * 3
        source.update_tags(AREA_OR_POINT="Point", MISSION="test")
        source.update_tags(2, WAVELENGTH="665 nm", STATISTICS_MAXIMUM="9")
    done = restored(unchanged(), tmp_path / "a.tif")
    assert done.science.low == 0
    assert done.science.high == 4095
    names = ("blue", "red", "near infrared")
    with rasterio.open(done.output) as result:
        assert result.descriptions == (*names, *(f"sigma {name}" for name in names))
        assert result.units == ("reflectance",) * 6
        assert result.scales == (1e-4,) * 6
        assert result.offsets == (*(-0.1,) * 3, *(0.0,) * 3)
        assert result.tags()["AREA_OR_POINT"] == "Point"
        assert result.tags()["MISSION"] == "test"
        assert result.tags()["MUSIGMA_QUANTITY"] == "std"
        assert result.tags()["MUSIGMA_APPLIED"].startswith("band by band")
        assert result.tags(2)["WAVELENGTH"] == "665 nm"
        assert "STATISTICS_MAXIMUM" not in result.tags(2)
        assert result.tags(1, ns="IMAGE_STRUCTURE")["NBITS"] == "12"
        assert result.compression.name == "deflate"
        np.testing.assert_array_equal(result.read([1, 2, 3]), bands)


def test_missing_values_stay_missing_and_no_other_value_becomes_so(tmp_path):
    bands = stack(1)
    bands[0, :5, :7] = 0
    bands[0, 10, 10:] = 1
    write_geotiff(tmp_path / "a.tif", bands, nodata=0)
    done = restored(bicubic(2), tmp_path / "a.tif")
    with rasterio.open(done.output) as result:
        assert result.nodata == 0
        missing = result.read(1) == 0
    expected = np.zeros_like(missing)
    expected[:10, :14] = True
    np.testing.assert_array_equal(missing, expected)


def test_missing_values_have_no_error(tmp_path):
    bands = stack(1, "float32", 100)
    bands[0, 3, 4] = -9999
    write_geotiff(tmp_path / "a.tif", bands, nodata=-9999)
    done = restored(unchanged(), tmp_path / "a.tif", value_range=(0, 100))
    with rasterio.open(done.output) as result:
        assert result.nodata == -9999
        np.testing.assert_array_equal(result.read(1), bands[0])
        errors = result.read(2, masked=True)
    assert errors.mask.sum() == 1
    assert errors.mask[3, 4]
    assert errors.min() > 0


def test_a_missing_value_does_not_disturb_those_far_from_it(tmp_path):
    whole = stack(1, "float32", 100)
    holed = whole.copy()
    holed[0, 2, 2] = np.nan
    results = []
    for name, bands in (("a.tif", whole), ("b.tif", holed)):
        write_geotiff(tmp_path / name, bands, nodata=np.nan)
        done = restored(bicubic(2), tmp_path / name, value_range=(0, 100))
        with rasterio.open(done.output) as result:
            results.append(result.read(1))
    np.testing.assert_allclose(results[0][14:], results[1][14:], rtol=1e-6)
    assert np.isnan(results[1]).sum() == 4


@pytest.mark.parametrize(("dtype", "step"), [("uint16", 1.0), ("uint8", 0.25), ("float32", 0)])
def test_errors_are_in_the_units_of_the_file(tmp_path, dtype, step):
    high = 255 if dtype == "uint8" else 10_000
    write_geotiff(tmp_path / "a.tif", stack(1, dtype, 0.9 * high))
    model = unchanged()
    done = restored(model, tmp_path / "a.tif", value_range=(0, high))
    with rasterio.open(tmp_path / "a.tif") as source:
        image = source.read(1).astype(np.float32) / high
    std = model.calibration.std(model.predict(image).sigma)[0, 0].double().numpy() * high
    with rasterio.open(done.output) as result:
        assert result.descriptions[1] == "sigma"
        errors = result.read(2) * result.scales[1]
    rounding = 0 if dtype == "float32" else 1 / 12
    np.testing.assert_allclose(errors, np.sqrt(std**2 + rounding), atol=step / 2 + 1e-3, rtol=1e-5)


def test_values_beyond_the_range_are_not_clipped(tmp_path):
    bands = stack(1, "float32", 1)
    bands[0, 5:9, 5:9] = 7.5
    bands[0, 12:15, 5:9] = -3
    write_geotiff(tmp_path / "a.tif", bands)
    done = restored(bicubic(2), tmp_path / "a.tif", value_range=(0, 1))
    with rasterio.open(done.output) as result:
        values = result.read(1)
    assert values.max() > 7.4
    assert values.min() < -2.9


def test_colours_go_jointly_and_others_band_by_band(tmp_path):
    bands = stack(4, "uint8", 250)
    write_geotiff(tmp_path / "a.tif", bands, photometric="RGB")
    with rasterio.open(tmp_path / "a.tif", "r+") as source:
        source.colorinterp = [*source.colorinterp[:3], rasterio.enums.ColorInterp.undefined]
    model = unchanged()
    done = restored(model, tmp_path / "a.tif")
    assert done.science.applied.startswith("red, green and blue jointly; other bands band by band")
    image = np.moveaxis(bands[:3], 0, 2)
    sigma = model.predict(image).sigma[0].double().numpy()
    with rasterio.open(done.output) as result:
        assert [c.name for c in result.colorinterp][:3] == ["red", "green", "blue"]
        errors = result.read([5, 6, 7]) * result.scales[4]
    std = 2 * np.maximum(sigma, 1e-6) * 255
    np.testing.assert_allclose(errors, np.minimum(np.hypot(std, 12**-0.5), 255 / 4), atol=0.13)


def test_alpha_is_enlarged_and_has_no_error(tmp_path):
    bands = stack(4, "uint8", 250)
    bands[3] = 255
    bands[3, :, :10] = 0
    write_geotiff(tmp_path / "a.tif", bands, photometric="RGB", alpha="YES")
    with rasterio.open(tmp_path / "a.tif") as source:
        assert source.colorinterp[3].name == "alpha"
    done = restored(unchanged(), tmp_path / "a.tif")
    with rasterio.open(done.output) as result:
        assert result.count == 7
        assert result.colorinterp[3].name == "alpha"
        np.testing.assert_array_equal(result.read([1, 2, 3, 4]), bands)
    done = restored(bicubic(2), tmp_path / "a.tif")
    with rasterio.open(done.output) as result:
        assert set(np.unique(result.read(4)[:, 30:])) == {255}
        assert set(np.unique(result.read(4)[:, :14])) == {0}


def test_a_network_of_five_channels_sees_five_bands_jointly(tmp_path):
    bands = stack(5)
    write_geotiff(tmp_path / "a.tif", bands)
    done = restored(unchanged(5), tmp_path / "a.tif")
    assert done.science.applied == "all 5 bands jointly"
    with rasterio.open(done.output) as result:
        np.testing.assert_array_equal(result.read([1, 2, 3, 4, 5]), bands)
    with pytest.raises(ImageError, match="has 5 planes, and unchanged takes 4 channels"):
        restored(unchanged(4), tmp_path / "a.tif")


def test_tiles_and_blocks_leave_no_seams(tmp_path):
    bands = stack(1, "float32", 1, size=(BLOCK + 70, 90))
    write_geotiff(tmp_path / "a.tif", bands)
    whole = restored(bicubic(2), tmp_path / "a.tif", value_range=(0, 1)).output.read_bytes()
    tiled = restored(bicubic(2), tmp_path / "a.tif", value_range=(0, 1), tile=50).output
    (tmp_path / "whole.tif").write_bytes(whole)
    with rasterio.open(tmp_path / "whole.tif") as first, rasterio.open(tiled) as second:
        np.testing.assert_allclose(first.read(1), second.read(1), atol=1e-5)
    expected = bicubic(2).predict(bands[0]).mean[0, 0].numpy()
    with rasterio.open(tiled) as second:
        np.testing.assert_allclose(second.read(1), expected, atol=1e-5)


def test_control_points_move_with_the_pixels(tmp_path):
    from rasterio.control import GroundControlPoint

    points = [GroundControlPoint(row=r, col=c, x=7 + c, y=50 - r) for r, c in ((0, 0), (4, 9))]
    crs = rasterio.CRS.from_epsg(4326)
    write_geotiff(tmp_path / "a.tif", stack(1), transform=None, crs=crs, gcps=points)
    done = restored(bicubic(2), tmp_path / "a.tif")
    with rasterio.open(done.output) as result:
        moved, crs = result.gcps
        assert crs == rasterio.CRS.from_epsg(4326)
    assert [(p.row, p.col, p.x, p.y) for p in moved] == [(0, 0, 7, 50), (8, 18, 16, 46)]


@pytest.mark.parametrize("scale", [1, 2])
def test_a_mask_comes_back(tmp_path, scale):
    bands = stack(2, size=(BLOCK // 2 + 9, 40))
    mask = np.ones(bands.shape[1:], bool)
    mask[100:, 7:20] = False
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True):
        write_geotiff(tmp_path / "a.tif", bands)
        with rasterio.open(tmp_path / "a.tif", "r+") as source:
            source.write_mask(mask)
    done = restored(unchanged() if scale == 1 else bicubic(2), tmp_path / "a.tif")
    assert not any("mask" in text for text in done.warnings)
    with rasterio.open(done.output) as result:
        expected = mask.repeat(scale, 0).repeat(scale, 1)
        np.testing.assert_array_equal(result.dataset_mask() > 0, expected)
        if scale == 1:
            np.testing.assert_array_equal(result.read([1, 2])[:, mask], bands[:, mask])
    assert [path.name for path in done.output.parent.iterdir()] == ["a.tif"]


def test_rational_polynomials_move_with_the_pixels(tmp_path):
    from rasterio.rpc import RPC

    ones = [1.0] + [0.0] * 19
    rpc = RPC(
        height_off=100.0,
        height_scale=50.0,
        lat_off=48.0,
        lat_scale=0.1,
        line_den_coeff=ones,
        line_num_coeff=[0.0, 0.0, -1.0] + [0.0] * 17,
        line_off=9.5,
        line_scale=10.0,
        long_off=11.0,
        long_scale=0.1,
        samp_den_coeff=ones,
        samp_num_coeff=[0.0, 1.0] + [0.0] * 18,
        samp_off=14.5,
        samp_scale=15.0,
        err_bias=None,
        err_rand=None,
    )
    write_geotiff(tmp_path / "a.tif", stack(1), transform=None, crs=None, rpcs=rpc)
    done = restored(bicubic(2), tmp_path / "a.tif")
    with rasterio.open(done.output) as result:
        moved = result.rpcs
    assert (moved.line_off, moved.samp_off) == (19.5, 29.5)
    assert (moved.line_scale, moved.samp_scale) == (20.0, 30.0)
    assert moved.lat_off == rpc.lat_off


def test_classes_are_refused(tmp_path):
    write_geotiff(tmp_path / "a.tif", stack(1, "uint8", 9), photometric="palette")
    with rasterio.open(tmp_path / "a.tif", "r+") as source:
        source.write_colormap(1, {0: (0, 0, 0, 255), 1: (255, 0, 0, 255)})
    with pytest.raises(ImageError, match="its values are classes with a color table"):
        restored(bicubic(2), tmp_path / "a.tif")
    assert not (tmp_path / "out" / "a.tif").exists()


def test_a_damaged_file_is_refused_and_leaves_nothing(tmp_path):
    write_geotiff(tmp_path / "a.tif", stack(2, size=(200, 200)), compress="deflate")
    data = (tmp_path / "a.tif").read_bytes()
    (tmp_path / "a.tif").write_bytes(data[: len(data) // 2])
    with pytest.raises(ImageError, match=r"a\.tif: "):
        restored(bicubic(2), tmp_path / "a.tif")
    assert not list(tmp_path.glob("out/*"))


def test_a_result_can_be_restored_again(tmp_path):
    bands = stack(2)
    write_geotiff(tmp_path / "a.tif", bands)
    first = restored(unchanged(), tmp_path / "a.tif").output.rename(tmp_path / "b.tif")
    done = restored(unchanged(), first)
    assert done.warnings[-1].endswith("parts of the file: the errors that it had.")
    with rasterio.open(first) as source, rasterio.open(done.output) as result:
        names = (None, None, "sigma band 1", "sigma band 2")
        assert source.descriptions == result.descriptions == names
        np.testing.assert_array_equal(result.read(), source.read())


def test_colours_in_another_order_stay_in_it(tmp_path):
    from rasterio.enums import ColorInterp

    order = [ColorInterp.blue, ColorInterp.green, ColorInterp.red, ColorInterp.undefined]
    write_geotiff(tmp_path / "a.tif", stack(4))
    with rasterio.open(tmp_path / "a.tif", "r+") as source:
        source.colorinterp = order
    done = restored(unchanged(), tmp_path / "a.tif")
    assert done.science.applied.startswith("red, green and blue jointly; other bands")
    with rasterio.open(done.output) as result:
        assert list(result.colorinterp[:4]) == order


def test_groups_of_tags_and_the_resolution(tmp_path):
    write_geotiff(tmp_path / "a.tif", stack(1))
    with rasterio.open(tmp_path / "a.tif", "r+") as source:
        source.update_tags(ns="MISSION", ORBIT="7")
        source.update_tags(1, ns="SENSOR", GAIN="0.5")
        source.update_tags(TIFFTAG_XRESOLUTION="300", TIFFTAG_YRESOLUTION="150")
    with rasterio.open(restored(bicubic(2), tmp_path / "a.tif").output) as result:
        assert result.tags(ns="MISSION") == {"ORBIT": "7"}
        assert result.tags(1, ns="SENSOR") == {"GAIN": "0.5"}
        assert float(result.tags()["TIFFTAG_XRESOLUTION"]) == 600
        assert float(result.tags()["TIFFTAG_YRESOLUTION"]) == 300


def write_pages(path, **options):
    tifffile = pytest.importorskip("tifffile", reason="needs tifffile (musigma[science])")
    with tifffile.TiffWriter(path) as file:
        for page in stack(3):
            file.write(page, metadata=None, **options)


def test_further_pages_are_named_or_refused(tmp_path):
    pixel, corner = (10.0, 10.0, 0.0), (0.0, 0.0, 0.0, 5e5, 54e5, 0.0)
    write_pages(
        tmp_path / "a.tif", extratags=[(33550, "d", 3, pixel, True), (33922, "d", 6, corner, True)]
    )
    done = restored(bicubic(2), tmp_path / "a.tif", value_range=(0, 10_000))
    assert done.warnings == ["The result does not have these parts of the file: its further pages."]
    write_pages(tmp_path / "b.tif")
    with pytest.raises(ImageError, match="holds 3 pictures, and one is expected; save the stack"):
        restored(bicubic(2), tmp_path / "b.tif", value_range=(0, 10_000))


@pytest.mark.parametrize("dtype", ["int64", "complex64"])
def test_samples_of_other_types_are_refused(tmp_path, dtype):
    write_geotiff(tmp_path / "a.tif", stack(1, dtype))
    text = f"its samples are {dtype}; store them as 32-bit integers or as floating point"
    with pytest.raises(ImageError, match=text):
        restored(bicubic(2), tmp_path / "a.tif")


@pytest.mark.parametrize(
    ("dtype", "low", "options"),
    [
        ("int16", -420, {"nodata": -32768}),
        ("float32", 250, {"nodata": float(np.finfo(np.float32).min)}),
        ("uint8", 0, {"nbits": 4}),
        ("uint32", 0, {"nbits": 20}),
        ("uint16", 0, {"bigtiff": "YES", "interleave": "pixel", "compress": "lzw", "predictor": 2}),
        ("uint16", 0, {"endianness": "big", "tiled": True, "blockxsize": 16, "blockysize": 16}),
        ("float32", 0, {"nbits": 16}),
    ],
)
def test_rare_kinds_of_files(tmp_path, dtype, low, options):
    high = 15 if options.get("nbits") == 4 else 300
    bands = waves(21, 30, low=low, high=high).astype(dtype)[None]
    if options.get("nbits") == 16:
        bands = bands.astype(np.float16).astype(dtype)
    if "nodata" in options:
        bands[0, :3, :4] = options["nodata"]
    turned = rasterio.Affine.translation(4e5, 5e6) @ rasterio.Affine.rotation(33)
    write_geotiff(tmp_path / "a.tif", bands, transform=turned, **options)
    with rasterio.open(restored(unchanged(), tmp_path / "a.tif").output) as result:
        np.testing.assert_array_equal(result.read(1), bands[0])
        assert result.nodata == options.get("nodata")
    with rasterio.open(restored(bicubic(3), tmp_path / "a.tif").output) as result:
        np.testing.assert_allclose(result.transform @ (16.5, 7.5), turned @ (5.5, 2.5), rtol=1e-12)
        missing = (result.read_masks(1) == 0).sum()
    assert missing == (9 * 12 if "nodata" in options else 0)
