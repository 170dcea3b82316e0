"""OME-TIFF: stacks, channel names and physical sizes come back; tifffile is the judge."""

from xml.etree import ElementTree

import numpy as np
import pytest

from helpers.science import bicubic, restored, unchanged, waves
from musigma.types import ImageError

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


def write_described(path, data, xml):
    tifffile.imwrite(path, data, description=xml.encode(), metadata=None, photometric="minisblack")


def xml_of(pixels, before="", after=""):
    """Return the OME-XML of a stack of three pictures."""
    size = 'SizeX="26" SizeY="19" SizeZ="3" SizeC="1" SizeT="1"'
    return (
        f'<OME xmlns="{OME.strip("{}")}">{before}<Image ID="Image:0"><Pixels ID="Pixels:0" '
        f'DimensionOrder="XYZCT" Type="uint16" {size} {pixels}</Pixels></Image>{after}</OME>'
    )


def test_regions_grow_with_the_pixels(tmp_path):
    shapes = (
        '<Rectangle ID="Shape:0" X="4" Y="-5.5" Width="10" Height="6"/>'
        '<Polygon ID="Shape:1" Points="1,2 3,4 5.5,6e0"/>'
        '<Label ID="Shape:2" X="1" Y="2" Text="X 12" FontSize="8"/>'
    )
    after = f'<ROI ID="ROI:0"><Union>{shapes}</Union></ROI>'
    write_described(
        tmp_path / "a.ome.tif",
        stack("uint16")[0, 0],
        xml_of('PhysicalSizeX="unknown"><TiffData/>', after=after),
    )
    done = restored(bicubic(2), tmp_path / "a.ome.tif")
    with tifffile.TiffFile(done.output) as file:
        root = ElementTree.fromstring(file.ome_metadata.encode())
    names = [child.tag.removeprefix(OME) for child in root]
    assert names == ["Image", "StructuredAnnotations", "ROI"]  # the order of the schema
    box, polygon, label = root.find(f"{OME}ROI/{OME}Union")
    assert [box.get(key) for key in ("X", "Y", "Width", "Height")] == ["8", "-11", "20", "12"]
    assert polygon.get("Points") == "2,4 6,8 11,12"
    assert (label.get("X"), label.get("Text"), label.get("FontSize")) == ("2", "X 12", "8")
    assert root.find(f"{OME}Image/{OME}Pixels").get("PhysicalSizeX") == "unknown"


def test_pictures_in_any_order_of_pages(tmp_path):
    data = stack("uint16")[0, 0]
    pages = "".join(f'<TiffData IFD="{n}" FirstZ="{2 - n}" PlaneCount="1"/>' for n in range(3))
    write_described(tmp_path / "a.ome.tif", data, xml_of(f">{pages}"))
    done = restored(unchanged(), tmp_path / "a.ome.tif")
    with tifffile.TiffFile(done.output) as file:
        np.testing.assert_array_equal(file.series[0].asarray(), data[::-1])


@pytest.mark.parametrize("compression", ["tiff_lzw", "jpeg"])
def test_compressions_that_tifffile_leaves_to_others(tmp_path, compression):
    pytest.importorskip("rasterio", reason="needs rasterio (musigma[science])")
    from PIL import Image

    picture = waves(19, 26, high=250).astype(np.uint8)
    tifffile.imwrite(tmp_path / "plain.ome.tif", picture, metadata={"axes": "YX"})
    with tifffile.TiffFile(tmp_path / "plain.ome.tif") as file:
        xml = file.ome_metadata
    Image.fromarray(picture).save(
        tmp_path / "a.ome.tif", compression=compression, tiffinfo={270: xml}
    )
    with Image.open(tmp_path / "a.ome.tif") as image:
        expected = np.asarray(image)
    done = restored(unchanged(), tmp_path / "a.ome.tif")
    with tifffile.TiffFile(done.output) as file:
        np.testing.assert_array_equal(file.series[0].asarray(), expected)


def test_opacity_beside_colours_is_not_restored(tmp_path):
    data = np.stack([waves(19, 26, high=250, seed=n) for n in range(4)], 2).astype(np.uint8)
    alpha = {"photometric": "rgb", "extrasamples": ["unassalpha"]}
    tifffile.imwrite(tmp_path / "a.ome.tif", data, metadata={"axes": "YXS"}, **alpha)
    done = restored(unchanged(), tmp_path / "a.ome.tif")
    assert done.science.applied == "red, green and blue jointly"
    with tifffile.TiffFile(done.output) as file:
        np.testing.assert_array_equal(np.moveaxis(file.series[0].asarray(), 0, 2), data)
        assert [int(code) for code in file.pages[0].extrasamples] == [2]
        errors = file.series[1].asarray()
    assert (errors[:3] > 0).all()
    assert np.isnan(errors[3]).all()


def test_a_pyramid_and_other_series_are_named(tmp_path):
    data = stack("uint16")[0, 0]
    with tifffile.TiffWriter(tmp_path / "a.ome.tif", ome=True) as file:
        file.write(data, subifds=1, metadata={"axes": "ZYX"}, photometric="minisblack")
        file.write(data[:, ::2, ::2], subfiletype=1, photometric="minisblack")
        file.write(data[0], metadata={"axes": "YX", "Name": "label"})
    (warning,) = restored(unchanged(), tmp_path / "a.ome.tif", value_range=(0, 3000)).warnings
    assert warning.endswith("the smaller copies of its pyramid, the image series 'label'.")


def test_a_result_can_be_restored_again(tmp_path):
    write_described(tmp_path / "a.ome.tif", stack("uint16")[0, 0], xml_of("><TiffData/>"))
    first = restored(unchanged(), tmp_path / "a.ome.tif").output.rename(tmp_path / "b.ome.tif")
    done = restored(unchanged(), first)
    with tifffile.TiffFile(first) as source, tifffile.TiffFile(done.output) as result:
        assert result.ome_metadata == source.ome_metadata
        np.testing.assert_array_equal(result.asarray(series=1), source.asarray(series=1))


def test_values_beyond_their_significant_bits_are_kept(tmp_path):
    data = stack("uint16")[0, 0]
    write_described(tmp_path / "a.ome.tif", data, xml_of('SignificantBits="10"><TiffData/>'))
    done = restored(unchanged(), tmp_path / "a.ome.tif")
    assert done.science.high == 1023
    with tifffile.TiffFile(done.output) as file:
        np.testing.assert_array_equal(file.series[0].asarray(), data)


def test_a_description_in_another_file_is_refused(tmp_path):
    xml = f'<OME xmlns="{OME.strip("{}")}"><BinaryOnly MetadataFile="all.companion.ome"/></OME>'
    write_described(tmp_path / "a.ome.tif", stack("uint16")[0, 0], xml)
    with pytest.raises(ImageError, match=r"is described in another file, 'all\.companion\.ome',"):
        restored(unchanged(), tmp_path / "a.ome.tif")
