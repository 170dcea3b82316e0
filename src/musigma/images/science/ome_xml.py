"""The OME-XML of a microscope file: what it says of its planes, and the same for the result."""

import copy
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from musigma.images.listing import image_error
from musigma.images.science.image import Result, ScienceImage
from musigma.types import short_repr

_NO_PIXELS = ("BinData", "TiffData", "MetadataOnly")
_MAX_XML = 2**26
_NOTES = "Annotation:musigma"
_LENGTHS = ("X", "Y", "Width", "Height", "RadiusX", "RadiusY", "X1", "Y1", "X2", "Y2", "A02", "A12")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


def parse(path: Path, text: str | None) -> ElementTree.Element:
    """Return the OME-XML of a file, which has an image in it.

    Raises:
        ImageError: If it cannot be read, or the description of the image is in another file.
    """
    if text is None or len(text) > _MAX_XML or "<!ENTITY" in text:
        raise image_error(path, "its description is no usable OME-XML")
    try:
        root = ElementTree.fromstring(text.encode())  # noqa: S314 - without entities it is safe
    except ElementTree.ParseError as error:
        raise image_error(path, f"its OME-XML cannot be read ({error})") from error
    name = _namespace(root)
    elsewhere = root.find(f"{name}BinaryOnly")
    if elsewhere is not None:
        other = short_repr(elsewhere.get("MetadataFile"))
        text = f"is described in another file, {other}, which is not read"
        raise image_error(path, f"{text}; save the stack as one OME-TIFF file")
    if root.find(f"{name}Image/{name}Pixels") is None:
        raise image_error(path, "its OME-XML cannot be read (there is no image in it)")
    return root


def significant_bits(root: ElementTree.Element, dtype: np.dtype[Any]) -> int | None:
    """Return how many bits of each sample are used, where the file gives a usable number."""
    bits = int(_pixels(root).get("SignificantBits", 0))
    return bits if 1 <= bits <= 8 * dtype.itemsize else None


def plane_names(
    root: ElementTree.Element, axes: str, shape: Sequence[int], num_samples: int
) -> tuple[str, ...]:
    """Return the channel of each plane, with its place in the stack."""
    channels = [channel.get("Name") for channel in _channels(_pixels(root))]
    stack = [(axis, n) for axis, n in zip(axes, shape, strict=True) if axis not in "YXS"]
    names = []
    for index in np.ndindex(*(length for _, length in stack)):
        position = {axis: n for (axis, _), n in zip(stack, index, strict=True)}
        channel = position.pop("C", 0)
        name = channels[channel] if channel < len(channels) else None
        words = [name or f"channel {channel + 1}", *(f"{axis}{n}" for axis, n in position.items())]
        names += [" ".join(words)] * num_samples
    return tuple(names)


def described(
    source: ElementTree.Element, image: ScienceImage, result: Result, num_pages: int
) -> bytes:
    """Return the OME-XML of the result.

    Args:
        source: The OME-XML of the file.
        image: The file.
        result: What is written.
        num_pages: Pages of the picture; those of the errors follow, where there are any.
    """
    root = copy.deepcopy(source)
    name = _namespace(root)
    ElementTree.register_namespace("", name.strip("{}"))
    first, *others = root.findall(f"{name}Image")
    for other in others:
        root.remove(other)
    root.attrib.pop("UUID", None)  # it names another file
    pixels = _pixels(root)
    _resize(pixels, image, result.scale)
    _place(pixels, name, 0, num_pages)
    if result.has_errors:
        series = _error_series(first, name, result)
        _place(series.find(f"{name}Pixels"), name, num_pages, num_pages)
        root.insert(list(root).index(first) + 1, series)
    for region in root.findall(f"{name}ROI"):
        _scale_region(region, result.scale)
    _annotate(root, name, result.notes)
    data: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return data


def _namespace(root: ElementTree.Element) -> str:
    name = re.match(r"\{.*\}", root.tag)
    return name[0] if name else ""


def _pixels(root: ElementTree.Element) -> ElementTree.Element:
    name = _namespace(root)
    pixels = root.find(f"{name}Image/{name}Pixels")
    assert pixels is not None  # or `parse` refuses it
    return pixels


def _channels(pixels: ElementTree.Element) -> list[ElementTree.Element]:
    return [child for child in pixels if child.tag.endswith("}Channel") or child.tag == "Channel"]


def _resize(pixels: ElementTree.Element, image: ScienceImage, scale: int) -> None:
    for axis, length in (("X", image.shape[2]), ("Y", image.shape[1])):
        pixels.set(f"Size{axis}", str(length * scale))
        physical = pixels.get(f"PhysicalSize{axis}", "")
        if _NUMBER.fullmatch(physical):
            pixels.set(f"PhysicalSize{axis}", repr(float(physical) / scale))
    for key in ("BigEndian", "Interleaved"):  # of the pages of the source
        pixels.attrib.pop(key, None)


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
    for index, channel in enumerate(_channels(pixels)):
        label = channel.get("Name")
        channel.attrib |= {"ID": f"Channel:sigma:{index}", "Name": f"sigma {label or ''}".strip()}
    return series


def _scale_region(region: ElementTree.Element, scale: int) -> None:
    """Enlarge the shapes of a region of interest, which are drawn in pixels."""

    def scaled(number: re.Match[str]) -> str:
        return f"{float(number[0]) * scale:.12g}"

    for shape in region.iter():
        for key in (*_LENGTHS, "Points"):
            if key in shape.attrib:
                shape.attrib[key] = _NUMBER.sub(scaled, shape.attrib[key])


def _annotate(root: ElementTree.Element, name: str, notes: dict[str, str]) -> None:
    """Add the notes about the result as a map of names and texts, in place of older notes."""
    annotations = root.find(f"{name}StructuredAnnotations")
    if annotations is None:
        annotations = ElementTree.Element(f"{name}StructuredAnnotations")
        last = max(n for n, child in enumerate(root) if child.tag == f"{name}Image")
        root.insert(last + 1, annotations)  # regions come after it
    for older in [entry for entry in annotations if entry.get("ID") == _NOTES]:
        annotations.remove(older)
    entry = ElementTree.SubElement(
        annotations, f"{name}MapAnnotation", {"ID": _NOTES, "Namespace": "musigma"}
    )
    value = ElementTree.SubElement(entry, f"{name}Value")
    for key, text in notes.items():
        ElementTree.SubElement(value, f"{name}M", {"K": key}).text = text
