"""Picture files by name: which files to read, and how to write one completely or not at all."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO, NamedTuple

from musigma.atomic import atomic_writer, written_together
from musigma.types import ImageError, nearest

FORMAT_OF_SUFFIX = {
    ".png": "PNG",
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".webp": "WEBP",
    ".tif": "TIFF",
    ".tiff": "TIFF",
    ".bmp": "BMP",
}
COMPRESSED_FITS = ".fz"
"""Suffix that the program fpack adds to the name of a FITS file."""

SCIENCE_SUFFIXES = {
    ".fits": "FITS",
    ".fit": "FITS",
    ".fts": "FITS",
    COMPRESSED_FITS: "FITS",
    ".exr": "EXR",
}
"""Suffixes of scientific files, with their formats. GeoTIFF and OME-TIFF have those of TIFF."""

READ_ONLY = (".avif", ".gif", ".heic", ".heif", ".hif")
"""Suffixes of further pictures that can be read; their results are written as PNG."""

OTHER_PICTURES = (".dng", ".jp2", ".jxl", ".psd", ".svg")
"""Suffixes of pictures that cannot be read here; the error says so."""


class ImageSource(NamedTuple):
    """A picture to read, and the name of its result inside the output folder."""

    path: Path
    name: Path


def printable(text: object) -> str:
    r"""Return text on one line, with control characters and broken bytes escaped.

    A file name may hold any of them, and a terminal would obey them.

    Example:
        >>> printable("\033[2J\n.png")
        '\\x1b[2J\\n.png'
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text))


def image_error(path: Path, text: str) -> ImageError:
    r"""Return an error of one line that names the file.

    Example:
        >>> image_error(Path("two\nlines.png"), "is empty")
        ImageError('two\\nlines.png: is empty')
    """
    return ImageError(printable(f"{path}: {text}"))


def result_name(name: Path) -> Path:
    """Return the name of the result of a picture: the same, or PNG where it cannot be written.

    A FITS file that is compressed has a result that is not.

    Example:
        >>> [result_name(Path(name)).name for name in ("scan.tif", "cat.gif", "m31.fits.fz")]
        ['scan.tif', 'cat.png', 'm31.fits']
    """
    if name.suffix.lower() == COMPRESSED_FITS:
        inner = name.with_suffix("")
        return inner if inner.suffix.lower() in SCIENCE_SUFFIXES else name.with_suffix(".fits")
    return name.with_suffix(".png") if name.suffix.lower() in READ_ONLY else name


def is_picture(path: Path) -> bool:
    """Return whether a file can be read, by its suffix."""
    return path.suffix.lower() in (*FORMAT_OF_SUFFIX, *SCIENCE_SUFFIXES, *READ_ONLY)


def format_of(path: Path) -> str:
    """Return the picture format that a file name asks for.

    Example:
        >>> format_of(Path("scan.TIF"))
        'TIFF'
    """
    suffix = path.suffix.lower()
    if suffix in READ_ONLY:
        name = suffix[1:].upper()
        raise image_error(path, f"{name} pictures can be read, but not written; write PNG")
    if suffix == ".gz":
        raise image_error(path, "is compressed by gzip; unpack it")
    if suffix in OTHER_PICTURES:
        raise image_error(path, f"{suffix[1:].upper()} pictures cannot be read; convert it to PNG")
    if suffix in SCIENCE_SUFFIXES:
        return SCIENCE_SUFFIXES[suffix]
    if suffix not in FORMAT_OF_SUFFIX:
        hint = nearest(suffix, tuple(FORMAT_OF_SUFFIX))
        raise image_error(path, f"no picture format has the suffix {suffix!r}; {hint}")
    return FORMAT_OF_SUFFIX[suffix]


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Open a picture file for writing; it appears under its name only when it is complete.

    Raises:
        ImageError: If the file cannot be written; one line with the system's reason.
    """
    if path.is_dir():
        raise image_error(path, "is a folder; give the name of a file to write")
    with _write_errors(path), atomic_writer(path) as file:
        yield file


@contextmanager
def atomic_group(path: Path) -> Iterator[None]:
    """Let the files that `atomic_write` makes in this block appear together at its end, or none.

    Args:
        path: The file that errors name.

    Raises:
        ImageError: If a file cannot be written; one line with the system's reason.
    """
    with _write_errors(path), written_together():
        yield


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        text = f"could not be written ({error.strerror or error}); no partial file is left"
        raise image_error(path, text) from error


def list_images(
    inputs: Iterable[Path | str], *, recursive: bool = False, results: Path | None = None
) -> list[ImageSource]:
    """Return the pictures behind files, folders and patterns, each once, in a stable order.

    Inputs keep their order; a folder or a pattern gives its pictures sorted by path. The result of
    a picture is named by its path below the folder, or below the fixed part of the pattern. Folders
    give only files with the suffix of a picture, and no hidden files. Two pictures may get the same
    name; `musigma.restoration.output_files.find_clashes` finds them.

    Args:
        inputs: Names of files, names of folders, or patterns with ``*``, ``?``, ``[...]``, ``**``.
        recursive: Also search the folders below each folder.
        results: The folder for results. It is not searched where it lies below an input.

    Raises:
        ImageError: If an input does not exist, is no picture by its suffix, or holds no picture.
    """
    sources: dict[Path, ImageSource] = {}
    for item in inputs:
        for source in _expand(item, recursive, results):
            sources.setdefault(source.path.absolute(), source)
    return list(sources.values())


def other_files(
    inputs: Iterable[Path | str], *, recursive: bool = False, results: Path | None = None
) -> list[Path]:
    """Return the files in folders that `list_images` leaves out, since they are no pictures.

    Hidden files are not among them. Arguments are those of `list_images`.
    """
    others: dict[Path, Path] = {}
    for folder in (Path(item) for item in inputs if item != ""):
        with suppress(OSError):  # list_images tells of it
            if folder.is_dir():
                paths = folder.rglob("*") if recursive else folder.iterdir()
                for source in _files(folder, paths, results):
                    if not is_picture(source.path):
                        others.setdefault(source.path.absolute(), source.path)
    return list(others.values())


def missing_reason(path: Path) -> str:
    """Say why a path leads to no file: nothing is there, or a link to nothing."""
    if path.is_symlink():
        return f"is a link to {path.readlink()}, which does not exist"
    return "does not exist"


def _expand(name: Path | str, recursive: bool, results: Path | None) -> list[ImageSource]:
    if name == "":
        raise ImageError("the name of an input is empty; give '.' for the current folder")
    item = Path(name)
    try:
        if item.is_dir():
            return _in_folder(item, recursive, results)
        if item.exists():
            name = result_name(Path(item.name))
            format_of(item.with_name(name.name))
            return [ImageSource(item, name)]
        if any(_is_pattern(part) for part in item.parts):
            return _matching(item, results)
    except OSError as error:
        raise image_error(item, f"could not be looked up ({error.strerror})") from error
    raise image_error(item, missing_reason(item))


def _in_folder(folder: Path, recursive: bool, results: Path | None) -> list[ImageSource]:
    sources = _pictures(folder, folder.rglob("*") if recursive else folder.iterdir(), results)
    if not sources:
        below = "" if recursive else "; folders below it were not searched (--recursive does)"
        suffixes = " ".join((*FORMAT_OF_SUFFIX, *SCIENCE_SUFFIXES, *READ_ONLY))
        raise image_error(folder, f"holds no picture ({suffixes}){below}")
    return sources


def _matching(pattern: Path, results: Path | None) -> list[ImageSource]:
    fixed = Path(*takewhile(lambda part: not _is_pattern(part), pattern.parts))
    sources = _pictures(fixed, fixed.glob(str(pattern.relative_to(fixed))), results)
    if not sources:
        raise image_error(pattern, "matches no picture")
    return sources


def _is_pattern(part: str) -> bool:
    return any(character in part for character in "*?[")


def _pictures(folder: Path, paths: Iterable[Path], results: Path | None) -> list[ImageSource]:
    return [
        ImageSource(source.path, result_name(source.name))
        for source in _files(folder, paths, results)
        if is_picture(source.path)
    ]


def _files(folder: Path, paths: Iterable[Path], results: Path | None) -> list[ImageSource]:
    sources = [ImageSource(path, path.relative_to(folder)) for path in sorted(paths)]
    below = _below(folder, results)
    return [
        source
        for source in sources
        if not any(part.startswith(".") for part in source.name.parts)
        and not (below and source.name.is_relative_to(below))
        and not source.path.is_dir()
    ]


def _below(folder: Path, results: Path | None) -> Path | None:
    """Return the path of the results relative to a folder, if they lie below it."""
    if results is None:
        return None
    outer, inner = (Path(os.path.realpath(path)) for path in (folder, results))
    return inner.relative_to(outer) if outer in inner.parents else None
