"""Hostile scientific files: whole ones with damaged bytes, or with other numbers in their texts."""

import re
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from fuzz.pictures import damaged

LIBRARIES = ("astropy", "OpenEXR", "tifffile", "rasterio")
NUMBERS = (b"0", b"-1", b"3", b"99", b"65537", b"99999999", b"9999999999", b"nan", b"1e400", b"'x'")
FITS_COMPRESSIONS = ("GZIP_1", "GZIP_2", "RICE_1", "HCOMPRESS_1", "PLIO_1")
EXR_COMPRESSIONS = ("NO", "RLE", "ZIPS", "ZIP", "PIZ", "PXR24", "B44", "B44A", "DWAA", "DWAB")
TIFF_COMPRESSIONS = ("none", "deflate", "lzw", "packbits", "zstd", "lerc")
TIFF_LAYOUTS: tuple[dict[str, Any], ...] = (
    {},
    {"interleave": "pixel"},
    {"tiled": True, "blockxsize": 16, "blockysize": 16},
)
TILES = ((9, 7), (1, 20), (24, 20))
MANY = 300
"""Planes of a file that has many."""

GROUPS = ("OVERVIEWS", "SUBDATASETS", "GEOLOCATION", "IMAGE_STRUCTURE", "RPC", "xml:XMP")
NAMES = ("OVERVIEW_FILE", "SUBDATASET_1_NAME", "X_DATASET", "NBITS", "LINE_OFF", "a")
"""Tags by which GDAL finds other files, or settings of this one."""

_UUID = re.compile(rb"urn:uuid:[0-9a-f-]{36}")
_NUMBER = re.compile(rb"(?<=[\"= ])\d+(?:\.\d+)?(?=[\" /])")


def is_available() -> bool:
    """Return whether all packages that read these formats are installed."""
    return all(find_spec(name) for name in LIBRARIES)


def make_science(random: Random) -> tuple[str, bytes]:
    """Return the ending of a name and a scientific file that is somehow wrong."""
    suffix, write = random.choice(WRITERS)
    values = np.frombuffer(random.randbytes(2 * 20 * 24), np.uint16).reshape(24, 20)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a.{suffix}"
        write(path, values, random)
        data = _UUID.sub(b"urn:uuid:" + b"0" * 36, path.read_bytes())  # it is drawn at random
    for _ in range(random.choice((0, 1, 1, 2, 3))):
        data = random.choice((_other_number, damaged))(data, random)
    return suffix, data


def _other_number(data: bytes, random: Random) -> bytes:
    """Change a number in the text of a header; it keeps its length where that matters."""
    found = list(_NUMBER.finditer(data[:20_000]))
    if not found:
        return data
    place, number = random.choice(found), random.choice(NUMBERS)
    first, last = place.span()
    if random.random() < 0.5:
        return data[:first] + number + data[last:]
    first = max(0, last - len(number))
    return data[:first] + number + data[last:]


def _write_fits(path: Path, values: np.ndarray, random: Random) -> None:
    from astropy.io import fits

    kind = random.choice(("plain", "cube", "compressed"))
    if kind == "compressed":
        _write_compressed_fits(path, values, random)
        return
    cube = np.stack([values] * random.choice((2, MANY))) if kind == "cube" else values
    fits.PrimaryHDU(cube.astype("f4")).writeto(path)


def _write_compressed_fits(path: Path, values: np.ndarray, random: Random) -> None:
    from astropy.io import fits

    compression, tile = random.choice(FITS_COMPRESSIONS), random.choice(TILES)
    if compression == "PLIO_1":  # for masks; astropy's encoder crashes at noise
        values = (values % 16).astype("i2")
    else:
        values = (values >> 1).astype(random.choice(("i2", "i4", "f4")))
    tile = TILES[0] if compression == "HCOMPRESS_1" else tile  # no side of which may be 1
    picture = fits.CompImageHDU(values, compression_type=compression, tile_shape=tile)
    fits.HDUList([fits.PrimaryHDU(), picture]).writeto(path)


def _write_exr(path: Path, values: np.ndarray, random: Random) -> None:
    import OpenEXR

    names = random.choice(("Y", "RGB", "ZXY", [f"c{n}" for n in range(MANY)]))
    channels = {name: (values / 65535).astype("f4") for name in names}
    compression = getattr(OpenEXR, f"{random.choice(EXR_COMPRESSIONS)}_COMPRESSION")
    OpenEXR.File({"compression": compression}, channels).write(str(path))


def _write_ome(path: Path, values: np.ndarray, random: Random) -> None:
    import tifffile

    stack = np.stack([values] * random.choice((1, 2, 4, MANY)))
    compression = random.choice((None, "zlib"))
    metadata = {"axes": "ZYX", "PhysicalSizeX": 0.2, "SignificantBits": 12}
    tifffile.imwrite(path, stack, metadata=metadata, compression=compression, ome=True)


def _write_geotiff(path: Path, values: np.ndarray, random: Random) -> None:
    import rasterio

    count = random.choice((1, 3, 6, MANY))
    profile = {"width": 20, "height": 24, "count": count, "dtype": "uint16", "crs": "EPSG:32632"}
    place = rasterio.Affine(10, 0, 5e5, 0, -10, 54e5)
    options = {"compress": random.choice(TIFF_COMPRESSIONS), **random.choice(TIFF_LAYOUTS)}
    with rasterio.open(path, "w", driver="GTiff", transform=place, **profile, **options) as file:
        file.write(np.stack([values] * count))
        if random.random() < 0.2:
            file.update_tags(ns=random.choice(GROUPS), **{random.choice(NAMES): "/etc/passwd"})


WRITERS: tuple[tuple[str, Callable[[Path, np.ndarray, Random], None]], ...] = (
    ("fits", _write_fits),
    ("exr", _write_exr),
    ("tif", _write_ome),
    ("tif", _write_geotiff),
)
