"""Whatever is wrong with a file, the user gets one line that names it, and loses nothing."""

import errno
import io
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.pictures import SIGNATURE, chunk, one_line, png, png_header
from musigma.images import decoding
from musigma.images.image_io import open_image, read_image, write_image
from musigma.types import ImageError

PIXELS = np.random.default_rng(0).integers(0, 256, (37, 31, 3), np.uint8)
PNG = png(PIXELS)


def encoded(format_name, picture=None, **options):
    buffer = io.BytesIO()
    (picture or Image.fromarray(PIXELS)).save(buffer, format_name, **options)
    return buffer.getvalue()


def half(data):
    return data[: len(data) // 2]


def floats(*values):
    return encoded("TIFF", Image.fromarray(np.array([values], np.float32)))


def bmp_with_size(width, height):
    data = bytearray(encoded("BMP"))
    data[18:26] = struct.pack("<ii", width, height)
    return bytes(data)


def png_with_pixels(compressed):
    return png_header(31, 37, 8, 3) + chunk(b"IDAT", compressed) + chunk(b"IEND", b"")


def png_of_rows(num_rows, **changes):
    """A PNG of 40 rows whose stream is whole, but holds only some of them."""
    rows = (b"\0" + bytes(range(93))) * num_rows
    header = png_header(31, 40, 8, 3, **changes)
    return header + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def tiff_without_last_strip():
    """A TIFF of two strips that names the first one alone."""
    data = bytearray(encoded("TIFF", compression="tiff_deflate", strip_size=31 * 3 * 20))
    num_entries = struct.unpack_from("<H", data, struct.unpack_from("<I", data, 4)[0])[0]
    for entry in range(num_entries):
        position = struct.unpack_from("<I", data, 4)[0] + 2 + 12 * entry
        tag, kind, count = struct.unpack_from("<HHI", data, position)
        if tag in (273, 279):
            assert count == 2
            form = "<H" if kind == 3 else "<I"
            inline = struct.calcsize(form) * count <= 4
            where = position + 8 if inline else struct.unpack_from("<I", data, position + 8)[0]
            value = struct.unpack_from(form, data, where)[0]
            data[position + 4 : position + 12] = struct.pack("<II", 1, value)
    return bytes(data)


def cut_jpeg(**options):
    """A JPEG cut soon after its pixel data begin, with an end marker of its own."""
    data = encoded("JPEG", **options)
    return data[: data.index(b"\xff\xda") + 34] + b"\xff\xd9"


def jpeg_without_scans(num_kept, **options):
    """A JPEG that was cut behind its first scans, with an end marker of its own."""
    starts = encoded("JPEG", **options).split(b"\xff\xda")
    assert len(starts) > num_kept + 1
    return b"\xff\xda".join(starts[: num_kept + 1]) + b"\xff\xd9"


def jpeg_of_one_color():
    """A JPEG with a scan for each color, of which the first alone is there."""
    data = bytearray(encoded("JPEG", subsampling=0))
    start = data.index(b"\xff\xda")
    data[start : start + 14] = b"\xff\xda\0\x08\x01\x01\0\0\x3f\0"
    return bytes(data)


def jpeg_of_scans(num_scans):
    """A progressive JPEG whose last scan is repeated."""
    data = encoded("JPEG", progressive=True)
    start = data.rindex(b"\xff\xda")
    return data[:start] + data[start:-2] * num_scans + b"\xff\xd9"


def tiff_of_pages(num_pages, *, sign="<", big=False):
    """Return a TIFF of one gray pixel on each page; all have the same entries."""
    offset, entry = ("Q", "HHQQ") if big else ("I", "HHII")
    magic = {"<": b"II", ">": b"MM"}[sign] + struct.pack(f"{sign}H", 43 if big else 42)
    magic += struct.pack(f"{sign}HH", 8, 0) if big else b""
    start = len(magic) + struct.calcsize(sign + offset)
    tags = {256: 1, 257: 1, 258: 8, 259: 1, 262: 1, 273: start, 277: 1, 278: 1, 279: 1}
    kinds = {273: 16 if big else 4}
    page = struct.pack(f"{sign}{'Q' if big else 'H'}", len(tags))
    for tag, value in tags.items():
        kind = kinds.get(tag, 3)
        if kind == 3:  # a short number stands at the begin of its field
            value <<= 0 if sign == "<" else (48 if big else 16)
        page += struct.pack(sign + entry, tag, kind, 1, value)
    data = [magic, struct.pack(sign + offset, start + 2), b"\x80\0"]
    length = len(page) + struct.calcsize(sign + offset)
    for number in range(1, num_pages + 1):
        after = start + 2 + number * length if number < num_pages else 0
        data += [page, struct.pack(sign + offset, after)]
    return b"".join(data)


def declared(format_name, width, height):
    """A file of a few bytes that declares a large picture."""
    if format_name == "WEBP":  # one color: a lossless WebP needs no bytes for pixels
        bits = (width - 1) | (height - 1) << 14
        body = b"VP8L" + struct.pack("<I", 10) + b"\x2f" + struct.pack("<I", bits) + bytes(5)
        return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body
    data = bytearray(encoded(format_name, Image.new("RGB", (8, 8))))
    if format_name == "JPEG":
        start = data.index(b"\xff\xc0")
        data[start + 5 : start + 9] = struct.pack(">HH", height, width)
    else:
        for entry in range(2):
            position = struct.unpack_from("<I", data, 4)[0] + 2 + 12 * entry
            data[position + 2 : position + 12] = struct.pack("<HII", 4, 1, (width, height)[entry])
    return bytes(data)


BROKEN = {
    "png that ends early": (png_of_rows(10), "the pixel data end early: 940 bytes of 3,760"),
    "interlaced png that ends early": (png_of_rows(10, interlaced=True), "data end early"),
    "tiff without its last strip": (tiff_without_last_strip(), "1 strips or tiles of 2 are there"),
    "cut jpeg": (cut_jpeg(), "the pixel data end early"),
    "cut grey jpeg": (cut_jpeg(picture=Image.fromarray(PIXELS[..., 0])), "data end early"),
    "cut progressive jpeg": (
        # The decoder smooths the border of what is missing, so the picture must be large enough.
        cut_jpeg(picture=Image.fromarray(np.tile(PIXELS, (4, 4, 1))), progressive=True),
        "the pixel data end early",
    ),
    "progressive jpeg of one scan": (jpeg_without_scans(1, progressive=True), "scans are missing"),
    "progressive jpeg of 5 scans": (jpeg_without_scans(5, progressive=True), "scans are missing"),
    "jpeg of one color of three": (jpeg_of_one_color(), "scans are missing"),
    "jpeg of 600 scans": (jpeg_of_scans(600), "it has more than 100 scans"),
    "tiff of 20000 pages": (tiff_of_pages(20_000), "it has more than 10,000 pages"),
    "big tiff of 20000 pages": (tiff_of_pages(20_000, big=True), "10,000 pages"),
    "png of many texts": (
        PNG[:33] + chunk(b"tEXt", b"a\0b") * 20_000 + PNG[33:],
        "it has more chunks than any usual file",
    ),
    "small webp": (declared("WEBP", 16383, 16383), "says it is 16383 x 16383 pixels, and has 30"),
    "small jpeg": (declared("JPEG", 22000, 22000), "no photograph is that small"),
    "small tiff": (declared("TIFF", 20, 8454148), "no photograph is that small"),
    "empty": (b"", "is empty (0 bytes)"),
    "one byte": (b"\x89", "is not a PNG, JPEG, WebP, TIFF, BMP, GIF or AVIF picture"),
    "text": (b"these are\nno pixels", r"it begins with b'these are\nno'"),
    "truncated gif": (half(encoded("GIF")), "cannot be decoded as GIF"),
    "svg": (b'<svg xmlns="http://www.w3.org/2000/svg"/>', "convert it to PNG"),
    "broken heic": (b"\0\0\0\x18ftypheic" + bytes(40), "HEI"),
    "sound": (b"RIFF\0\0\0\0WAVEfmt ", "is not a PNG"),
    "truncated png": (half(PNG), "cannot be decoded as PNG"),
    "truncated 16-bit png": (half(png(PIXELS.astype(np.uint16))), "cannot be decoded as PNG"),
    "truncated jpeg": (half(encoded("JPEG")), "cannot be decoded as JPEG (image file is truncated"),
    "truncated tiff": (encoded("TIFF")[:-1000], "cannot be decoded as TIFF"),
    "truncated deflated tiff": (half(encoded("TIFF", compression="tiff_deflate")), "as TIFF"),
    "truncated webp": (half(encoded("WEBP", lossless=True)), "cannot be decoded as WEBP"),
    "truncated bmp": (half(encoded("BMP")), "cannot be decoded as BMP (image file is truncated"),
    "signature only": (SIGNATURE, "cannot be decoded as PNG"),
    "no pixels": (png_header(31, 37, 8, 3) + chunk(b"IEND", b""), "cannot be decoded as PNG"),
    "zero wide": (png_header(0, 37, 8, 3) + PNG[33:], "cannot be decoded as PNG"),
    "zero high": (bmp_with_size(31, 0), "cannot be decoded as BMP"),
    "header checksum": (
        SIGNATURE + chunk(b"IHDR", PNG[16:29], checksum=1) + PNG[33:],
        "bad header checksum",
    ),
    "pixel checksum": (
        png_header(31, 37, 8, 3) + chunk(b"IDAT", PNG[41:-16], checksum=1) + PNG[-12:],
        "bad header checksum",
    ),
    "no zlib stream": (png_with_pixels(b"no stream"), "cannot be decoded as PNG"),
    "broken zlib stream": (
        png_with_pixels(PNG[41:1000] + bytes(200) + PNG[1200:-16]),
        "cannot be decoded as PNG",
    ),
    "too few pixels": (png_with_pixels(zlib.compress(bytes(100))), "cannot be decoded as PNG"),
    "unknown filter": (
        png_with_pixels(zlib.compress(b"\x09" * 94 * 37)),
        "cannot be decoded as PNG",
    ),
    "png bomb": (
        png_header(30_000, 30_000, 8, 3) + chunk(b"IDAT", zlib.compress(bytes(10**6))),
        "truncated",
    ),
    "whole png bomb": (
        png_header(30_000, 30_000, 8, 3) + PNG[33:],
        "says it is 30000 x 30000 pixels, more than the limit of 500,000,000; if you trust",
    ),
    "bmp bomb": (bmp_with_size(30_000, 30_000), "more than the limit of 500,000,000"),
    "nan": (floats(0, float("nan"), 1), "values from nan to nan"),
    "infinity": (floats(0, float("inf")), "values from 0 to inf, where 0 to 1 was expected"),
    "floats of 255": (
        floats(0, 127.5, 255),
        "where 0 to 1 was expected; if they are measured, give",
    ),
    "negative floats": (floats(-0.25, 1), "from -0.25 to 1"),
    "32-bit integers": (
        encoded("TIFF", Image.fromarray(np.arange(6, dtype=np.int32).reshape(2, 3))),
        "holds I pixels, which cannot be read; save it as RGB or gray",
    ),
    "lab": (encoded("TIFF", Image.new("LAB", (3, 2))), "holds LAB pixels"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_file(tmp_path, case):
    data, text = BROKEN[case]
    path = tmp_path / f"{case}.png"
    path.write_bytes(data)
    with pytest.raises(ImageError) as caught:
        read_image(path)
    assert text in one_line(caught, path)


def test_missing_file(tmp_path):
    with pytest.raises(ImageError) as caught:
        read_image(tmp_path / "a.png")
    assert one_line(caught, tmp_path / "a.png").endswith(": does not exist")


def test_broken_link(tmp_path):
    (tmp_path / "a.png").symlink_to("b.png")
    with pytest.raises(ImageError) as caught:
        read_image(tmp_path / "a.png")
    assert "is a link to b.png, which does not exist" in one_line(caught, tmp_path / "a.png")


def test_folder_named_as_a_picture(tmp_path):
    (tmp_path / "a.png").mkdir()
    with pytest.raises(ImageError) as caught:
        read_image(tmp_path / "a.png")
    assert "is a folder, not a picture" in one_line(caught, tmp_path / "a.png")


def test_pipe_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(ImageError) as caught:
        read_image(tmp_path / "a.png")
    assert "is not a regular file" in one_line(caught, tmp_path / "a.png")


def test_file_below_a_file(tmp_path):
    (tmp_path / "a.png").write_bytes(PNG)
    with pytest.raises(ImageError) as caught:
        read_image(tmp_path / "a.png" / "b.png")
    assert "could not be opened (Not a directory)" in one_line(caught, tmp_path / "a.png/b.png")


def test_file_without_permission(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    (tmp_path / "a.png").write_bytes(PNG)
    monkeypatch.setattr(Path, "open", refuse)  # the tests may run as root, who may read anything
    with pytest.raises(ImageError) as caught:
        read_image(tmp_path / "a.png")
    assert "could not be opened (Permission denied)" in one_line(caught, tmp_path / "a.png")


def test_names_of_all_kinds(tmp_path):
    for name in ("a b.png", "日本語.png", "é\u0301.png", "two\nlines.png", "tab\t.png"):
        write_image(tmp_path / name, torch.zeros(1, 3, 2, 2))
        assert read_image(tmp_path / name)[0].shape == (1, 3, 2, 2)
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(ImageError) as caught:
            read_image(tmp_path / name)
        one_line(caught, str(tmp_path / name).replace("\n", r"\n").replace("\t", r"\t"))


def broken_profile():
    return PNG[:33] + chunk(b"iCCP", b"name\0\0not compressed") + PNG[33:]


def broken_exif():
    return PNG[:33] + chunk(b"eXIf", b"MM\0*\0\0\0\x08\0\xff" + bytes(9)) + PNG[33:]


def wild_orientation():
    exif = Image.Exif()
    exif[0x0112] = 77
    return encoded("PNG", exif=exif)


@pytest.mark.parametrize(
    "data",
    [
        PNG + b"rubbish behind the end",
        broken_profile(),
        broken_exif(),
        wild_orientation(),
        encoded("PNG", exif=b"Exif\0\0rubbish"),
        encoded("TIFF", icc_profile=b"rubbish"),
    ],
    ids=["tail", "profile", "exif", "orientation", "no exif at all", "tiff profile"],
)
def test_what_is_broken_beside_the_pixels_does_not_matter(tmp_path, data):
    (tmp_path / "a.png").write_bytes(data)
    values, meta = read_image(tmp_path / "a.png")
    assert np.array_equal(np.rint(values[0].permute(1, 2, 0).numpy() * 255), PIXELS)
    write_image(tmp_path / "b.png", values, meta)
    assert torch.equal(read_image(tmp_path / "b.png")[0], values)


def test_jpeg_with_a_tail_or_broken_exif_is_read(tmp_path):
    plain = encoded("JPEG")
    for data in (plain + bytes(1000), encoded("JPEG", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")):
        (tmp_path / "a.jpg").write_bytes(data)
        (tmp_path / "plain.jpg").write_bytes(plain)
        assert torch.equal(read_image(tmp_path / "a.jpg")[0], read_image(tmp_path / "plain.jpg")[0])


SEEDS = {
    "png": PNG,
    "16-bit png": png(PIXELS.astype(np.uint16) * 257),
    "palette": encoded("PNG", Image.fromarray(PIXELS).quantize(16), transparency=3),
    "jpeg": encoded("JPEG"),
    "webp": encoded("WEBP"),
    "tiff": encoded("TIFF"),
    "lzw tiff": encoded("TIFF", compression="tiff_lzw"),
    "bmp": encoded("BMP"),
}


@pytest.mark.parametrize("seed", SEEDS)
def test_random_damage_gives_a_picture_or_one_line(tmp_path, seed):
    generator = np.random.default_rng(0)
    path = tmp_path / "a.png"
    lines = []
    for _ in range(100):
        data = bytearray(SEEDS[seed])
        head = 150 if generator.random() < 0.7 else len(data)  # most of what can go wrong is there
        for place in generator.integers(0, min(head, len(data)), generator.integers(1, 5)):
            data[place] = generator.integers(256)
        path.write_bytes(data)
        try:
            values, _ = read_image(path, max_pixels=100_000)
        except ImageError as error:
            lines.append(str(error))
        else:
            assert 0 <= values.min() <= values.max() <= 1
    assert lines
    assert all(line.isprintable() for line in lines)


def test_gray_corners_are_no_missing_data(tmp_path):
    """The gray of missing blocks is also a color; pictures that have it are read."""
    pixels = PIXELS.copy()
    pixels[16:] = 128
    for options in ({}, {"progressive": True}, {"subsampling": 0}, {"quality": 40}):
        path = tmp_path / "a.jpg"
        path.write_bytes(encoded("JPEG", Image.fromarray(pixels), **options))
        assert read_image(path)[0].shape == (1, 3, 37, 31)


WHOLE = {
    "png": {},
    "bits png": {"mode": "1"},
    "palette png": {"mode": "P"},
    "tiff": {},
    "deflated tiff": {"compression": "tiff_deflate"},
    "lzw tiff": {"compression": "tiff_lzw"},
    "fax tiff": {"mode": "1", "compression": "group4"},
    "jpeg tiff": {"compression": "jpeg"},
    "progressive jpeg": {"progressive": True},
    "gray progressive jpeg": {"mode": "L", "progressive": True},
    "ink progressive jpeg": {"mode": "CMYK", "progressive": True},
}


@pytest.mark.parametrize("case", WHOLE)
def test_whole_files_are_not_taken_for_cut_ones(tmp_path, case):
    options = dict(WHOLE[case])
    picture = Image.fromarray(PIXELS).convert(options.pop("mode", "RGB"))
    (tmp_path / "a").write_bytes(encoded(case.split()[-1].upper(), picture, **options))
    assert read_image(tmp_path / "a")[0].shape[2:] == (37, 31)


def test_memory_is_compared_before_decoding(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(png(np.zeros((1000, 1000, 3), np.uint8)))
    with pytest.raises(ImageError) as caught:
        open_image(path, memory=10 * 2**20)
    assert "decoding it needs 12 MiB, and 10 are allowed; set `memory`" in one_line(caught, path)
    assert open_image(path, memory=12 * 2**20).colors.shape == (1, 3, 1000, 1000)


def test_libtiff_prints_nothing(tmp_path, capfd):
    """Its own lines would come between ours."""
    (tmp_path / "a.tif").write_bytes(half(encoded("TIFF", compression="tiff_lzw")))
    data = encoded("TIFF", compression="tiff_deflate")
    (tmp_path / "b.tif").write_bytes(data[:60] + bytes(400) + data[460:])
    for name in ("a.tif", "b.tif"):
        with pytest.raises(ImageError):
            read_image(tmp_path / name)
    assert capfd.readouterr().err == ""


def test_too_little_memory_while_decoding_is_said(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    path.write_bytes(PNG)

    def fail(*args):
        raise MemoryError

    monkeypatch.setattr(decoding, "to_array", fail)
    with pytest.raises(ImageError) as caught:
        read_image(path)
    assert "there is not enough memory to decode it; close other" in one_line(caught, path)


@pytest.mark.parametrize(("sign", "big"), [("<", False), (">", False), ("<", True)])
def test_tiff_of_few_pages_is_read(tmp_path, sign, big):
    path = tmp_path / "a.tif"
    path.write_bytes(tiff_of_pages(1, sign=sign, big=big))
    assert read_image(path)[0].item() == pytest.approx(128 / 255)
    path.write_bytes(tiff_of_pages(3, sign=sign, big=big))
    with pytest.raises(ImageError, match="holds 3 pages or frames"):
        read_image(path)
    assert read_image(path, frame=2)[0].item() == pytest.approx(128 / 255)


def test_a_code_that_skips_many_long_rows_of_a_bmp(tmp_path):
    """Pillow would fill 255 rows of 16 million pixels for it."""
    codes = b"\0\2\xff\xff" * 3
    header = struct.pack("<IiiHHIIiiII", 40, 16_000_000, 1, 1, 8, 1, len(codes), 0, 0, 256, 0)
    path = tmp_path / "a.bmp"
    start = 14 + len(header) + 1024
    path.write_bytes(
        b"BM" + struct.pack("<IHHI", start + len(codes), 0, 0, start) + header + bytes(1024) + codes
    )
    with pytest.raises(ImageError, match=r"decoding it needs 7996 MiB, and 512 are allowed"):
        open_image(path, memory=2**29)
