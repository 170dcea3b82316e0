"""Networks of 1 to 16 channels on scientific files: which planes they see together, and how."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from helpers.networks import REDUCED
from helpers.science import Unchanged, bicubic, restored, unchanged, waves, write_geotiff
from musigma.model import Model, load, save
from musigma.networks import create, with_sigma
from musigma.types import ConfigError, ImageError

tifffile = pytest.importorskip("tifffile", reason="needs tifffile (musigma[science])")
rasterio = pytest.importorskip("rasterio", reason="needs rasterio (musigma[science])")
fits = pytest.importorskip("astropy.io.fits", reason="needs astropy (musigma[science])")


class Mixed(Unchanged):
    """Adds a tenth of the next channel to each, so that a wrong order or set of planes shows."""

    def reconstruct(self, features, degraded):
        return degraded + 0.1 * degraded.roll(-1, dims=1)


def mixed(channels, **metadata):
    network = with_sigma(Mixed(channels), width=4, depth=1).eval()
    return Model(network=network, name="mixed", metadata=metadata)


def expected(stack, axis=0):
    """What `Mixed` makes of channels along an axis."""
    return stack + 0.1 * np.roll(stack, -1, axis=axis)


def write_stack(path, axes, shape):
    planes = [waves(20, 26, high=900, seed=n) for n in range(int(np.prod(shape)))]
    stack = np.stack(planes).reshape(*shape, 20, 26).astype(np.float32)
    tifffile.imwrite(path, stack, metadata={"axes": f"{axes}YX"}, photometric="minisblack")
    return stack


@pytest.mark.parametrize(
    ("axes", "shape"), [("TZC", (2, 3, 2)), ("TCZ", (2, 2, 3)), ("CTZ", (2, 2, 3)), ("C", (2,))]
)
def test_channels_at_each_place_of_an_ome_stack_go_jointly(tmp_path, axes, shape):
    stack = write_stack(tmp_path / "a.ome.tif", axes, shape)
    done = restored(mixed(2), tmp_path / "a.ome.tif", value_range=(0, 1000))
    num_pictures = stack[..., 0, 0].size // 2
    words = "all 2 bands jointly"
    if num_pictures > 1:
        words += f", {num_pictures} pictures of a stack in turn"
    assert (done.science.applied, done.science.num_channels) == (words, 2)
    with tifffile.TiffFile(done.output) as file:
        result, errors = (series.asarray().reshape(stack.shape) for series in file.series)
    np.testing.assert_allclose(result, expected(stack, axes.index("C")), rtol=1e-5)
    assert (errors > 0).all()


def test_a_wrong_number_of_channels_is_told_with_a_way_out(tmp_path):
    write_stack(tmp_path / "a.ome.tif", "ZC", (3, 2))
    text = "has 2 planes at each of 3 places of its stack, and mixed takes 4 channels, all at once"
    with pytest.raises(ImageError, match=text) as caught:
        restored(mixed(4), tmp_path / "a.ome.tif", value_range=(0, 1000))
    assert "one of 1 channel goes band by band" in str(caught.value)
    # All six pictures of the stack as six channels is another meaning that fits.
    done = restored(mixed(6), tmp_path / "a.ome.tif", value_range=(0, 1000))
    assert done.science.applied == "all 6 bands jointly"


def test_sixteen_bands_jointly_or_one_by_one(tmp_path):
    bands = np.stack([waves(18, 24, high=900, seed=n) for n in range(16)]).astype(np.float32)
    write_geotiff(tmp_path / "a.tif", bands)
    done = restored(mixed(16), tmp_path / "a.tif", value_range=(0, 1000))
    assert (done.science.applied, done.science.num_channels) == ("all 16 bands jointly", 16)
    with rasterio.open(done.output) as result:
        np.testing.assert_allclose(result.read(range(1, 17)), expected(bands), rtol=1e-5)
    done = restored(unchanged(1), tmp_path / "a.tif", value_range=(0, 1000))
    assert (done.science.applied, done.science.num_channels) == ("band by band", 1)
    with rasterio.open(done.output) as result:
        assert result.tags()["MUSIGMA_APPLIED"] == "band by band"
        np.testing.assert_array_equal(result.read(range(1, 17)), bands)


def test_a_cube_of_four_planes_in_fits(tmp_path):
    cube = np.stack([waves(15, 21, high=900, seed=n) for n in range(4)]).astype(np.float32)
    fits.PrimaryHDU(cube).writeto(tmp_path / "a.fits")
    done = restored(mixed(4), tmp_path / "a.fits", value_range=(0, 1000))
    assert done.science.applied == "all 4 bands jointly"
    with fits.open(done.output) as file:
        np.testing.assert_allclose(file["SCI"].data, expected(cube), rtol=1e-5)
        assert file["ERR"].data.shape == cube.shape


def test_three_measured_bands_go_jointly_where_the_weights_name_theirs(tmp_path):
    bands = np.stack([waves(18, 24, high=900, seed=n) for n in range(3)]).astype(np.float32)
    profile = {"photometric": "MINISBLACK"}
    write_geotiff(tmp_path / "a.tif", bands, **profile)
    assert restored(mixed(3), tmp_path / "a.tif").science.applied.startswith("band by band")
    model = mixed(3, bands=["DAPI", "GFP", "mCherry"])
    done = restored(model, tmp_path / "a.tif", value_range=(0, 1000))
    assert done.science.applied == "all 3 bands jointly"
    with rasterio.open(done.output) as result:
        np.testing.assert_allclose(result.read([1, 2, 3]), expected(bands), rtol=1e-5)


def test_weights_bring_a_range_for_each_channel(tmp_path):
    bands = np.stack([waves(18, 24, high=high) for high in (100, 1000)]).astype(np.float32)
    write_geotiff(tmp_path / "a.tif", bands)
    save(
        tmp_path / "own.safetensors",
        create("fsrcnn", scale=2, channels=2),
        value_range=[(0, 100), (-1000, 1000)],
    )
    model = load(tmp_path / "own.safetensors")
    done = restored(model, tmp_path / "a.tif")
    assert (done.science.low, done.science.high) == ([0, -1000], [100, 1000])
    assert done.science.range_origin == "stored with the weights"
    assert done.warnings == []
    seen = np.stack([bands[0] / 100, (bands[1] + 1000) / 2000])
    mean = model.predict(torch.from_numpy(seen)[None]).mean[0].double().numpy()
    units = np.stack([mean[0] * 100, mean[1] * 2000 - 1000])
    with rasterio.open(done.output) as result:
        np.testing.assert_allclose(result.read([1, 2]), units, rtol=1e-4, atol=1e-2)
        note = "0 to 100, -1000 to 1000 (stored with the weights)"
        assert result.tags()["MUSIGMA_VALUE_RANGE"] == note
    single = replace(unchanged(1), metadata=model.metadata)
    with pytest.raises(ConfigError, match="ranges of values for 2 channels, and 1 are restored"):
        restored(single, tmp_path / "a.tif")


def test_weights_bring_percentiles_which_are_measured_in_each_plane(tmp_path):
    stack = write_stack(tmp_path / "a.ome.tif", "C", (2,)) * np.float32([1, 7]).reshape(2, 1, 1)
    tifffile.imwrite(tmp_path / "a.ome.tif", stack, metadata={"axes": "CYX"})
    model = replace(unchanged(1), metadata={"value_percentiles": [2, 98]})
    done = restored(model, tmp_path / "a.ome.tif")
    ranges = [np.percentile(plane, [2, 98]) for plane in stack]
    np.testing.assert_allclose(done.science.low, [low for low, _ in ranges], rtol=1e-6)
    np.testing.assert_allclose(done.science.high, [high for _, high in ranges], rtol=1e-6)
    assert done.science.range_origin.startswith("percentiles 2 and 98 of each plane")
    with tifffile.TiffFile(done.output) as file:
        np.testing.assert_array_equal(file.series[0].asarray(), stack)
        errors = file.series[1].asarray()
    # The network sees the second plane as it sees the first; its errors are in larger units.
    assert errors[1].mean() > 5 * errors[0].mean()
    given = restored(model, tmp_path / "a.ome.tif", value_range=(0, 7000))
    assert (given.science.low, given.science.range_origin) == (0, "given")


def test_a_plain_tiff_holds_measured_values_for_weights_with_a_normalization(tmp_path):
    counts = waves(40, 50, low=300, high=900).astype(np.uint16)
    tifffile.imwrite(tmp_path / "a.tif", counts)
    model = replace(unchanged(1), metadata={"value_percentiles": [0, 100]})
    done = restored(model, tmp_path / "a.tif")
    assert (done.science.low, done.science.high) == (counts.min(), counts.max())
    np.testing.assert_array_equal(tifffile.imread(done.output)[0], counts)
    assert restored(unchanged(1), tmp_path / "a.tif").science is None


@pytest.mark.parametrize("stored", [[2, 101], [98, 2], "all", [1]])
def test_percentiles_that_are_none_are_refused(tmp_path, stored):
    write_stack(tmp_path / "a.ome.tif", "C", (1,))
    model = replace(unchanged(1), metadata={"value_percentiles": stored})
    with pytest.raises(ConfigError, match="value_percentiles of the weights must"):
        restored(model, tmp_path / "a.ome.tif")


def test_percentiles_of_an_even_plane_are_no_range(tmp_path):
    write_geotiff(tmp_path / "a.tif", np.full((1, 30, 30), 7, np.float32))
    model = replace(unchanged(1), metadata={"value_percentiles": [1, 99]})
    with pytest.raises(ImageError, match="percentiles 1 and 99 are both 7; give the range"):
        restored(model, tmp_path / "a.tif")


FAMILIES = [("drunet", 1), ("edsr-baseline", 2), ("espcn", 3), ("fsrcnn", 4), ("rdn", 2)]


@pytest.mark.parametrize(("name", "scale"), FAMILIES)
@pytest.mark.parametrize("channels", [1, 2, 16])
def test_networks_of_1_to_16_channels_are_saved_and_loaded(tmp_path, name, scale, channels):
    torch.manual_seed(0)
    settings = REDUCED.get(name, {}) | {"channels": channels}
    network = with_sigma(create(name, scale=scale, **settings), width=4, depth=1).eval()
    save(tmp_path / "own.safetensors", network)
    model = load(tmp_path / "own.safetensors")
    image = torch.rand(1, channels, 9, 11)
    level = {"noise_std": 5.0} if model.takes_noise_level else {}
    prediction = model.predict(image, **level)
    assert prediction.mean.shape == prediction.sigma.shape == (1, channels, 9 * scale, 11 * scale)
    tiled = model.predict(image, tile=8, **level)
    torch.testing.assert_close(tiled.mean, prediction.mean, atol=1e-4, rtol=1e-4)


def test_bicubic_needs_no_channels(tmp_path):
    write_geotiff(tmp_path / "a.tif", waves(18, 24, high=900)[None].astype(np.float32))
    assert restored(bicubic(2), tmp_path / "a.tif").science.num_channels == 1
