"""OME-TIFF: stacks, channel names and physical sizes come back; tifffile is the judge."""

from xml.etree import ElementTree

import numpy as np
import pytest

from helpers.science import bicubic, restored, unchanged, waves

tifffile = pytest.importorskip("tifffile", reason="needs tifffile (musigma[science])")
OME = "{http://www.openmicroscopy.org/Schemas/OME/2016-06}"
METADATA = {
    "axes": "TCZYX",
    "PhysicalSizeX": 0.2,
    "PhysicalSizeXUnit": "µm",
    "PhysicalSizeY": 0.3,
    "PhysicalSizeYUnit": "µm",
    "PhysicalSizeZ": 1.5,
    "PhysicalSizeZUnit": "µm",
    "Channel": {"Name": ["DAPI", "GFP"]},
}


def stack(dtype, high=3000):
    planes = [waves(19, 26, high=high, seed=n) for n in range(12)]
    return np.stack(planes).reshape(2, 2, 3, 19, 26).astype(dtype)


def pixels_of(path):
    with tifffile.TiffFile(path) as file:
        root = ElementTree.fromstring(file.ome_metadata.encode())
    return [image.find(f"{OME}Pixels") for image in root.findall(f"{OME}Image")]


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_a_stack_that_a_network_leaves_alone(tmp_path, dtype):
    data = stack(dtype, 250 if dtype == "uint8" else 3000)
    tifffile.imwrite(tmp_path / "a.ome.tif", data, metadata=METADATA, photometric="minisblack")
    done = restored(unchanged(), tmp_path / "a.ome.tif")
    assert done.science.bands[:4] == ["DAPI T0 Z0", "DAPI T0 Z1", "DAPI T0 Z2", "GFP T0 Z0"]
    with tifffile.TiffFile(done.output) as file:
        mean, sigma = file.series
        assert (mean.axes, mean.dtype) == ("TCZYX", np.dtype(dtype))
        np.testing.assert_array_equal(mean.asarray(), data)
        assert (sigma.name, sigma.axes, sigma.dtype) == ("sigma", "TCZYX", np.dtype("float32"))
        assert sigma.asarray().shape == data.shape
        assert (sigma.asarray() > 0).all()


def test_sizes_and_channel_names(tmp_path):
    tifffile.imwrite(
        tmp_path / "a.ome.tif", stack("uint16"), metadata=METADATA, photometric="minisblack"
    )
    done = restored(bicubic(2), tmp_path / "a.ome.tif")
    (pixels,) = pixels_of(done.output)
    sizes = {axis: float(pixels.get(f"PhysicalSize{axis}")) for axis in "XYZ"}
    assert sizes == {"X": 0.1, "Y": 0.15, "Z": 1.5}
    assert {pixels.get(f"PhysicalSize{axis}Unit") for axis in "XYZ"} == {"µm"}
    assert [pixels.get(f"Size{axis}") for axis in "XYZCT"] == ["52", "38", "3", "2", "2"]
    names = [channel.get("Name") for channel in pixels.findall(f"{OME}Channel")]
    assert names == ["DAPI", "GFP"]
    with tifffile.TiffFile(done.output) as file:
        assert file.series[0].shape == (2, 2, 3, 38, 52)


def test_errors_are_in_the_units_of_the_file_and_say_what_they_are(tmp_path):
    data = stack("uint16")
    metadata = METADATA | {"SignificantBits": 12}
    tifffile.imwrite(tmp_path / "a.ome.tif", data, metadata=metadata, photometric="minisblack")
    model = unchanged()
    done = restored(model, tmp_path / "a.ome.tif")
    assert done.science.high == 4095
    image = (data[1, 0, 2] / 4095).astype(np.float32)
    std = model.calibration.std(model.predict(image).sigma)[0, 0].double().numpy() * 4095
    with tifffile.TiffFile(done.output) as file:
        errors = file.series[1].asarray()[1, 0, 2]
        root = ElementTree.fromstring(file.ome_metadata.encode())
    np.testing.assert_allclose(errors, np.sqrt(std**2 + 1 / 12), rtol=1e-5)
    names = [c.get("Name") for c in pixels_of(done.output)[1].findall(f"{OME}Channel")]
    assert names == ["sigma DAPI", "sigma GFP"]
    notes = {entry.get("K"): entry.text for entry in root.iter(f"{OME}M")}
    assert notes["quantity"] == "std"
    assert notes["applied"].startswith("band by band")
    assert notes["value_range"] == "0 to 4095 (declared by the file)"


@pytest.mark.parametrize("planar", ["contig", "separate"])
def test_colours_go_jointly(tmp_path, planar):
    data = np.stack([waves(19, 26, high=250, seed=n) for n in range(3)]).astype(np.uint8)
    shown = data if planar == "separate" else np.moveaxis(data, 0, 2)
    axes = "SYX" if planar == "separate" else "YXS"
    tifffile.imwrite(
        tmp_path / "a.ome.tif",
        shown,
        metadata={"axes": axes},
        photometric="rgb",
        planarconfig=planar,
    )
    done = restored(unchanged(), tmp_path / "a.ome.tif")
    assert done.science.applied == "red, green and blue jointly"
    with tifffile.TiffFile(done.output) as file:
        np.testing.assert_array_equal(file.series[0].asarray().reshape(3, 19, 26), data)
