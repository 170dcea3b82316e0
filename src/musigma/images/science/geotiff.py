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
from musigma.images.science.band_runs import BandReader, BandWriter
from musigma.images.science.gdal_files import check_files_beside, check_names_no_file
from musigma.images.science.image import (
    Check,
    Result,
    Role,
    ScienceImage,
    Values,
    closed_if_unreadable,
    unreadable,
)
from musigma.images.science.samples import (
    as_values,
    declared_range_of,
    encode,
    unusable_samples,
)
from musigma.types import first_line

BLOCK = 256
"""Side of the blocks that are written, where the picture is not smaller."""

MAX_BANDS = 4096
"""Bands of a file, at most: the time of rasterio grows with the square of their number."""

_BLOCK_STEP = 16  # sides of blocks in a TIFF are multiples of it

CACHE_MEGABYTES = 64
"""Blocks that GDAL keeps in memory."""

STEPS_OF_8_BIT = 4
"""An error in an 8-bit band is stored in steps of 1/4, up to 63.75; its scale says so."""

_MASK = 0  # stands for the mask among the numbers of bands
_LOSSLESS = ("deflate", "lzw", "zstd", "packbits", "lzma")
_COLOURS = ("red", "green", "blue")
_NOTES = "MUSIGMA_"  # begins the names of the tags that tell about a result
_RESOLUTIONS = ("TIFFTAG_XRESOLUTION", "TIFFTAG_YRESOLUTION")  # pixels for each inch or centimetre
_OF_GDAL = ("IMAGE_STRUCTURE", "DERIVED_SUBDATASETS", "SUBDATASETS", "RPC", "GEOLOCATION")
"""Groups of tags that tell about the file itself, or that GDAL writes from other settings."""


@dataclass(frozen=True)
class _Info:
    """What the result takes over from the source.

    Attributes:
        bands: Numbers of the bands that are restored, from 1.
        profile: Settings of the file that is written.
        nodata: The sample of a missing value.
        bits: Bits of a sample, where these are fewer than its type has.
        tags: Tags of the file, by the name of their group; the main group has none.
        band_tags: The same for each band.
        descriptions: Names of the bands.
        units: Of the values of each band.
        scales: Factor from samples to values of each band.
        offsets: What is added to these.
        colours: What each band is shown as.
        gcps: Ground control points and their CRS.
        rpcs: Rational polynomial coefficients.
        has_mask: Whether the file has a mask.
    """

    bands: tuple[int, ...]
    profile: dict[str, Any]
    nodata: float | None
    bits: int | None
    tags: dict[str, dict[str, str]]
    band_tags: list[dict[str, dict[str, str]]]
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
        check_files_beside(path)
        try:
            # Absolute: rasterio takes a name such as "https:a.tif" for an address.
            dataset = rasterio.open(path.absolute(), driver="GTiff")
        except rasterio.errors.RasterioError as error:
            raise unreadable(path, "a GeoTIFF", error) from error
        with closed_if_unreadable(path, "a GeoTIFF", dataset):
            return _opened(path, dataset, check)


def _opened(path: Path, dataset: Any, check: Check) -> ScienceImage:
    check_names_no_file(path, dataset)
    check(dataset.height * dataset.width, _block_bytes(dataset))
    dtype = np.dtype(dataset.dtypes[0])
    _check(path, dataset, dtype)
    info = _info_of(dataset)
    reader = BandReader(dataset, info.bands)

    def read_part(plane: int, rows: slice, columns: slice) -> Values:
        try:
            samples = reader.read(plane, rows, columns)
        except Exception as error:
            text = f"its pixels cannot be read ({first_line(error)})"
            raise image_error(path, text) from error
        values = as_values(samples)
        if info.nodata is not None:
            values[samples == info.nodata] = np.nan
        if info.has_mask:
            from rasterio.windows import Window

            window = Window.from_slices(rows, columns)
            mask = dataset.read_masks(info.bands[plane], window=window)
            values[mask == 0] = np.nan
        return values

    names = [name or f"band {n}" for n, name in zip(info.bands, info.descriptions, strict=True)]
    colours = [colour.name for colour in info.colours]
    return ScienceImage(
        path=path,
        format="GeoTIFF",
        shape=(len(names), dataset.height, dataset.width),
        dtypes=(dtype,) * len(names),
        names=tuple(names),
        roles=tuple(_role(colour) for colour in colours),
        joint=_joint(colours),
        declared_range=declared_range_of(dtype, info.bits) or _statistics_range(info),
        read=read_part,
        close=dataset.close,
        metadata=info,
        left_out=_left_out(dataset, info),
    )


@contextmanager
def writer(path: Path, image: ScienceImage, result: Result) -> Iterator["GeoTiffWriter"]:
    """Open a GeoTIFF for the result; it appears when the block ends without an error."""
    import rasterio

    info: _Info = image.metadata
    height, width = result.size_of(image)
    num_bands = image.shape[0] + len(image.value_planes) * result.has_errors
    profile = info.profile | {"width": width, "height": height, "count": num_bands}
    profile |= {"blockxsize": _block_side(width), "blockysize": _block_side(height)}
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
        rasterio.open(Path(file.name).absolute(), "w", **profile) as dataset,
    ):
        _describe(dataset, image, result)
        rows = GeoTiffWriter(dataset, image)
        yield rows
        rows.finish()


class GeoTiffWriter:
    """Collects rows to whole blocks, so that a compressed block is written once."""

    def __init__(self, dataset: Any, image: ScienceImage) -> None:
        self.dataset, self.dtype, self.info = dataset, image.dtypes[0], image.metadata
        self.bands = BandWriter(dataset)
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
        self.bands.finish()

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
        top, rows = self.blocks.pop(band)
        samples = np.concatenate(rows)
        if band == _MASK:
            from rasterio.windows import Window

            window = Window(0, top, samples.shape[1], len(samples))
            self.dataset.write_mask(samples, window=window)
        else:
            self.bands.write(band, top, samples)


def _block_side(length: int) -> int:
    """Return the side of blocks; blocks beyond the picture would make files of many bands large."""
    return min(BLOCK, math.ceil(length / _BLOCK_STEP) * _BLOCK_STEP)


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


def _bands_of(dataset: Any) -> tuple[int, ...]:
    """Return the numbers of all bands, without the errors of an earlier restoration."""
    numbered = list(enumerate(dataset.descriptions, 1))
    if f"{_NOTES}QUANTITY" not in dataset.tags():
        return tuple(band for band, _ in numbered)
    return tuple(band for band, name in numbered if (name or "").split(" ")[0] != "sigma")


def _left_out(dataset: Any, info: _Info) -> tuple[str, ...]:
    parts = {
        "the overviews": dataset.overviews(1),
        "its further pages": len(dataset.subdatasets) > 1,
        "the errors that it had": len(info.bands) < dataset.count,
    }
    return tuple(name for name, is_there in parts.items() if is_there)


def _info_of(dataset: Any) -> _Info:
    from rasterio.enums import MaskFlags

    bands = _bands_of(dataset)
    # Each of these properties of a dataset looks at all bands.
    colours, descriptions, units, scales, offsets = (
        tuple(of_all[band - 1] for band in bands)
        for of_all in (
            dataset.colorinterp,
            dataset.descriptions,
            dataset.units,
            dataset.scales,
            dataset.offsets,
        )
    )
    is_photo = tuple(colour.name for colour in colours[:3]) == _COLOURS
    bits = dataset.tags(1, ns="IMAGE_STRUCTURE").get("NBITS")
    compression = str(dataset.profile.get("compress", "")).lower()
    profile = {
        "driver": "GTiff",
        "dtype": dataset.dtypes[0],
        "crs": dataset.crs,
        "transform": dataset.transform,
        "nodata": dataset.nodata,
        "tiled": True,
        "interleave": "band",  # so that bands can be written one after the other
        "bigtiff": "IF_SAFER",
        "photometric": "RGB" if is_photo else "MINISBLACK",  # of the first three bands
    }
    if compression:
        profile["compress"] = compression if compression in _LOSSLESS else "deflate"
    if bits is not None:
        profile["nbits"] = int(bits)
    return _Info(
        bands=bands,
        profile=profile,
        nodata=dataset.nodata,
        bits=None if bits is None else int(bits),
        tags=_tags_of(dataset, 0),
        band_tags=[_tags_of(dataset, band) for band in bands],
        descriptions=descriptions,
        units=units,
        scales=scales,
        offsets=offsets,
        colours=colours,
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


def _tags_of(dataset: Any, band: int) -> dict[str, dict[str, str]]:
    """Return the tags of a band, or of the file (band 0), by the name of their group."""
    groups = [g for g in dataset.tag_namespaces(band) if g not in _OF_GDAL and ":" not in g]
    tags = {group: dict(dataset.tags(band, ns=group)) for group in groups}
    return {"": dict(dataset.tags(band)), **tags}


def _check(path: Path, dataset: Any, dtype: np.dtype[Any]) -> None:
    if dataset.count > MAX_BANDS:
        text = f"has {dataset.count:,} bands, and at most {MAX_BANDS:,} are restored"
        raise image_error(path, f"{text}; save them in several files")
    if dtype.kind not in "iuf" or (dtype.kind != "f" and dtype.itemsize > 4):
        raise image_error(path, unusable_samples(dtype))
    if "palette" in [colour.name for colour in dataset.colorinterp]:
        text = "its values are classes with a color table, which a network cannot restore"
        raise image_error(path, f"{text}; give a raster of measured values")
    num_pages = len(dataset.subdatasets)
    if num_pages > 1 and not _is_placed(dataset):
        text = f"holds {num_pages} pictures, and one is expected"
        raise image_error(path, f"{text}; save the stack as OME-TIFF, or each picture by itself")


def _is_placed(dataset: Any) -> bool:
    """Return whether a file says where on the ground it lies."""
    is_transformed = not dataset.transform.is_identity
    return bool(is_transformed or dataset.crs or dataset.gcps[0] or dataset.rpcs)


def _role(colour: str) -> Role:
    return "opacity" if colour == "alpha" else "values"


def _joint(colours: list[str]) -> tuple[tuple[int, ...], ...]:
    if any(colours.count(colour) != 1 for colour in _COLOURS):
        return ()
    return (tuple(colours.index(colour) for colour in _COLOURS),)


def _statistics_range(info: _Info) -> tuple[float, float] | None:
    """Return the range of all bands, where every band has statistics."""
    try:
        low = min(float(tags[""]["STATISTICS_MINIMUM"]) for tags in info.band_tags)
        high = max(float(tags[""]["STATISTICS_MAXIMUM"]) for tags in info.band_tags)
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
    for group, tags in info.tags.items():
        dataset.update_tags(ns=group or None, **_scaled_tags(tags, result.scale))
    dataset.update_tags(**{f"{_NOTES}{key.upper()}": text for key, text in result.notes.items()})
    for band, groups in enumerate(info.band_tags, 1):
        for group, tags in groups.items():
            kept = {key: text for key, text in tags.items() if not key.startswith("STATISTICS_")}
            dataset.update_tags(band, ns=group or None, **kept)
    _place(dataset, info, result.scale)


def _scaled_tags(tags: dict[str, str], scale: int) -> dict[str, str]:
    """Return the tags of the result: smaller pixels, and no notes about an earlier one."""
    kept = {key: text for key, text in tags.items() if not key.startswith(_NOTES)}
    finer = {key: f"{float(kept[key]) * scale:g}" for key in _RESOLUTIONS if key in kept}
    return kept | finer


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
