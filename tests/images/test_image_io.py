import struct
import threading
import warnings
import zlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image, ImageCms

from helpers.pictures import SIGNATURE, black_ink_profile, chunk, png
from musigma.functional.color import quantise
from musigma.images.image_io import ImageMeta, read_image, write_image
from musigma.types import ConfigError, ImageError

HEIGHT, WIDTH = 37, 31
SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
GRAY_PROFILE = bytes(16) + b"GRAY" + bytes(200)


def random_bytes(*channels, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (HEIGHT, WIDTH, *channels), np.uint8)


def levels(values, full_scale=255):
    """The integers behind a tensor of ours, as (H, W, C)."""
    return np.rint(values[0].permute(1, 2, 0).numpy() * full_scale).astype(int)


def unit(samples, full_scale=255):
    return torch.from_numpy(samples.transpose(2, 0, 1)[None].astype(np.float32) / full_scale)


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.TIFF", "a.bmp", "a.webp"])
@pytest.mark.parametrize("channels", [1, 3])
def test_eight_bits_come_back_exactly(tmp_path, name, channels):
    samples = random_bytes(channels)
    write_image(tmp_path / name, unit(samples), quality=100)
    values, meta = read_image(tmp_path / name)
    assert values.dtype == torch.float32
    expected = np.repeat(samples, 3, axis=2) if name == "a.webp" and channels == 1 else samples
    assert np.array_equal(levels(values), expected)  # WebP has no gray
    assert torch.equal(values, unit(expected))
    assert (meta.bits, meta.channels, meta.alpha) == (8, expected.shape[2], None)
    assert meta.format == {"a.bmp": "BMP", "a.png": "PNG", "a.webp": "WEBP"}.get(name, "TIFF")
    with Image.open(tmp_path / name) as image:
        assert np.array_equal(np.atleast_3d(np.asarray(image)), expected)


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.webp"])
@pytest.mark.parametrize("channels", [1, 3])
def test_alpha_comes_back_exactly(tmp_path, name, channels):
    samples, alpha = random_bytes(channels), random_bytes(1, seed=1)
    write_image(tmp_path / name, unit(samples), ImageMeta(alpha=unit(alpha)), quality=100)
    values, meta = read_image(tmp_path / name)
    assert np.array_equal(levels(values), np.broadcast_to(samples, levels(values).shape))
    assert meta.alpha.shape == (1, 1, HEIGHT, WIDTH)
    assert np.array_equal(levels(meta.alpha), alpha)


@pytest.mark.parametrize("channels", [1, 3])
def test_jpeg_stays_near_and_gray_stays_gray(tmp_path, channels):
    ramp = np.linspace(0, 255, HEIGHT * WIDTH).reshape(HEIGHT, WIDTH, 1).repeat(channels, 2)
    write_image(tmp_path / "a.jpg", unit(ramp))
    values, meta = read_image(tmp_path / "a.jpg")
    assert values.shape == (1, channels, HEIGHT, WIDTH)
    assert (meta.format, meta.bits) == ("JPEG", 8)
    assert np.abs(levels(values) - ramp).max() < 8


def test_quality_changes_the_size_of_jpeg_and_webp(tmp_path):
    image = unit(random_bytes(3))
    for name in ("a.jpg", "a.webp"):
        sizes = []
        for quality in (30, 95):
            write_image(tmp_path / name, image, quality=quality)
            sizes.append((tmp_path / name).stat().st_size)
        assert sizes[0] < sizes[1]
    with pytest.raises(ConfigError, match="quality must be from 1 to 100, got 0"):
        write_image(tmp_path / "b.jpg", image, quality=0)


def test_rounding_is_that_of_the_evaluation(tmp_path):
    # Halves go up, as in `to_uint8` and in MATLAB; what lies outside is clamped.
    row = torch.tensor([-0.3, 0.0, 0.49, 0.5, 0.51, 1.5, 2.5, 254.5, 255.0, 300.0]) / 255
    write_image(tmp_path / "a.png", row.reshape(1, 1, 1, -1))
    values, _ = read_image(tmp_path / "a.png")
    assert levels(values).ravel().tolist() == [0, 0, 0, 1, 1, 2, 3, 255, 255, 255]
    assert torch.equal(values.flatten(), quantise(row))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_any_float_type_is_written_even_with_a_gradient(tmp_path, dtype):
    image = torch.full((1, 3, 5, 4), 0.5, dtype=dtype, requires_grad=True)
    write_image(tmp_path / "a.png", image)
    assert (levels(read_image(tmp_path / "a.png")[0]) == 128).all()


def test_palettes_become_colors(tmp_path):
    index = np.arange(HEIGHT * WIDTH, dtype=np.uint8).reshape(HEIGHT, WIDTH) % 3
    image = Image.fromarray(index).convert("P")
    colors = [[10, 20, 30], [200, 100, 0], [255, 255, 255]]
    image.putpalette(np.ravel(colors).tolist())
    image.putdata(index.ravel().tolist())
    image.save(tmp_path / "plain.png")
    image.save(tmp_path / "plain.tif")
    image.save(tmp_path / "plain.bmp")
    image.save(tmp_path / "clear.png", transparency=bytes([255, 128, 0]))
    for name in ("plain.png", "plain.tif", "plain.bmp", "clear.png"):
        values, meta = read_image(tmp_path / name)
        assert np.array_equal(levels(values), np.array(colors)[index])
    assert np.array_equal(levels(meta.alpha)[..., 0], np.array([255, 128, 0])[index])


def test_single_bits_become_gray(tmp_path):
    bits = random_bytes() > 127
    Image.fromarray(bits).save(tmp_path / "a.png")
    Image.fromarray(bits).save(tmp_path / "a.tif", compression="group4")
    for name in ("a.png", "a.tif"):
        values, meta = read_image(tmp_path / name)
        assert np.array_equal(values[0, 0].numpy(), bits)
        assert (meta.bits, meta.channels) == (8, 1)


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_one_see_through_gray_of_few_bits(tmp_path, bits):
    size = struct.pack(">II", 8 // bits, 1)
    header = SIGNATURE + chunk(b"IHDR", size + bytes([bits, 0, 0, 0, 0]))
    pixels = zlib.compress(bytes([0, 0b00011011]))  # the filter and one byte of pixels
    data = header + chunk(b"tRNS", bytes([0, 1])) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    (tmp_path / "a.png").write_bytes(data)
    values, meta = read_image(tmp_path / "a.png")
    grays = {1: [0, 0, 0, 1, 1, 0, 1, 1], 2: [0, 1, 2, 3], 4: [1, 11]}[bits]
    assert np.array_equal(levels(values).ravel(), np.array(grays) * 255 // (2**bits - 1))
    assert meta.alpha.flatten().tolist() == [gray != 1 for gray in grays]


def test_one_see_through_color(tmp_path):
    samples = random_bytes(3)
    samples[3, 5] = samples[0, 0]
    key = chunk(b"tRNS", samples[0, 0].astype(">u2").tobytes())
    (tmp_path / "a.png").write_bytes(png(samples, extra=key))
    values, meta = read_image(tmp_path / "a.png")
    assert np.array_equal(levels(values), samples)
    assert (meta.alpha[0, 0, 0, 0], meta.alpha[0, 0, 3, 5], meta.alpha[0, 0, 1, 1]) == (0, 0, 1)


# What the EXIF standard calls the 0th row and the 0th column of the stored picture, turned into
# the upright picture's indices: stored[row, column] = upright[...].
STORED = {
    1: lambda upright: upright,
    2: lambda upright: upright[:, ::-1],  # top, right
    3: lambda upright: upright[::-1, ::-1],  # bottom, right
    4: lambda upright: upright[::-1],  # bottom, left
    5: lambda upright: upright.transpose(1, 0, 2),  # left, top
    6: lambda upright: upright[:, ::-1].transpose(1, 0, 2),  # right, top
    7: lambda upright: upright[::-1, ::-1].transpose(1, 0, 2),  # right, bottom
    8: lambda upright: upright[::-1].transpose(1, 0, 2),  # left, bottom
}


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.webp"])
def test_orientation_is_applied_and_not_written_back(tmp_path, orientation, name):
    upright = random_bytes(3)
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = orientation, "a maker"
    stored = Image.fromarray(np.ascontiguousarray(STORED[orientation](upright)))
    stored.save(tmp_path / name, exif=exif, **({"lossless": True} if name == "a.webp" else {}))
    values, meta = read_image(tmp_path / name)
    assert np.array_equal(levels(values), upright)
    write_image(tmp_path / f"again-{name}", values, meta, quality=100)
    again, _ = read_image(tmp_path / f"again-{name}")
    assert torch.equal(again, values)


def test_orientation_counts_even_where_the_rest_of_exif_is_broken(tmp_path, monkeypatch):
    def fail(*_):
        raise ValueError("broken")

    exif = Image.Exif()
    exif[0x0112] = 3
    Image.fromarray(random_bytes(3)).save(tmp_path / "a.png", exif=exif)
    monkeypatch.setattr(Image.Exif, "get_ifd", fail)
    values, meta = read_image(tmp_path / "a.png")
    assert np.array_equal(levels(values), random_bytes(3)[::-1, ::-1])
    assert meta.exif is None


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.webp"])
@pytest.mark.parametrize("bits", [8, 16])
def test_exif_is_kept_without_what_no_longer_holds(tmp_path, name, bits):
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "a maker"
    exif[0x8769] = {0xA002: WIDTH, 0xA003: HEIGHT, 0x9003: "2026:01:02 03:04:05"}
    Image.fromarray(random_bytes(3)).save(tmp_path / "photo.jpg", exif=exif)
    values, meta = read_image(tmp_path / "photo.jpg")
    write_image(tmp_path / name, values, replace(meta, bits=bits))
    with Image.open(tmp_path / name) as image:
        kept = image.getexif()
        assert dict(kept) == {0x010F: "a maker", 0x8769: kept[0x8769]}
        assert kept.get_ifd(0x8769) == {0x9003: "2026:01:02 03:04:05"}


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.webp", "a.tif"])
@pytest.mark.parametrize("bits", [8, 16])
def test_color_profile_is_kept(tmp_path, name, bits):
    write_image(tmp_path / name, unit(random_bytes(3)), ImageMeta(bits=bits, icc_profile=SRGB))
    assert read_image(tmp_path / name)[1].icc_profile == SRGB
    with Image.open(tmp_path / name) as image:
        assert image.info["icc_profile"] == SRGB


def test_profile_of_another_color_space_is_left_out(tmp_path):
    for name, profile, channels, kept in [
        ("a.png", GRAY_PROFILE, 1, GRAY_PROFILE),
        ("a.png", GRAY_PROFILE, 3, None),
        ("a.png", SRGB, 1, None),
        ("a.png", b"rubbish", 3, None),
        ("a.webp", GRAY_PROFILE, 1, None),  # it is written as color
    ]:
        image = unit(random_bytes(channels))
        write_image(tmp_path / name, image, ImageMeta(icc_profile=profile))
        assert read_image(tmp_path / name)[1].icc_profile == kept


@pytest.mark.parametrize("name", ["a.jpg", "a.tif"])
def test_cmyk_goes_through_its_profile(tmp_path, name):
    inks = Image.new("CMYK", (WIDTH, HEIGHT), (10, 200, 30, 128))
    inks.save(tmp_path / name, icc_profile=black_ink_profile(), quality=100)
    values, meta = read_image(tmp_path / name)
    # The profile sees L* = 100 (1 - 128/255) = 49.80, so Y = ((L* + 16) / 116)^3 = 0.18271, and the
    # sRGB curve gives 255 (1.055 Y^(1/2.4) - 0.055) = 118.42.
    assert np.abs(levels(values) - 118.42).max() < 2
    assert (meta.channels, meta.icc_profile) == (3, None)


@pytest.mark.parametrize("profile", [b"", b"rubbish", SRGB])
def test_cmyk_without_a_usable_profile_is_plain_inks(tmp_path, profile):
    inks = Image.new("CMYK", (WIDTH, HEIGHT), (10, 200, 30, 0))
    inks.save(tmp_path / "a.tif", icc_profile=profile)
    values, _ = read_image(tmp_path / "a.tif")
    assert (levels(values) == [245, 55, 225]).all()


def test_float_tiff_is_read_as_it_is(tmp_path):
    numbers = np.random.default_rng(0).random((HEIGHT, WIDTH), np.float32)
    Image.fromarray(numbers).save(tmp_path / "a.tif")
    values, meta = read_image(tmp_path / "a.tif")
    assert np.array_equal(values[0, 0].numpy(), numbers)
    assert (meta.bits, meta.channels) == (16, 1)


@pytest.mark.parametrize(("name", "frames"), [("a.tif", 3), ("a.png", 3), ("a.webp", 3)])
def test_one_of_several_frames_must_be_chosen(tmp_path, name, frames):
    pages = [Image.fromarray(random_bytes(3, seed=seed)) for seed in range(frames)]
    pages[0].save(tmp_path / name, save_all=True, append_images=pages[1:], lossless=True)
    with pytest.raises(ImageError, match=r"holds 3 pages or frames.*with `frame`, 0 to 2"):
        read_image(tmp_path / name)
    with pytest.raises(ImageError, match="has no frame 3; its last one is 2"):
        read_image(tmp_path / name, frame=3)
    for frame, page in enumerate(pages):
        values, _ = read_image(tmp_path / name, frame=frame)
        assert np.array_equal(levels(values), np.asarray(page))


def test_content_counts_and_not_the_suffix(tmp_path):
    (tmp_path / "a.jpg").write_bytes(png(random_bytes(3)))
    values, meta = read_image(str(tmp_path / "a.jpg"))
    assert meta.format == "PNG"
    assert np.array_equal(levels(values), random_bytes(3))


def test_limits_are_ours_and_not_those_of_pillow(tmp_path, monkeypatch):
    for name in ("a.png", "a.tif"):
        write_image(tmp_path / name, unit(random_bytes(3)))
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
        filters = list(warnings.filters)
        values, _ = read_image(tmp_path / name, max_pixels=HEIGHT * WIDTH)
        assert values.shape[-2:] == (HEIGHT, WIDTH)
        with pytest.raises(ImageError, match=r"31 x 37 pixels, .*limit of 1,146.*`max_pixels`"):
            read_image(tmp_path / name, max_pixels=HEIGHT * WIDTH - 1)
        assert Image.MAX_IMAGE_PIXELS == 100
        assert warnings.filters == filters


def test_threads_leave_the_switches_of_pillow_alone(tmp_path):
    write_image(tmp_path / "a.png", unit(random_bytes(3)))
    before = Image.MAX_IMAGE_PIXELS, list(warnings.filters)
    results = []

    def read_often():
        results.extend(read_image(tmp_path / "a.png")[0] for _ in range(20))

    threads = [threading.Thread(target=read_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 80
    assert all(torch.equal(result, results[0]) for result in results)
    assert before == (Image.MAX_IMAGE_PIXELS, list(warnings.filters))


def test_a_tall_picture_is_written_band_by_band_without_a_seam(tmp_path):
    samples = np.random.default_rng(0).integers(0, 256, (301, 3, 3), np.uint8)
    for bits in (8, 16):
        for name in ("a.png", "a.tif"):
            write_image(tmp_path / name, unit(samples), ImageMeta(bits=bits))
            assert np.array_equal(levels(read_image(tmp_path / name)[0]), samples)


def test_smallest_picture(tmp_path):
    for name in ("a.png", "a.jpg", "a.webp", "a.tif", "a.bmp"):
        for bits in (8, 16):
            write_image(tmp_path / name, torch.ones(1, 3, 1, 1), ImageMeta(bits=bits))
            values, _ = read_image(tmp_path / name)
            assert torch.equal(values, torch.ones(1, 3, 1, 1))


@pytest.mark.parametrize(
    ("name", "options", "lossy"),
    [
        ("a.png", {}, False),
        ("a.bmp", {}, False),
        ("a.jpg", {"quality": 100}, True),
        ("a.webp", {"quality": 90}, True),
        ("alpha.webp", {"quality": 90}, True),
        ("a.webp", {"lossless": True}, False),
        ("alpha.webp", {"lossless": True}, False),
        ("a.tif", {"compression": "tiff_deflate"}, False),
        ("a.tif", {"compression": "jpeg"}, True),
    ],
)
def test_lossy_files_are_known_when_they_are_read(tmp_path, name, options, lossy):
    channels = 4 if name.startswith("alpha") else 3
    samples = np.random.default_rng(0).integers(0, 256, (16, 16, channels), np.uint8)
    Image.fromarray(samples).save(tmp_path / name, **options)
    assert read_image(tmp_path / name)[1].lossy is lossy
