"""GeoTIFF through rasterio, in windows: neither the file nor the result need fit the memory.

The result has twice the bands where there are errors: first those of the source, then a band of
errors for each of them. All bands of a GeoTIFF have one type, so errors are rounded where it is an
integer type.
"""

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from musigma.images.listing import atomic_write, image_error
from musigma.images.science.image import Check, Result, Role, ScienceImage, Values
from musigma.images.science.samples import as_values, declared_range_of, encode
from musigma.types import ImageError, first_line

BLOCK = 256
"""Side of the blocks that are written."""

CACHE_MEGABYTES = 64
"""Blocks that GDAL keeps in memory."""

STEPS_OF_8_BIT = 4
"""An error in an 8-bit band is stored in steps of 1/4, up to 63.75; its scale says so."""

_MASK = 0  # stands for the mask among the numbers of bands
_LOSSLESS = ("deflate", "lzw", "zstd", "packbits", "lzma")
_COLOURS = ("red", "green", "blue")


@dataclass(frozen=True)
class _Info:
    """What the result takes over from the source."""

    profile: dict[str, Any]
    nodata: float | None
    bits: int | None
    tags: dict[str, str]
    band_tags: list[dict[str, str]]
    descriptions: tuple[str | None, ...]
    units: tuple[str | None, ...]
    scales: tuple[float, ...]
    offsets: tuple[float, ...]
    colours: tuple[Any, ...]
    gcps: tuple[list[Any], Any]
    rpcs: Any
    has_mask: bool


def read(path: Path, check: Check) -> ScienceImage:
    """Open a GeoTIFF, or a TIFF with any number of bands.

    Args:
        path: The file.
        check: Refuses what is too large.

    Raises:
        ImageError: If it is no such file, or holds classes or complex values.
    """
    import rasterio

    with _quiet(), rasterio.Env(GDAL_CACHEMAX=CACHE_MEGABYTES):
        try:
            dataset = rasterio.open(path, driver="GTiff")
        except rasterio.errors.RasterioError as error:
            raise _unreadable(path, error) from error
        try:
            return _opened(path, dataset, check)
        except Exception as error:
            dataset.close()
            if isinstance(error, ImageError):
                raise
            # The errors of GDAL have types that rasterio keeps to itself.
            raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> ImageError:
    return image_error(path, f"cannot be read as a GeoTIFF ({first_line(error)})")


def _opened(path: Path, dataset: Any, check: Check) -> ScienceImage:
    from rasterio.windows import Window

    check(dataset.height * dataset.width, _block_bytes(dataset))
    info = _info_of(dataset)
    dtype = np.dtype(dataset.dtypes[0])
    _check(path, dataset, dtype)

    def read_part(plane: int, rows: slice, columns: slice) -> Values:
        window = Window.from_slices(rows, columns)
        try:
            samples = dataset.read(plane + 1, window=window)
        except Exception as error:
            text = f"its pixels cannot be read ({first_line(error)})"
            raise image_error(path, text) from error
        values = as_values(samples)
        if info.nodata is not None:
            values[samples == info.nodata] = np.nan
        if info.has_mask:
            values[dataset.read_masks(plane + 1, window=window) == 0] = np.nan
        return values

    names = [name or f"band {index}" for index, name in enumerate(dataset.descriptions, 1)]
    colours = [colour.name for colour in dataset.colorinterp]
    return ScienceImage(
        path=path,
        format="GeoTIFF",
        shape=(dataset.count, dataset.height, dataset.width),
        dtypes=(dtype,) * dataset.count,
        names=tuple(names),
        roles=tuple(_role(colour) for colour in colours),
        joint=_joint(colours),
        declared_range=declared_range_of(dtype, info.bits) or _statistics_range(info.band_tags),
        read=read_part,
        close=dataset.close,
        metadata=info,
        left_out=("the overviews",) if dataset.overviews(1) else (),
    )


@contextmanager
def writer(path: Path, image: ScienceImage, result: Result) -> Iterator["GeoTiffWriter"]:
    """Open a GeoTIFF for the result; it appears when the block ends without an error."""
    import rasterio

    info: _Info = image.metadata
    height, width = result.size_of(image)
    num_bands = image.shape[0] + len(image.value_planes) * result.has_errors
    profile = info.profile | {"width": width, "height": height, "count": num_bands}
    transform = info.profile["transform"]
    if transform.is_identity:  # what rasterio gives for a file that has none
        del profile["transform"]
    else:
        profile["transform"] = transform @ rasterio.Affine.scale(1 / result.scale)
    with (
        _quiet(),
        atomic_write(path) as file,
        # Side files would be named after the temporary file.
        rasterio.Env(
            GDAL_CACHEMAX=CACHE_MEGABYTES, GDAL_PAM_ENABLED=False, GDAL_TIFF_INTERNAL_MASK=True
        ),
        rasterio.open(file.name, "w", **profile) as dataset,
    ):
        _describe(dataset, image, result)
        rows = GeoTiffWriter(dataset, image)
        yield rows
        rows.finish()


class GeoTiffWriter:
    """Collects rows to whole blocks, so that a compressed block is written once."""

    def __init__(self, dataset: Any, image: ScienceImage) -> None:
        self.dataset, self.dtype, self.info = dataset, image.dtypes[0], image.metadata
        self.error_bands = _error_bands(image)
        self.masked_plane = image.value_planes[0] if self.info.has_mask else None
        self.blocks: dict[int, tuple[int, list[NDArray[Any]]]] = {}  # top and rows of each band

    def write(self, plane: int, top: int, values: Values, errors: Values | None) -> None:
        """Write rows of a band and of its errors."""
        self._add(plane + 1, top, self._encode(values))
        if plane == self.masked_plane:
            self._add(_MASK, top, np.isfinite(values))
        if errors is not None:
            steps = error_steps(self.dtype)
            self._add(self.error_bands[plane], top, self._encode(errors * steps))

    def finish(self) -> None:
        """Write the rows that fill no block."""
        for band in list(self.blocks):
            self._flush(band)

    def _encode(self, values: Values) -> NDArray[Any]:
        return encode(values, self.dtype, missing=self.info.nodata, bits=self.info.bits)

    def _add(self, band: int, top: int, rows: NDArray[Any]) -> None:
        while len(rows):
            start, waiting = self.blocks.setdefault(band, (top, []))
            room = BLOCK - (top - start)
            waiting.append(rows[:room])
            top, rows = top + len(waiting[-1]), rows[room:]
            if top - start == BLOCK:
                self._flush(band)

    def _flush(self, band: int) -> None:
        from rasterio.windows import Window

        top, rows = self.blocks.pop(band)
        samples = np.concatenate(rows)
        window = Window(0, top, samples.shape[1], len(samples))
        if band == _MASK:
            self.dataset.write_mask(samples, window=window)
        else:
            self.dataset.write(samples, band, window=window)


def error_steps(dtype: np.dtype[Any]) -> int:
    """Return in how many steps a unit of an error is stored.

    Example:
        >>> error_steps(np.dtype("uint8")), error_steps(np.dtype("uint16"))
        (4, 1)
    """
    return STEPS_OF_8_BIT if dtype.itemsize == 1 else 1


@contextmanager
def _quiet() -> Iterator[None]:
    """Let a TIFF without georeference pass: it has none, and its result has none."""
    from rasterio.errors import NotGeoreferencedWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        yield


def _info_of(dataset: Any) -> _Info:
    from rasterio.enums import MaskFlags

    bits = dataset.tags(1, ns="IMAGE_STRUCTURE").get("NBITS")
    compression = str(dataset.profile.get("compress", "")).lower()
    profile = {
        "driver": "GTiff",
        "dtype": dataset.dtypes[0],
        "crs": dataset.crs,
        "transform": dataset.transform,
        "nodata": dataset.nodata,
        "tiled": True,
        "blockxsize": BLOCK,
        "blockysize": BLOCK,
        "interleave": "band",  # so that bands can be written one after the other
        "bigtiff": "IF_SAFER",
        "photometric": "RGB" if _joint([c.name for c in dataset.colorinterp]) else "MINISBLACK",
    }
    if compression:
        profile["compress"] = compression if compression in _LOSSLESS else "deflate"
    if bits is not None:
        profile["nbits"] = int(bits)
    bands = range(1, dataset.count + 1)
    return _Info(
        profile=profile,
        nodata=dataset.nodata,
        bits=None if bits is None else int(bits),
        tags=dataset.tags(),
        band_tags=[dataset.tags(band) for band in bands],
        descriptions=dataset.descriptions,
        units=dataset.units,
        scales=dataset.scales,
        offsets=dataset.offsets,
        colours=dataset.colorinterp,
        gcps=dataset.gcps,
        rpcs=dataset.rpcs,
        has_mask=[MaskFlags.per_dataset] in dataset.mask_flag_enums,
    )


def _block_bytes(dataset: Any) -> int:
    """Return what GDAL needs for the largest block, which it reads as a whole."""
    rows, columns = dataset.block_shapes[0]
    is_joint = str(dataset.profile.get("interleave", "")).lower() == "pixel"
    num_bands = dataset.count if is_joint else 1
    return int(2 * rows * columns * num_bands * np.dtype(dataset.dtypes[0]).itemsize)


def _check(path: Path, dataset: Any, dtype: np.dtype[Any]) -> None:
    if dtype.kind not in "iuf" or (dtype.kind != "f" and dtype.itemsize > 4):
        raise image_error(path, f"its samples are {dtype}; expected integers or floating point")
    if "palette" in [colour.name for colour in dataset.colorinterp]:
        text = "its values are classes with a colour table, which a network cannot restore"
        raise image_error(path, f"{text}; give a raster of measured values")


def _role(colour: str) -> Role:
    return "opacity" if colour == "alpha" else "values"


def _joint(colours: list[str]) -> tuple[tuple[int, ...], ...]:
    if any(colours.count(colour) != 1 for colour in _COLOURS):
        return ()
    return (tuple(colours.index(colour) for colour in _COLOURS),)


def _statistics_range(band_tags: list[dict[str, str]]) -> tuple[float, float] | None:
    """Return the range of all bands, where every band has statistics."""
    try:
        low = min(float(tags["STATISTICS_MINIMUM"]) for tags in band_tags)
        high = max(float(tags["STATISTICS_MAXIMUM"]) for tags in band_tags)
    except (KeyError, ValueError):
        return None
    return (low, high) if math.isfinite(low) and low < high < math.inf else None


def _error_bands(image: ScienceImage) -> dict[int, int]:
    """Return the number of the error band of each plane."""
    return {plane: image.shape[0] + n for n, plane in enumerate(image.value_planes, 1)}


def _describe(dataset: Any, image: ScienceImage, result: Result) -> None:
    """Write everything but the pixels; GDAL wants that first."""
    info: _Info = image.metadata
    errors = list(_error_bands(image)) if result.has_errors else []
    single = len(image.value_planes) == 1
    step = 1 / error_steps(image.dtypes[0])
    names = ["sigma" if single else f"sigma {image.names[plane]}" for plane in errors]
    from rasterio.enums import ColorInterp

    dataset.colorinterp = [*info.colours, *[ColorInterp.undefined] * len(errors)]
    dataset.descriptions = [*info.descriptions, *names]
    dataset.units = [unit or "" for unit in (*info.units, *(info.units[p] for p in errors))]
    dataset.scales = [*info.scales, *(info.scales[plane] * step for plane in errors)]
    dataset.offsets = [*info.offsets, *[0.0] * len(errors)]
    dataset.update_tags(**info.tags, **{f"MUSIGMA_{k.upper()}": v for k, v in result.notes.items()})
    for band, tags in enumerate(info.band_tags, 1):
        kept = {key: text for key, text in tags.items() if not key.startswith("STATISTICS_")}
        dataset.update_tags(band, **kept)
    _place(dataset, info, result.scale)


def _place(dataset: Any, info: _Info, scale: int) -> None:
    """Move control points and rational polynomials to the pixels of the result."""
    points, crs = info.gcps
    if points:
        moved = [_moved(point, scale) for point in points]
        dataset.gcps = (moved, crs)
    if info.rpcs is not None:
        rpcs = info.rpcs
        rpcs.line_off, rpcs.samp_off = (
            (offset + 0.5) * scale - 0.5 for offset in (rpcs.line_off, rpcs.samp_off)
        )
        rpcs.line_scale, rpcs.samp_scale = rpcs.line_scale * scale, rpcs.samp_scale * scale
        dataset.rpcs = rpcs


def _moved(point: Any, scale: int) -> Any:
    from rasterio.control import GroundControlPoint

    return GroundControlPoint(
        row=point.row * scale,
        col=point.col * scale,
        x=point.x,
        y=point.y,
        z=point.z,
        id=point.id,
        info=point.info,
    )
