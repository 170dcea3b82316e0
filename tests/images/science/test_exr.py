"""EXR: types, windows and attributes come back, values may exceed 1; OpenEXR is the judge."""

import numpy as np
import pytest

from helpers.science import bicubic, restored, unchanged, waves
from musigma.types import ImageError

exr = pytest.importorskip("OpenEXR", reason="needs OpenEXR (musigma[science])")


def write(path, channels, **header):
    whole = {"compression": exr.ZIP_COMPRESSION, "type": exr.scanlineimage, **header}
    exr.File(whole, dict(channels)).write(str(path))  # it changes what it is given


def channels_of(path):
    channels = exr.File(str(path), separate_channels=True).channels()
    return {name: channel.pixels for name, channel in channels.items()}


def bright(dtype, names="RGB"):
    return {c: waves(18, 25, high=6, seed=n).astype(dtype) for n, c in enumerate(names)}


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_what_a_network_leaves_alone_is_equal_to_the_bit(tmp_path, dtype):
    planes = bright(dtype)
    planes["A"] = waves(18, 25).astype(dtype)
    planes["depth.Z"] = waves(18, 25, high=100).astype(np.float32)
    planes["id"] = np.arange(450, dtype=np.uint32).reshape(18, 25)
    write(tmp_path / "a.exr", planes, owner="someone")
    done = restored(unchanged(), tmp_path / "a.exr")
    assert done.science.bands == ["B", "G", "R", "depth.Z"]
    assert done.science.applied.startswith("red, green and blue jointly; other bands")
    result = channels_of(done.output)
    errors = {"sigma.R", "sigma.G", "sigma.B", "sigma.depth.Z"}
    assert result.keys() == planes.keys() | errors
    for name, plane in planes.items():
        assert result[name].dtype == plane.dtype
        np.testing.assert_array_equal(result[name], plane)
    assert all(result[name].dtype == np.float32 and result[name].min() > 0 for name in errors)
    header = exr.File(str(done.output)).header()
    assert header["owner"] == "someone"
    assert header["compression"] == exr.ZIP_COMPRESSION
    assert header["musigma:quantity"] == "std"


def test_windows_grow_and_values_are_not_clipped(tmp_path):
    windows = {
        "dataWindow": (np.array([10, 20], np.int32), np.array([34, 37], np.int32)),
        "displayWindow": (np.array([0, 0], np.int32), np.array([99, 49], np.int32)),
    }
    write(tmp_path / "a.exr", bright(np.float16), **windows)
    done = restored(bicubic(2), tmp_path / "a.exr")
    header = exr.File(str(done.output)).header()
    corners = [tuple(map(int, corner)) for corner in header["dataWindow"]]
    assert corners == [(20, 40), (69, 75)]
    assert [tuple(map(int, c)) for c in header["displayWindow"]] == [(0, 0), (199, 99)]
    result = channels_of(done.output)
    assert result["R"].shape == (36, 50)
    assert result["R"].max() > 4


def test_labels_are_repeated(tmp_path):
    planes = bright(np.float32) | {"id": np.arange(450, dtype=np.uint32).reshape(18, 25)}
    write(tmp_path / "a.exr", planes)
    result = channels_of(restored(bicubic(2), tmp_path / "a.exr").output)
    np.testing.assert_array_equal(result["id"], planes["id"].repeat(2, 0).repeat(2, 1))


def test_a_huge_picture_is_refused_before_it_is_read(tmp_path):
    write(tmp_path / "a.exr", bright(np.float16))
    with pytest.raises(ImageError, match="its planes of 450 pixels are more than the limit of 449"):
        restored(bicubic(2), tmp_path / "a.exr", max_pixels=449)


def test_damaged_pixels_are_refused_and_nothing_is_printed(tmp_path, capsys):
    noise = np.random.default_rng(0).random((64, 64)).astype(np.float32)
    write(tmp_path / "a.exr", {"Y": noise})
    data = (tmp_path / "a.exr").read_bytes()
    (tmp_path / "a.exr").write_bytes(data[: len(data) // 2])
    with pytest.raises(ImageError, match="cannot be read as EXR"):
        restored(bicubic(2), tmp_path / "a.exr")
    assert capsys.readouterr().out == ""


def test_errors_that_a_file_has_are_replaced_by_new_ones(tmp_path):
    planes = bright(np.float16)
    old = {f"sigma.{name}": np.full((18, 25), 9, np.float32) for name in planes}
    write(tmp_path / "a.exr", planes | old | {"sigma.x": planes["R"]})
    done = restored(unchanged(), tmp_path / "a.exr")
    assert done.science.bands == ["B", "G", "R", "sigma.x"]
    assert done.warnings[-1].endswith("parts of the file: the errors that it had.")
    result = channels_of(done.output)
    assert result.keys() == planes.keys() | old.keys() | {"sigma.x", "sigma.sigma.x"}
    assert all((result[name] != 9).all() for name in old)


def test_object_numbers_in_floating_point_are_repeated(tmp_path):
    numbers = np.random.default_rng(0).integers(2**23, 2**30, (18, 25), np.uint32)
    numbers = numbers.view(np.float32)
    planes = {f"crypto00.{letter}": numbers for letter in "rgba"}
    names = {"cryptomatte/1/name": "crypto", "cryptomatte/1/hash": "MurmurHash3_32"}
    write(tmp_path / "a.exr", bright(np.float16) | planes, **names)
    done = restored(bicubic(2), tmp_path / "a.exr")
    assert done.science.bands == ["B", "G", "R"]
    result = channels_of(done.output)
    for name in planes:
        np.testing.assert_array_equal(result[name], numbers.repeat(2, 0).repeat(2, 1))


def test_colours_of_layers_with_small_letters_go_jointly(tmp_path):
    planes = {f"beauty.{n}": p for n, p in bright(np.float16, "rgb").items()}
    write(tmp_path / "a.exr", planes)
    assert (
        restored(unchanged(), tmp_path / "a.exr").science.applied == "red, green and blue jointly"
    )


@pytest.fixture
def only_headers(monkeypatch):
    """Let a test fail that reads pixels: a small file can hold any number of them."""
    whole = exr.File

    def header_of(*names, header_only=False, **options):
        assert header_only, "the pixels are read"
        return whole(*names, header_only=True, **options)

    return lambda: monkeypatch.setattr(exr, "File", header_of)


def test_several_parts_are_refused_before_they_are_read(tmp_path, only_headers):
    header = {"compression": exr.ZIP_COMPRESSION, "type": exr.scanlineimage}
    parts = [exr.Part(dict(header), bright(np.float16), name) for name in ("left", "right")]
    exr.File(parts).write(str(tmp_path / "a.exr"))
    only_headers()
    with pytest.raises(ImageError, match="has 2 parts, and one is expected; write the part as"):
        restored(bicubic(2), tmp_path / "a.exr")


def test_deep_pixels_are_refused_before_they_are_read(tmp_path, only_headers):
    deep = np.empty((4, 5), object)
    for place in np.ndindex(deep.shape):
        deep[place] = np.ones(2, np.float32)
    header = {"compression": exr.ZIPS_COMPRESSION, "type": exr.deepscanline}
    exr.File(header, {"Z": deep}).write(str(tmp_path / "a.exr"))
    only_headers()
    with pytest.raises(ImageError, match="has deep pixels; flatten it"):
        restored(bicubic(2), tmp_path / "a.exr")


def test_values_far_beyond_the_range_are_told(tmp_path):
    write(tmp_path / "a.exr", {"Z": waves(18, 25, low=500, high=600).astype(np.float32)})
    (warning,) = restored(bicubic(2), tmp_path / "a.exr").warnings
    assert warning.startswith("Values of a plane lie around 5")
    assert warning.endswith("and the network knows the range of 0 to 1; --range suits better.")
    assert restored(bicubic(2), tmp_path / "a.exr", value_range=(0, 600)).warnings == []
