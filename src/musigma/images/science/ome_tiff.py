"""OME-TIFF through tifffile: stacks and channels; errors are a second image series, ``sigma``.

The OME-XML of the source is kept. Sizes in pixels and physical sizes of a pixel are changed, and
the series of errors is added, which is float32 whatever the type of the picture is.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from musigma.images.file_checks import check_tiff_parts
from musigma.images.listing import atomic_write, image_error
from musigma.images.science import ome_xml
from musigma.images.science.image import (
    Check,
    Result,
    Role,
    ScienceImage,
    Values,
    closed_if_unreadable,
    unreadable,
)
from musigma.images.science.ome_checks import check_page, check_stack, chunk_bytes
from musigma.images.science.samples import (
    RawPlanes,
    as_values,
    declared_range_of,
    encode,
    unusable_samples,
)
from musigma.types import first_line

_BIG = 2**32 - 2**25  # a classic TIFF has 32-bit offsets
_INTERLEAVED = 1  # the value of the tag PlanarConfiguration
_WHITE_IS_ZERO, _RGB, _YCBCR = 0, 2, 6  # of the tag PhotometricInterpretation
_ALPHA = (1, 2)  # of the tag ExtraSamples
_NO_OTHER_FORMATS: Any = dict.fromkeys(("is_shaped", "is_lsm", "is_mmstack"), False)
"""Formats that tifffile would look for before OME; some of them consist of several files."""


@dataclass
class _Info:
    """What the result takes over from the source.

    Attributes:
        xml: Its OME-XML.
        dtype: Type of its samples.
        bits: Significant bits of a sample, to which results are limited; `None` as soon as a sample
            is seen that has more.
        num_pages: How many pictures it has.
        is_inverted: Whether small values are white.
        has_colours: Whether the first three samples of a picture are red, green and blue.
        extra: Codes of the samples of a picture beside its colours.
        num_samples: Samples of each pixel of a picture.
    """

    xml: ElementTree.Element
    dtype: np.dtype[Any]
    bits: int | None
    num_pages: int
    is_inverted: bool
    has_colours: bool
    extra: tuple[int, ...]
    num_samples: int

    @property
    def roles(self) -> tuple[Role, ...]:
        """What the samples of a picture are."""
        values: list[Role] = ["values"] * (self.num_samples - len(self.extra))
        others: list[Role] = ["opacity" if code in _ALPHA else "values" for code in self.extra]
        return (*values, *others)


def read(path: Path, check: Check) -> ScienceImage:
    """Open the first image series of an OME-TIFF; every picture of the stack is a plane.

    Args:
        path: The file.
        check: Refuses what is too large.

    Raises:
        ImageError: If it is no such file, its samples are no real numbers, or pictures of the stack
            are in other files.
    """
    import tifffile

    _silence()
    try:
        with path.open("rb") as stream:
            check_tiff_parts(stream)
        file = tifffile.TiffFile(path, **_NO_OTHER_FORMATS)
    except (OSError, ValueError) as error:
        raise unreadable(path, "OME-TIFF", error) from error
    with closed_if_unreadable(path, "OME-TIFF", file):
        return _opened(path, file, check)


@lru_cache(maxsize=1)
def _silence() -> None:
    """Keep tifffile from writing its own lines to stderr; what matters is raised as an error."""
    logging.getLogger("tifffile").addHandler(logging.NullHandler())
    logging.getLogger("tifffile").propagate = False


def _opened(path: Path, file: Any, check: Check) -> ScienceImage:
    root = ome_xml.parse(path, file.ome_metadata)
    first = file.pages[0]
    check_stack(
        path, root, num_pages=len(file.pages), num_samples=max(1, int(first.samplesperpixel))
    )
    series = file.series[0]
    pages = list(series.pages)
    if any(page is None for page in pages):
        raise image_error(path, "pictures of the stack are missing; write the whole stack")
    info = _info_of(path, root, series, len(pages))
    size = (int(series.keyframe.imagelength), int(series.keyframe.imagewidth))
    # Two pictures are kept, and one is being unpacked.
    check(size[0] * size[1], 3 * series.keyframe.nbytes + 2 * chunk_bytes(series.keyframe))
    lock = Lock()

    @lru_cache(maxsize=2)
    def decoded(index: int) -> NDArray[Any]:
        try:
            check_page(pages[index])
            planes = _planes_of(pages[index], info.num_samples)
        except Exception as error:
            text = f"picture {index} cannot be read ({first_line(error)})"
            raise image_error(path, text) from error
        if planes.shape != (info.num_samples, *size):
            raise image_error(path, f"picture {index} has another size than the first one")
        if info.bits is not None and planes.max() >= 2**info.bits:
            info.bits = None
        return planes

    def read_part(plane: int, rows: slice, columns: slice) -> Values:
        index, sample = divmod(plane, info.num_samples)
        with lock:
            part = decoded(index)[sample, rows, columns]
        return as_values(part)

    num_planes = len(pages) * info.num_samples
    starts = range(0, num_planes, info.num_samples) if info.has_colours else ()
    return ScienceImage(
        path=path,
        format="OME-TIFF",
        shape=(num_planes, *size),
        dtypes=(info.dtype,) * num_planes,
        names=ome_xml.plane_names(root, series.axes, series.shape, info.num_samples),
        roles=info.roles * len(pages),
        joint=tuple((n, n + 1, n + 2) for n in starts),
        declared_range=declared_range_of(info.dtype, info.bits),
        read=read_part,
        close=file.close,
        metadata=info,
        left_out=_left_out(file),
        channel_sets=_channel_sets(series.axes, series.shape),
    )


def _info_of(path: Path, root: ElementTree.Element, series: Any, num_pages: int) -> _Info:
    dtype = np.dtype(series.dtype)
    if dtype.kind not in "iuf" or (dtype.kind != "f" and dtype.itemsize > 4):
        raise image_error(path, unusable_samples(dtype))
    keyframe = series.keyframe
    num_samples = dict(zip(series.axes, series.shape, strict=True)).get("S", 1)
    extra = tuple(int(code) for code in keyframe.extrasamples) if num_samples > 1 else ()
    has_colours = num_samples >= 3 and keyframe.photometric in (_RGB, _YCBCR)
    return _Info(
        xml=root,
        dtype=dtype,
        bits=ome_xml.significant_bits(root, dtype),
        num_pages=num_pages,
        is_inverted=keyframe.photometric == _WHITE_IS_ZERO,
        has_colours=has_colours,
        extra=extra,
        num_samples=num_samples,
    )


def _left_out(file: Any) -> tuple[str, ...]:
    first, *others = file.series
    pyramid = ("the smaller copies of its pyramid",) if len(first.levels) > 1 else ()
    return (*pyramid, *(f"the image series {other.name!r}" for other in others))


def _channel_sets(axes: str, shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the planes of all channels at each place and time of a stack.

    Planes are numbered by the pictures of the stack in their order, and by the samples of each.

    Example:
        >>> _channel_sets("ZCYX", (2, 3, 5, 4)), _channel_sets("CZYX", (2, 3, 5, 4))
        (((0, 1, 2), (3, 4, 5)), ((0, 3), (1, 4), (2, 5)))
    """
    sizes = dict(zip(axes, shape, strict=True))
    leading = [axis for axis in axes if axis not in "SYX"]
    numbers = np.arange(int(np.prod([sizes[axis] for axis in leading])) * sizes.get("S", 1))
    numbers = numbers.reshape([*(sizes[axis] for axis in leading), sizes.get("S", 1)])
    if "C" in leading:
        numbers = np.moveaxis(numbers, leading.index("C"), -2)
    num_channels = sizes.get("C", 1) * sizes.get("S", 1)
    return tuple(tuple(row) for row in numbers.reshape(-1, num_channels).tolist())


@contextmanager
def writer(path: Path, image: ScienceImage, result: Result) -> Iterator["OmeTiffWriter"]:
    """Open an OME-TIFF for the result; it appears when the block ends without an error."""
    import tifffile

    info: _Info = image.metadata
    size = result.size_of(image)
    is_planar = info.num_samples > 1
    shape = (info.num_pages, *([info.num_samples] if is_planar else []), *size)
    options: dict[str, Any] = {"photometric": "rgb" if info.has_colours else "minisblack"}
    if is_planar:
        options |= {"planarconfig": "separate", "extrasamples": info.extra or None}
    num_bytes = image.shape[0] * size[0] * size[1]
    num_bytes *= info.dtype.itemsize + 4 * result.has_errors
    errors = None
    with atomic_write(path) as file:
        with tifffile.TiffWriter(file, bigtiff=num_bytes > _BIG, byteorder="<") as tiff:
            description = ome_xml.described(info.xml, image, result, info.num_pages)
            shown = options | ({"photometric": "miniswhite"} if info.is_inverted else {})
            values = _reserve(tiff, shape, info.dtype, description=description, **shown)
            if result.has_errors:
                errors = _reserve(tiff, shape, np.dtype("<f4"), **options)
        yield OmeTiffWriter(
            info,
            RawPlanes(file, values, info.dtype.newbyteorder("<"), size),
            None if errors is None else RawPlanes(file, errors, np.dtype("<f4"), size),
        )


def _reserve(tiff: Any, shape: tuple[int, ...], dtype: np.dtype[Any], **options: Any) -> int:
    """Write pages without their pixels; return where the pixels begin."""
    offset, _ = tiff.write(
        None, shape=shape, dtype=dtype, metadata=None, returnoffset=True, **options
    )
    return int(offset)


class OmeTiffWriter:
    """Writes rows of the picture and of the series of errors."""

    def __init__(self, info: _Info, values: RawPlanes, errors: RawPlanes | None) -> None:
        self.info, self.values, self.errors = info, values, errors

    def write(self, plane: int, top: int, values: Values, errors: Values | None) -> None:
        """Write rows of a plane and of its errors."""
        samples = encode(values, self.info.dtype.newbyteorder("="), bits=self.info.bits)
        self.values.write(plane, top, samples)
        if self.errors is not None:
            none = np.full_like(values, np.nan)  # of a plane that is not restored
            self.errors.write(plane, top, none if errors is None else errors)


def _planes_of(page: Any, num_samples: int) -> NDArray[Any]:
    """Return a picture as planes, ``(samples, height, width)``, wherever its samples are."""
    try:
        samples: NDArray[Any] = page.asarray()
    except ValueError as error:
        if "imagecodecs" not in str(error):
            raise
        return _planes_by_gdal(page, error)
    if num_samples == 1:
        return samples.reshape(1, *samples.shape[-2:])
    return np.moveaxis(samples, -1, 0) if page.keyframe.planarconfig == _INTERLEAVED else samples


def _planes_by_gdal(page: Any, reason: Exception) -> NDArray[Any]:
    """Read a page that is compressed in a way that tifffile does not know by itself, as LZW."""
    try:
        import rasterio
    except ImportError:
        raise reason from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        with rasterio.open(f"GTIFF_DIR:off:{page.offset}:{page.parent.filehandle.path}") as dataset:
            samples: NDArray[Any] = dataset.read()
    return samples
