"""Whatever hinders writing a picture, the user gets one line that names it, and loses nothing."""

import errno
import io
import os
from pathlib import Path

import pytest
import torch

from helpers.pictures import one_line
from musigma.images.image_io import ImageMeta, write_image
from musigma.types import ImageError, Prediction

GOOD = torch.full((1, 3, 4, 5), 0.5)


def refused(path, image=GOOD, meta=None):
    """The line that refuses to write; nothing may be left behind."""
    before = {item: item.read_bytes() for item in path.parent.iterdir() if item.is_file()}
    with pytest.raises(ImageError) as caught:
        write_image(path, image, meta)
    after = {item: item.read_bytes() for item in path.parent.iterdir() if item.is_file()}
    assert before == after
    return one_line(caught, path)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("name", ["a.png", "a.tif"])
def test_not_a_number_is_never_written(tmp_path, value, bits, name):
    (tmp_path / name).write_bytes(b"what was there")
    image = torch.full((1, 3, 200, 5), 0.5)
    image[0, 1, 150, 2] = value
    line = refused(tmp_path / name, image, ImageMeta(bits=bits))
    assert "holds NaN or infinite values; if it was computed in half precision, use float32" in line


def test_names_that_cannot_be_written(tmp_path):
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "file").write_bytes(b"")
    assert "did you mean '.png'" in refused(tmp_path / "a.pngg")
    assert "suffix ''" in refused(tmp_path / "a")
    assert "is a folder; give the name of a file" in refused(tmp_path / "folder.png")
    with pytest.raises(ImageError, match=r"could not be written \(File exists\)"):
        write_image(tmp_path / "file" / "a.png", GOOD)


@pytest.mark.parametrize(
    "shape", [(3, 4, 5), (2, 3, 4, 5), (1, 2, 4, 5), (1, 4, 4, 5), (1, 3, 0, 5)]
)
def test_shapes_that_are_no_picture(tmp_path, shape):
    assert f"got {shape}" in refused(tmp_path / "a.png", torch.zeros(shape))


def test_alpha_that_does_not_fit(tmp_path):
    small = ImageMeta(alpha=torch.ones(1, 1, 2, 2))
    assert "(1, 1, 4, 5), got (1, 1, 2, 2); enlarge it" in refused(tmp_path / "a.png", GOOD, small)
    alpha = ImageMeta(alpha=torch.ones(1, 1, 4, 5))
    for name in ("a.jpg", "a.bmp"):
        assert "no room for alpha; write PNG, WebP or TIFF" in refused(tmp_path / name, GOOD, alpha)


def test_pictures_larger_than_the_format(tmp_path):
    line = torch.zeros(1, 1, 1, 1).expand(1, 1, 1, 70_000)
    assert "70000 x 1 pixels are more than JPEG can hold; write PNG" in refused(
        tmp_path / "a.jpg", line
    )
    assert "more than WEBP can hold" in refused(tmp_path / "a.webp", line)
    huge = torch.zeros(1, 1, 1, 1).expand(1, 3, 40_000, 40_000)
    assert "more than TIFF can hold" in refused(tmp_path / "a.tif", huge)
    assert "more than BMP can hold" in refused(tmp_path / "a.bmp", huge)


class FullDisk(io.FileIO):
    """A file on a disk without room."""

    def write(self, _):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.webp", "a.tif", "a.bmp"])
@pytest.mark.parametrize("bits", [8, 16])
def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch, name, bits):
    (tmp_path / name).write_bytes(b"what was there")
    real_open = Path.open
    monkeypatch.setattr(
        Path, "open", lambda self, mode: (FullDisk if "x" in mode else real_open)(self, mode)
    )
    line = refused(tmp_path / name, GOOD, ImageMeta(bits=bits))
    assert "could not be written (No space left on device); no partial file is left" in line


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_folder_that_may_not_be_written(tmp_path, monkeypatch, code):
    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "open", refuse)
    assert f"could not be written ({os.strerror(code)})" in refused(tmp_path / "a.png")


def test_what_is_no_picture_is_refused_with_what_to_give(tmp_path):
    image = torch.rand(1, 3, 4, 5)
    for wrong, hint in (
        (Prediction(image, None), r"got Prediction; give prediction\.mean"),
        (image.numpy(), r"got ndarray; .*torch\.from_numpy"),
        (torch.cat([image, image]), "write the pictures of a batch one by one"),
    ):
        with pytest.raises(ImageError, match=hint):
            write_image(tmp_path / "a.png", wrong)
