import io

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from helpers.pictures import chunk, png
from musigma.images.image_io import ImageMeta, read_image, write_image
from musigma.types import ImageError

HEIGHT, WIDTH = 37, 31


def random_samples(*channels, seed=0):
    return np.random.default_rng(seed).integers(0, 65536, (HEIGHT, WIDTH, *channels), np.uint16)


def samples_of(path):
    """All samples of a picture as integers, alpha last."""
    values, meta = read_image(path)
    assert meta.bits == 16
    parts = [values] if meta.alpha is None else [values, meta.alpha]
    whole = torch.cat(parts, 1)[0].permute(1, 2, 0).double().numpy() * 65535
    assert np.abs(whole - np.rint(whole)).max() < 0.01
    return np.rint(whole).astype(np.uint16)


def write_samples(path, samples, **meta):
    values = torch.from_numpy(samples.transpose(2, 0, 1)[None].astype(np.float32) / 65535)
    channels = 3 if samples.shape[2] >= 3 else 1
    alpha = values[:, channels:] if samples.shape[2] > channels else None
    write_image(path, values[:, :channels], ImageMeta(bits=16, alpha=alpha, **meta))


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("interlaced", [False, True])
def test_png_is_read_with_all_its_bits(tmp_path, channels, interlaced):
    samples = random_samples(channels)
    (tmp_path / "a.png").write_bytes(png(samples, interlaced))
    assert np.array_equal(samples_of(tmp_path / "a.png"), samples)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_png_comes_back_exactly(tmp_path, channels):
    samples = random_samples(channels)
    write_samples(tmp_path / "a.png", samples)
    assert np.array_equal(samples_of(tmp_path / "a.png"), samples)


def test_every_one_of_the_65536_values_comes_back(tmp_path):
    samples = np.arange(65536, dtype=np.uint16).reshape(256, 256, 1)
    for name in ("a.png", "a.tif"):
        write_samples(tmp_path / name, samples)
        assert np.array_equal(samples_of(tmp_path / name), samples)


def test_gray_png_as_pillow_sees_it(tmp_path):
    samples = random_samples(1)
    write_samples(tmp_path / "a.png", samples)
    with Image.open(tmp_path / "a.png") as image:
        image.verify()
    with Image.open(tmp_path / "a.png") as image:
        assert np.array_equal(np.asarray(image), samples[..., 0])


def test_smooth_png_is_well_compressed(tmp_path):
    down, right = np.mgrid[:256, :256]
    samples = ((down + right) * 100).astype(np.uint16)[..., None].repeat(3, 2)
    write_samples(tmp_path / "a.png", samples)
    assert (tmp_path / "a.png").stat().st_size < samples.nbytes / 20


@pytest.mark.parametrize("channels", [1, 3])
def test_one_see_through_color(tmp_path, channels):
    samples = random_samples(channels)
    samples[3, 5] = samples[7, 11] = samples[0, 0]
    key = chunk(b"tRNS", samples[0, 0].astype(">u2").tobytes())
    (tmp_path / "a.png").write_bytes(png(samples, extra=key))
    decoded = samples_of(tmp_path / "a.png")
    assert np.array_equal(decoded[..., :channels], samples)
    assert set(zip(*np.nonzero(decoded[..., -1] == 0), strict=True)) >= {(0, 0), (3, 5), (7, 11)}
    assert decoded[1, 1, -1] == 65535


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("byteorder", ["<", ">"])
@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("tile", [None, (16, 16)])
def test_tiff_of_another_writer_is_read_with_all_its_bits(
    tmp_path, channels, byteorder, compression, tile
):
    samples = random_samples(channels)
    tifffile.imwrite(
        tmp_path / "a.tif",
        samples[..., 0] if channels == 1 else samples,
        photometric="rgb" if channels > 1 else "minisblack",
        extrasamples=["unassalpha"] if channels == 4 else None,
        byteorder=byteorder,
        compression=compression,
        tile=tile,
    )
    assert np.array_equal(samples_of(tmp_path / "a.tif"), samples)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_tiff_comes_back_exactly_and_another_reader_agrees(tmp_path, channels):
    samples = random_samples(channels)
    write_samples(tmp_path / "a.tif", samples)
    assert np.array_equal(samples_of(tmp_path / "a.tif"), samples)
    assert np.array_equal(np.atleast_3d(tifffile.imread(tmp_path / "a.tif")), samples)


def test_tiff_of_gray_and_alpha_is_written_as_color(tmp_path):
    samples = random_samples(2)
    write_samples(tmp_path / "a.tif", samples)
    assert np.array_equal(samples_of(tmp_path / "a.tif"), samples[..., [0, 0, 0, 1]])


def test_tiff_with_orientation(tmp_path):
    samples = random_samples(3)
    right_top = ("H", 1, 6)  # the 0th row is the right-hand side, the 0th column the top
    stored = np.ascontiguousarray(samples[:, ::-1].transpose(1, 0, 2))
    tifffile.imwrite(
        tmp_path / "a.tif", stored, photometric="rgb", extratags=[(274, *right_top, True)]
    )
    assert np.array_equal(samples_of(tmp_path / "a.tif"), samples)


def test_tiff_where_zero_is_white(tmp_path):
    samples = random_samples()
    tifffile.imwrite(tmp_path / "a.tif", samples, photometric="miniswhite")
    assert np.array_equal(samples_of(tmp_path / "a.tif")[..., 0], 65535 - samples)


def test_tiff_with_colors_multiplied_by_alpha(tmp_path):
    straight = random_samples(4).astype(np.float64)
    straight[..., 3] = np.maximum(straight[..., 3], 1000)
    alpha = straight[..., 3:]
    stored = np.rint(np.append(straight[..., :3] * alpha / 65535, alpha, 2)).astype(np.uint16)
    tifffile.imwrite(tmp_path / "a.tif", stored, photometric="rgb", extrasamples=["assocalpha"])
    decoded = samples_of(tmp_path / "a.tif")
    # A stored sample is off by at most a half, which division by alpha enlarges.
    bound = 0.5 * 65535 / alpha + 0.51
    assert (np.abs(decoded[..., :3] - straight[..., :3]) <= bound).all()
    assert np.array_equal(decoded[..., 3:], alpha)


def test_tiff_in_separate_planes_is_refused_and_never_read_wrongly(tmp_path):
    for compression in (None, "zlib"):
        tifffile.imwrite(
            tmp_path / "a.tif",
            random_samples(3).transpose(2, 0, 1),
            photometric="rgb",
            planarconfig="separate",
            compression=compression,
        )
        with pytest.raises(ImageError, match=r"separate planes.*interleaved RGB, or as PNG"):
            read_image(tmp_path / "a.tif")


def test_tiff_of_twelve_bits_reaches_white(tmp_path):
    # Two pixels in three bytes, 0xFFF and 0x800, in a file with the fewest tags.
    tags = {256: 2, 257: 1, 258: 12, 259: 1, 262: 1, 273: 8, 277: 1, 278: 1, 279: 3}
    file = io.BytesIO()
    file.write(b"II*\0" + (12).to_bytes(4, "little") + b"\xff\xf8\x00\0")
    file.write(len(tags).to_bytes(2, "little"))
    for tag, value in tags.items():
        entry = [tag.to_bytes(2, "little"), b"\3\0\1\0\0\0", value.to_bytes(4, "little")]
        file.write(b"".join(entry))
    file.write(bytes(4))
    (tmp_path / "a.tif").write_bytes(file.getvalue())
    values, meta = read_image(tmp_path / "a.tif")
    assert torch.equal(values.flatten(), torch.tensor([1.0, 0x800 / 0xFFF]))
    assert meta.bits == 16


def test_sixteen_bits_become_eight_where_the_format_has_no_more(tmp_path):
    samples = random_samples(3)
    for name in ("a.bmp", "a.webp", "a.jpg"):
        write_samples(tmp_path / name, samples)
        assert read_image(tmp_path / name)[1].bits == 8
