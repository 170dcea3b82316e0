"""Picture files made byte by byte from the format's own rules, for what Pillow cannot write."""

import struct
import zlib

import numpy as np

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def chunk(name: bytes, data: bytes, checksum: int | None = None) -> bytes:
    """One PNG chunk; a checksum of our own makes a broken one."""
    crc = zlib.crc32(name + data) if checksum is None else checksum
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", crc)


def png_header(
    width: int, height: int, bits: int, channels: int, interlaced: bool = False
) -> bytes:
    color_type = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    fields = struct.pack(">IIBBBBB", width, height, bits, color_type, 0, 0, interlaced)
    return SIGNATURE + chunk(b"IHDR", fields)


def png(samples: np.ndarray, interlaced: bool = False, extra: bytes = b"") -> bytes:
    """An unfiltered PNG of ``(H, W, C)`` uint8 or uint16 samples."""
    height, width, channels = samples.shape
    whole = [(0, 0, 1, 1)]  # top, left, step down, step right
    adam7 = [
        (0, 0, 8, 8),
        (0, 4, 8, 8),
        (4, 0, 8, 4),
        (0, 2, 4, 4),
        (2, 0, 4, 2),
        (0, 1, 2, 2),
        (1, 0, 2, 1),
    ]
    passes = [samples[y::down, x::right] for y, x, down, right in (adam7 if interlaced else whole)]
    big_endian = samples.dtype.newbyteorder(">")
    rows = b"".join(b"\0" + row.astype(big_endian).tobytes() for part in passes for row in part)
    header = png_header(width, height, samples.dtype.itemsize * 8, channels, interlaced)
    return header + extra + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def black_ink_profile() -> bytes:
    """An ICC profile of CMYK that looks at K alone: L* = 100 (1 - K), a* = b* = 0."""
    identity = bytes(range(256))
    matrix = struct.pack(">9i", *(np.eye(3, dtype=int).ravel() * 65536))
    table = b"mft1" + bytes(4) + bytes([4, 3, 2, 0]) + matrix + identity * 4
    table += bytes([255, 128, 128, 0, 128, 128]) * 2**3 + identity * 3
    directory = struct.pack(">I4sII", 1, b"A2B0", 144, len(table))
    header = struct.pack(
        ">I4sI4s4s4s", 144 + len(table), b"", 0x02400000, b"prtr", b"CMYK", b"Lab "
    )
    header += bytes(12) + b"acsp" + bytes(28) + struct.pack(">3I", 0xF6D6, 0x10000, 0xD32D)
    return header.ljust(128, b"\0") + directory + table


def one_line(caught, path):
    """Return the text of an error, which is one line and begins with the path."""
    line = str(caught.value)
    assert "\n" not in line
    assert line.isprintable()
    assert line.startswith(f"{path}: ")
    return line
