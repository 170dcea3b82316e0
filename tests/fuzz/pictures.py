"""Hostile pictures: damaged, cut, spliced, with impossible sizes, or with data that end early."""

import importlib
import io
import struct
import zlib
from collections.abc import Callable
from importlib.util import find_spec
from random import Random

from PIL import Image

FORMATS: tuple[tuple[str, str, dict[str, object]], ...] = (
    ("png", "RGB", {}),
    ("png", "RGBA", {}),
    ("png", "L", {}),
    ("png", "P", {}),
    ("png", "1", {}),
    ("png", "I;16", {}),
    ("jpeg", "RGB", {"quality": 90}),
    ("jpeg", "RGB", {"progressive": True}),
    ("jpeg", "L", {}),
    ("jpeg", "CMYK", {}),
    ("webp", "RGB", {}),
    ("webp", "RGBA", {"lossless": True}),
    ("tiff", "RGB", {}),
    ("tiff", "RGB", {"compression": "tiff_lzw"}),
    ("tiff", "L", {"compression": "tiff_adobe_deflate"}),
    ("tiff", "F", {}),
    ("tiff", "I;16", {}),
    ("bmp", "RGB", {}),
    ("gif", "P", {}),
    ("ppm", "RGB", {}),
    ("gif", "P", {"save_all": True}),
    ("webp", "RGB", {"save_all": True}),
    ("png", "RGB", {"save_all": True}),
    ("tiff", "RGB", {"save_all": True}),
    ("tiff", "RGB", {"compression": "packbits"}),
    ("tiff", "RGB", {"compression": "jpeg"}),
    ("tiff", "1", {"compression": "group4"}),
    ("bmp", "P", {}),
    ("bmp", "1", {}),
    ("avif", "RGB", {}),
    ("avif", "RGBA", {"save_all": True}),
    ("heif", "RGB", {}),
)
"""Format, mode and options; with ``save_all`` there are three frames."""

_NEEDED = {"avif": "PIL._avif", "heif": "pillow_heif"}
AVAILABLE = [each for each in FORMATS if each[0] not in _NEEDED or find_spec(_NEEDED[each[0]])]
"""Formats that can be written here."""

SUFFIXES = {"jpeg": "jpg", "tiff": "tif", "heif": "heic"}
INTEGERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
Mutation = Callable[[bytes, Random], bytes]


def make_picture(random: Random) -> tuple[str, bytes]:
    """Return the ending of a name, and the bytes of a picture that may be damaged."""
    kind = random.random()
    if kind < 0.06:
        return _declared_giant(random)
    suffix, data = whole_picture(random)
    if kind < 0.10:
        return suffix, data
    if kind < 0.13:
        suffix = random.choice(("png", "jpg", "tif", "webp", "bmp", "gif"))
    for _ in range(random.choice((1, 1, 1, 2, 4, 16))):
        data = random.choice(MUTATIONS)(data, random)
    return suffix, data


def whole_picture(random: Random) -> tuple[str, bytes]:
    """Return the ending of a name and a small whole picture."""
    name, mode, settings = random.choice(AVAILABLE)
    if name == "heif":
        importlib.import_module("pillow_heif").register_heif_opener()
    width, height = random.randint(1, 40), random.randint(1, 40)
    image = Image.frombytes("RGB", (width, height), random.randbytes(3 * width * height))
    image = image.convert("L").convert("I;16") if mode == "I;16" else image.convert(mode)
    frames = [image.rotate(180), image] if settings.get("save_all") else []
    options = settings | ({"append_images": frames} if frames else {})
    file = io.BytesIO()
    image.save(file, name, **options)
    return SUFFIXES.get(name, name), file.getvalue()


def short_picture(random: Random) -> tuple[str, bytes]:
    """Return a picture whose data end early, although its file ends as it should."""
    if random.random() < 0.5:
        return "png", _short_png(random)
    file = io.BytesIO()
    Image.frombytes("RGB", (64, 64), random.randbytes(3 * 64 * 64)).save(file, "jpeg")
    data = file.getvalue()
    return "jpg", data[: random.randint(len(data) // 4, len(data) // 2)] + b"\xff\xd9"


def _short_png(random: Random) -> bytes:
    width, height = random.randint(2, 50), random.randint(20, 50)
    rows = random.randbytes((1 + 3 * width) * height)
    rows = b"".join(
        b"\0" + rows[start + 1 : start + 1 + 3 * width]
        for start in range(0, len(rows), 1 + 3 * width)
    )
    kept = rows[: (1 + 3 * width) * random.randint(1, height // 2)]
    return png_of(width, height, zlib.compress(kept))


def png_of(width: int, height: int, data: bytes) -> bytes:
    """Return a PNG of 8-bit colors with the given size and compressed rows."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", data), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, content) for name, content in parts)


def _chunk(name: bytes, content: bytes) -> bytes:
    check = zlib.crc32(name + content)
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", check)


def _declared_giant(random: Random) -> tuple[str, bytes]:
    """Return a small file that says it holds hundreds of millions of pixels."""
    width, height = random.choice(
        ((16383, 16383), (20, 8_454_148), (22000, 22000), (2**31 - 1, 1), (65535, 65535))
    )
    kind = random.choice(("png", "bmp", "ppm", "gif", "webp"))
    if kind == "png":
        return kind, png_of(width, height, zlib.compress(bytes(1000)))
    if kind == "bmp":
        header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
        return kind, b"BM" + struct.pack("<IHHI", 54, 0, 0, 54) + header + bytes(300)
    if kind == "ppm":
        return kind, f"P6 {width} {height} 255\n".encode() + bytes(300)
    if kind == "gif":
        return kind, b"GIF89a" + struct.pack("<HH", 65535, 65535) + b"\0\0\0," + bytes(9) + b";"
    bits = (16383 - 1) | ((16383 - 1) << 14)
    content = b"VP8L" + struct.pack("<I", 14) + b"\x2f" + struct.pack("<I", bits) + bytes(9)
    return kind, b"RIFF" + struct.pack("<I", 4 + len(content)) + b"WEBP" + content


def _flip_bits(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 2, 8, 64))):
        if changed:
            changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _set_integer(data: bytes, random: Random) -> bytes:
    size = random.choice((1, 2, 4))
    value = random.choice(INTEGERS) & (256**size - 1)
    at = random.randrange(min(len(data), random.choice((32, 128, 10**6))) or 1)
    return data[:at] + value.to_bytes(size, random.choice(("big", "little"))) + data[at + size :]


def _cut(data: bytes, random: Random) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _remove(data: bytes, random: Random) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + data[at + random.choice((1, 4, 64)) :]


def _insert(data: bytes, random: Random) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + random.randbytes(random.choice((1, 4, 64, 1000))) + data[at:]


def _repeat(data: bytes, random: Random) -> bytes:
    first, last = sorted(random.randrange(len(data) + 1) for _ in range(2))
    return data[:last] + data[first:last] * random.choice((1, 2, 20)) + data[last:]


def _splice(data: bytes, random: Random) -> bytes:
    _, other = whole_picture(random)
    return data[: random.randrange(len(data) + 1)] + other[random.randrange(len(other)) :]


MUTATIONS: tuple[Mutation, ...] = (
    _flip_bits,
    _set_integer,
    _cut,
    _remove,
    _insert,
    _repeat,
    _splice,
)


def damaged(data: bytes, random: Random) -> bytes:
    """Return bytes after one mutation."""
    return random.choice(MUTATIONS)(data, random)
