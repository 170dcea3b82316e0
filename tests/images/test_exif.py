"""What a picture says about itself stays with its result, also in a TIFF and beyond ASCII."""

import numpy as np
import pytest
from PIL import Image

from musigma.images.image_io import read_image, write_image

ARTIST, DESCRIPTION, COPYRIGHT, EXPOSURE, LATITUDE = 315, 270, 33432, 33434, 2
PIXELS = np.random.default_rng(0).integers(0, 256, (9, 7, 3), np.uint8)
NAME = "Jürgen Müller"


def source_in(folder, suffix):
    """Write a picture with an author, a camera's settings and a place, as programs write them."""
    exif = Image.Exif()
    exif[ARTIST] = stand_in = "J..rgen M..ller"  # Pillow writes ASCII alone
    exif[DESCRIPTION], exif[COPYRIGHT], exif[274] = "Postcard, 1912", "public domain", 1
    exif[34665] = {EXPOSURE: 0.01, 36867: "2020:01:02 10:00:00"}
    exif[34853] = {1: "N", LATITUDE: (48.0, 8.0, 15.0)}
    path = folder / f"source.{suffix}"
    Image.fromarray(PIXELS).save(path, exif=exif.tobytes())
    path.write_bytes(path.read_bytes().replace(stand_in.encode(), NAME.encode()))
    return path


def saved_again(path, suffix):
    """Read a picture and write it; return the EXIF tags, settings and place of what was written."""
    image, meta = read_image(path)
    target = path.with_name(f"result.{suffix}")
    write_image(target, image, meta)
    with Image.open(target) as result:
        exif = result.getexif()
        return dict(exif), dict(exif.get_ifd(34665)), dict(exif.get_ifd(34853))


@pytest.mark.parametrize(("before", "after"), [("tif", "tif"), ("jpg", "tif"), ("tif", "png")])
def test_author_settings_and_place_are_kept(tmp_path, before, after):
    exif, settings, place = saved_again(source_in(tmp_path, before), after)
    assert exif[ARTIST].encode("latin-1").decode() == NAME
    assert (exif[DESCRIPTION], exif[COPYRIGHT]) == ("Postcard, 1912", "public domain")
    assert float(settings[EXPOSURE]) == 0.01
    assert settings[36867] == "2020:01:02 10:00:00"
    assert [float(part) for part in place[LATITUDE]] == [48, 8, 15]


def test_letters_beyond_ascii_are_kept_in_a_jpeg(tmp_path):
    exif, _, _ = saved_again(source_in(tmp_path, "jpg"), "jpg")
    assert exif[ARTIST].encode("latin-1").decode() == NAME


def test_a_description_of_the_old_pixels_is_left_out(tmp_path):
    """ImageJ and tifffile store the number of planes and their shape there."""
    exif = Image.Exif()
    exif[DESCRIPTION], exif[ARTIST] = "ImageJ=1.54f\nimages=3\nslices=3", "Ada"
    path = tmp_path / "source.tif"
    Image.fromarray(PIXELS).save(path, exif=exif.tobytes())
    again, _, _ = saved_again(path, "tif")
    assert DESCRIPTION not in again
    assert again[ARTIST] == "Ada"


def test_pixels_are_those_of_the_result(tmp_path):
    """The tags of a TIFF that tell how its pixels are stored are not those of the source."""
    path = source_in(tmp_path, "tif")
    image, meta = read_image(path)
    write_image(tmp_path / "large.tif", image.repeat_interleave(2, -1), meta)
    with Image.open(tmp_path / "large.tif") as large:
        np.testing.assert_array_equal(np.asarray(large), PIXELS.repeat(2, axis=1))
