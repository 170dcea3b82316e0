"""Pictures written band by band: the bytes do not depend on how the rows came."""

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from musigma.images.decoding import declared_size
from musigma.images.image_io import ImageMeta, image_writer, open_image, read_image, write_image
from musigma.types import ImageError


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("suffix", ["png", "tif", "jpg", "webp", "bmp"])
def test_strips_give_the_file_of_the_whole(tmp_path, suffix, bits):
    image = torch.rand(1, 3, 201, 31, generator=torch.Generator().manual_seed(0))
    alpha = image[:, :1] if suffix in ("png", "tif", "webp") else None
    meta = ImageMeta(bits=bits, alpha=alpha)
    write_image(tmp_path / f"whole.{suffix}", image, meta)
    for height in (1, 63, 130):
        path = tmp_path / f"{height}.{suffix}"
        with image_writer(path, (1, 3, 201, 31), meta, alpha=alpha is not None) as rows:
            for top in range(0, 201, height):
                part = slice(top, top + height)
                rows.write(image[:, :, part], None if alpha is None else alpha[:, :, part])
        assert path.read_bytes() == (tmp_path / f"whole.{suffix}").read_bytes()


@pytest.mark.parametrize("channels", [1, 3])
def test_eight_bits_as_other_readers_see_them(tmp_path, channels):
    samples = np.random.default_rng(0).integers(0, 256, (137, 31, channels), np.uint8)
    values = torch.from_numpy(samples.transpose(2, 0, 1)[None].astype(np.float32) / 255)
    for name in ("a.png", "a.tif"):
        write_image(tmp_path / name, values)
        with Image.open(tmp_path / name) as image:
            assert np.array_equal(np.atleast_3d(np.asarray(image)), samples)
    assert np.array_equal(np.atleast_3d(tifffile.imread(tmp_path / "a.tif")), samples)


def test_parts_of_an_opened_picture_are_parts_of_the_whole(tmp_path):
    image = torch.rand(1, 3, 37, 31, generator=torch.Generator().manual_seed(0))
    write_image(tmp_path / "a.png", image, ImageMeta(bits=16, alpha=image[:, :1]))
    values, meta = read_image(tmp_path / "a.png")
    opened = open_image(tmp_path / "a.png")
    assert opened.colors.shape == (1, 3, 37, 31)
    assert torch.equal(opened.colors[..., 5:9, 3:30], values[..., 5:9, 3:30])
    assert torch.equal(opened.alpha[:], meta.alpha)
    assert opened.meta.alpha is None


def test_size_without_pixels(tmp_path):
    write_image(tmp_path / "a.jpg", torch.zeros(1, 1, 37, 31))
    assert declared_size(tmp_path / "a.jpg")[:2] == (37, 31)
    (tmp_path / "b.jpg").write_bytes((tmp_path / "a.jpg").read_bytes()[:20])
    with pytest.raises(ImageError, match=r"b\.jpg: cannot be decoded as JPEG"):
        declared_size(tmp_path / "b.jpg")
