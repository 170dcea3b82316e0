"""EXIF data of a picture: what is kept of them, and how a TIFF holds them among its own tags."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from PIL.Image import Exif, Image

Tags = dict[int, tuple[str, Any]]
"""Tags of a TIFF: the code of their type and their values, by number."""

# DocumentName, ImageDescription, Make, Model, PageName, Software, DateTime, Artist, HostComputer,
# Copyright. The other tags of a TIFF tell how its pixels are stored.
_TEXTS = (269, 270, 271, 272, 285, 305, 306, 315, 316, 33432)
_DESCRIPTION = 270
_DIRECTORIES = (34665, 34853)  # the camera's settings, and GPS
# Descriptions by which programs store the shape of the old pixels.
_OF_PIXELS = ("ImageJ=", '{"shape"', "<?xml", "<OME")


def read_exif(image: "Image", format_name: str) -> tuple[int, bytes | None]:
    """Return the orientation, 1 to 8, and the EXIF block without it, as far as they can be read."""
    from PIL import ExifTags

    orientation, block = 1, None
    with suppress(Exception):  # a photo with a broken EXIF block is still a photo
        exif = image.getexif()
        orientation = exif.pop(ExifTags.Base.Orientation, 1)
        details = exif.get_ifd(ExifTags.IFD.Exif)
        for stale in (ExifTags.Base.ExifImageWidth, ExifTags.Base.ExifImageHeight):
            details.pop(stale, None)
        if format_name == "TIFF":
            _drop_tags_of_pixels(exif)
        _keep_umlauts(exif)
        block = exif.tobytes() if len(exif) else None
    return (orientation if orientation in range(1, 9) else 1), block


def write_exif(file: BinaryIO, block: bytes | None) -> Tags:
    """Write the directories of an EXIF block into a TIFF, and return the tags that name them.

    Args:
        file: The TIFF, at its end.
        block: The EXIF block of the picture, if it has one.

    Returns:
        Its texts and the places of its directories; nothing where the block cannot be read.
    """
    from PIL import Image, TiffImagePlugin

    tags: Tags = {}
    exif = Image.Exif()
    with suppress(Exception):
        exif.load(block or b"")
        texts = {tag: str(exif[tag]).encode("latin-1") for tag in _TEXTS if tag in exif}
        tags |= {tag: ("A", text + b"\0") for tag, text in texts.items()}
        for tag in _DIRECTORIES:
            if entries := exif.get_ifd(tag):
                directory = TiffImagePlugin.ImageFileDirectory_v2()
                directory.update(entries)
                file.write(b"\0" * (file.tell() % 2))
                place = file.tell()
                file.write(directory.tobytes(place))
                tags[tag] = ("I", [place])
    return tags


def _drop_tags_of_pixels(exif: "Exif") -> None:
    for tag in set(exif) - {*_TEXTS, *_DIRECTORIES}:
        del exif[tag]
    if str(exif.get(_DESCRIPTION, "")).lstrip().startswith(_OF_PIXELS):
        del exif[_DESCRIPTION]


def _keep_umlauts(exif: "Exif") -> None:
    """Give texts as bytes, which Pillow writes as they are; of strings it writes ASCII alone."""
    for tag in _TEXTS:
        text = exif.get(tag)
        if isinstance(text, str) and not text.isascii():
            exif[tag] = text.encode("latin-1")  # Pillow reads bytes as Latin-1, whatever they are
