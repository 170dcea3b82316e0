"""Refuse rasters that make GDAL open files of a stranger's choice, or addresses in the network.

GDAL takes masks and overviews from files beside a raster, in any format that it knows, and
overviews from a file that the raster names. Some formats name further files, and names may be
addresses: ``/vsicurl/http://...``.
"""

import os
from pathlib import Path
from typing import Any

from musigma.images.listing import image_error
from musigma.images.science.recognise import is_tiff
from musigma.types import short_repr

_BESIDE = (".msk", ".ovr")
_ERDAS = b"EHFA_HEADER_TAG"
_AUXILIARY = ".aux"
_OVERVIEWS, _OVERVIEW_FILE = "OVERVIEWS", "OVERVIEW_FILE"


def check_files_beside(path: Path) -> None:
    """Refuse a raster beside which a mask or overviews lie that may name further files.

    Raises:
        ImageError: If such a file is no TIFF, or names another file.
    """
    for other in _beside(path):
        if not other.is_file():  # to open a pipe would wait for a writer
            raise _beside_error(path, other, "is no file")
        with other.open("rb") as file:
            start = file.read(len(_ERDAS))
        if other.suffix.lower() == _AUXILIARY:
            if start == _ERDAS:
                raise _beside_error(path, other, "is a file of Erdas")
        elif not is_tiff(start):
            raise _beside_error(path, other, "is no TIFF")
        else:
            _check_names(path, other)


def check_names_no_file(path: Path, dataset: Any) -> None:
    """Refuse a raster that names another file for its overviews.

    Args:
        path: The file that is restored.
        dataset: It, or a file beside it; open, and not yet asked for masks or overviews.

    Raises:
        ImageError: If it does.
    """
    named = dataset.tags(ns=_OVERVIEWS).get(_OVERVIEW_FILE)
    if named is not None:
        text = f"names another file for its overviews, {short_repr(named)}, which is not read"
        raise image_error(path, f"{text}; save it without overviews")


def _beside(path: Path) -> list[Path]:
    """Return files in the folder of a raster from which GDAL would take masks or overviews."""
    auxiliary = {f"{name}{_AUXILIARY}".lower() for name in (path.stem, path.name)}
    with os.scandir(path.parent) as entries:
        names = [entry.name for entry in entries if entry.name.startswith(path.stem)]
    return [
        path.parent / name
        for name in names
        if name.lower() in auxiliary
        or (name.startswith(path.name) and name.lower().endswith(_BESIDE))
    ]


def _check_names(path: Path, other: Path) -> None:
    import rasterio

    try:
        with rasterio.open(other.absolute(), driver="GTiff") as dataset:
            check_names_no_file(path, dataset)
    except rasterio.errors.RasterioError as error:
        raise _beside_error(path, other, "cannot be read") from error


def _beside_error(path: Path, other: Path, reason: str) -> Exception:
    text = f"{short_repr(other.name)} beside it {reason}, and GDAL would read it"
    return image_error(path, f"{text}; move it away")
