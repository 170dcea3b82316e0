"""OME-TIFF through tifffile: stacks and channels; errors are a second image series, ``sigma``.

The OME-XML of the source is kept. Sizes in pixels and physical sizes of a pixel are changed, and
the series of errors is added, which is float32 whatever the type of the picture is.
"""

import copy
import logging
import re
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
from musigma.images.science.image import Check, Result, ScienceImage, Values
from musigma.images.science.ome_checks import check_page, check_stack, chunk_bytes
from musigma.images.science.samples import RawPlanes, as_values, declared_range_of, encode
from musigma.types import ImageError, first_line

_BIG = 2**32 - 2**25  # a classic TIFF has 32-bit offsets
_NO_PIXELS = ("BinData", "TiffData", "MetadataOnly")
_MAX_XML = 2**26
_NO_OTHER_FORMATS: Any = dict.fromkeys(("is_shaped", "is_lsm", "is_mmstack"), False)
"""Formats that tifffile would look for before OME; some of them consist of several files."""


@dataclass(frozen=True)
class _Info:
    """What the result takes over from the source."""

    xml: ElementTree.Element
    dtype: np.dtype[Any]
    bits: int | None
    num_pages: int
    num_samples: int


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
        raise image_error(path, f"cannot be read as OME-TIFF ({first_line(error)})") from error
    try:
        return _opened(path, file, check)
    except Exception as error:
        file.close()
        if isinstance(error, ImageError | MemoryError):
            raise
        # tifffile raises errors of many types for a damaged file.
        raise image_error(path, f"cannot be read as OME-TIFF ({first_line(error)})") from error


@lru_cache(maxsize=1)
def _silence() -> None:
    """Keep tifffile from writing its own lines to stderr; what matters is raised as an error."""
    logging.getLogger("tifffile").addHandler(logging.NullHandler())
    logging.getLogger("tifffile").propagate = False


def _opened(path: Path, file: Any, check: Check) -> ScienceImage:
    root = _parse(path, file.ome_metadata)
    first = file.pages[0]
    check_stack(
        path, root, num_pages=len(file.pages), num_samples=max(1, int(first.samplesperpixel))
    )
    series = file.series[0]
    dtype = np.dtype(series.dtype)
    if dtype.kind not in "iuf" or (dtype.kind != "f" and dtype.itemsize > 4):
        raise image_error(path, f"its samples are {dtype}; expected integers or floating point")
    pages = list(series.pages)
    if any(page is None for page in pages):
        raise image_error(path, "pictures of the stack are missing; write the whole stack")
    num_samples = dict(zip(series.axes, series.shape, strict=True)).get("S", 1)
    size = (int(series.keyframe.imagelength), int(series.keyframe.imagewidth))
    # Two pictures are kept, and one is being unpacked.
    check(size[0] * size[1], 3 * series.keyframe.nbytes + 2 * chunk_bytes(series.keyframe))
    lock = Lock()

    @lru_cache(maxsize=2)
    def decoded(index: int) -> NDArray[Any]:
        try:
            check_page(pages[index])
            samples = pages[index].asarray()
        except Exception as error:
            text = f"picture {index} cannot be read ({first_line(error)})"
            raise image_error(path, text) from error
        planes = _planes_of(samples, num_samples)
        if planes.shape != (num_samples, *size):
            raise image_error(path, f"picture {index} has another size than the first one")
        return planes

    def read_part(plane: int, rows: slice, columns: slice) -> Values:
        index, sample = divmod(plane, num_samples)
        with lock:
            part = decoded(index)[sample, rows, columns]
        return as_values(part)

    pixels = _pixels(root)
    bits = int(pixels.get("SignificantBits", 0))
    is_usable = 1 <= bits <= 8 * dtype.itemsize
    info = _Info(root, dtype, bits if is_usable else None, len(pages), num_samples)
    num_planes = len(pages) * num_samples
    triples = tuple(tuple(range(n, n + 3)) for n in range(0, num_planes, 3))
    return ScienceImage(
        path=path,
        format="OME-TIFF",
        shape=(num_planes, *size),
        dtypes=(dtype,) * num_planes,
        names=_plane_names(root, series, num_samples),
        roles=("values",) * num_planes,
        joint=triples if num_samples == 3 else (),
        declared_range=declared_range_of(dtype, info.bits),
        read=read_part,
        close=file.close,
        metadata=info,
        left_out=tuple(f"the image series {other.name!r}" for other in file.series[1:]),
        channel_sets=_channel_sets(series.axes, series.shape),
    )


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
    has_colours = info.num_samples > 1
    shape = (info.num_pages, *([info.num_samples] if has_colours else []), *size)
    options: dict[str, Any] = {"photometric": "rgb" if info.num_samples == 3 else "minisblack"}
    options |= {"planarconfig": "separate"} if has_colours else {}
    num_bytes = image.shape[0] * size[0] * size[1]
    num_bytes *= info.dtype.itemsize + 4 * result.has_errors
    errors = None
    with atomic_write(path) as file:
        with tifffile.TiffWriter(file, bigtiff=num_bytes > _BIG, byteorder="<") as tiff:
            description = _described(info, image, result)
            values = _reserve(tiff, shape, info.dtype, description=description, **options)
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
        if errors is not None and self.errors is not None:
            self.errors.write(plane, top, errors)


def _planes_of(samples: NDArray[Any], num_samples: int) -> NDArray[Any]:
    """Return a picture as planes, ``(samples, height, width)``, wherever its samples are."""
    if samples.ndim < 3:
        return samples[None]
    is_last = samples.shape[-1] == num_samples and samples.shape[0] != num_samples
    return np.moveaxis(samples, -1, 0) if is_last else samples


def _parse(path: Path, text: str | None) -> ElementTree.Element:
    if text is None or len(text) > _MAX_XML or "<!ENTITY" in text:
        raise image_error(path, "its description is no usable OME-XML")
    try:
        root = ElementTree.fromstring(text.encode())  # noqa: S314 - without entities it is safe
        _pixels(root)
    except (ElementTree.ParseError, LookupError) as error:
        raise image_error(path, f"its OME-XML cannot be read ({error})") from error
    return root


def _namespace(root: ElementTree.Element) -> str:
    name = re.match(r"\{.*\}", root.tag)
    return name[0] if name else ""


def _pixels(root: ElementTree.Element) -> ElementTree.Element:
    name = _namespace(root)
    pixels = root.find(f"{name}Image/{name}Pixels")
    if pixels is None:
        raise LookupError("there is no image in it")
    return pixels


def _channels(pixels: ElementTree.Element) -> list[ElementTree.Element]:
    return [child for child in pixels if child.tag.endswith("}Channel") or child.tag == "Channel"]


def _plane_names(root: ElementTree.Element, series: Any, num_samples: int) -> tuple[str, ...]:
    """Return the channel of each plane, with its place in the stack."""
    channels = [channel.get("Name") for channel in _channels(_pixels(root))]
    stack = [
        (axis, n) for axis, n in zip(series.axes, series.shape, strict=True) if axis not in "YXS"
    ]
    names = []
    for index in np.ndindex(*(length for _, length in stack)):
        position = {axis: n for (axis, _), n in zip(stack, index, strict=True)}
        channel = position.pop("C", 0)
        name = channels[channel] if channel < len(channels) else None
        words = [name or f"channel {channel + 1}", *(f"{axis}{n}" for axis, n in position.items())]
        names += [" ".join(words)] * num_samples
    return tuple(names)


def _described(info: _Info, image: ScienceImage, result: Result) -> bytes:
    """Return the OME-XML of the result."""
    root = copy.deepcopy(info.xml)
    name = _namespace(root)
    ElementTree.register_namespace("", name.strip("{}"))
    first, *others = root.findall(f"{name}Image")
    for other in others:
        root.remove(other)
    for key in [key for key in root.attrib if key == "UUID"]:
        del root.attrib[key]  # it names another file
    pixels = _pixels(root)
    _resize(pixels, image, result.scale)
    _place(pixels, name, 0, info.num_pages)
    if result.has_errors:
        series = _error_series(first, name, result)
        _place(series.find(f"{name}Pixels"), name, info.num_pages, info.num_pages)
        root.insert(list(root).index(first) + 1, series)
    _annotate(root, name, result.notes)
    data: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return data


def _resize(pixels: ElementTree.Element, image: ScienceImage, scale: int) -> None:
    for axis, length in (("X", image.shape[2]), ("Y", image.shape[1])):
        pixels.set(f"Size{axis}", str(length * scale))
        physical = pixels.get(f"PhysicalSize{axis}")
        if physical is not None:
            pixels.set(f"PhysicalSize{axis}", repr(float(physical) / scale))
    pixels.attrib.pop("BigEndian", None)


def _place(pixels: ElementTree.Element | None, name: str, first: int, count: int) -> None:
    """Say in which pages of the file the planes of a series are."""
    assert pixels is not None
    for child in list(pixels):
        if child.tag.removeprefix(name) in _NO_PIXELS:
            pixels.remove(child)
    data = ElementTree.Element(f"{name}TiffData", {"IFD": str(first), "PlaneCount": str(count)})
    pixels.insert(len(_channels(pixels)), data)


def _error_series(first: ElementTree.Element, name: str, result: Result) -> ElementTree.Element:
    series = ElementTree.Element(f"{name}Image", {"ID": "Image:sigma", "Name": "sigma"})
    description = ElementTree.SubElement(series, f"{name}Description")
    description.text = f"{result.notes['quantity']}: {result.notes['meaning']}"
    source = first.find(f"{name}Pixels")
    assert source is not None
    pixels = copy.deepcopy(source)
    series.append(pixels)
    pixels.attrib.pop("SignificantBits", None)
    pixels.attrib |= {"ID": "Pixels:sigma", "Type": "float"}
    channels = _channels(pixels)
    for index, channel in enumerate(channels):
        label = channel.get("Name")
        channel.attrib |= {"ID": f"Channel:sigma:{index}", "Name": f"sigma {label or ''}".strip()}
    return series


def _annotate(root: ElementTree.Element, name: str, notes: dict[str, str]) -> None:
    """Add the notes about the result as a map of names and texts."""
    annotations = root.find(f"{name}StructuredAnnotations")
    if annotations is None:
        annotations = ElementTree.SubElement(root, f"{name}StructuredAnnotations")
    entry = ElementTree.SubElement(
        annotations, f"{name}MapAnnotation", {"ID": "Annotation:musigma", "Namespace": "musigma"}
    )
    value = ElementTree.SubElement(entry, f"{name}Value")
    for key, text in notes.items():
        ElementTree.SubElement(value, f"{name}M", {"K": key}).text = text
