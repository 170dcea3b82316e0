"""Picture files by name: which to read, and how to write one without ever leaving half of it."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO, NamedTuple

from musigma.atomic import atomic_writer
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


class ImageSource(NamedTuple):
    """A picture to read, and the name its result should have inside the output folder."""

    path: Path
    name: Path


def image_error(path: Path, text: str) -> ImageError:
    r"""Return an error that names the file and fits one line, whatever characters the name holds.

    Example:
        >>> image_error(Path("two\nlines.png"), "is empty")
        ImageError('two\\nlines.png: is empty')
    """
    line = f"{path}: {text}"
    return ImageError("".join(c if c.isprintable() else ascii(c)[1:-1] for c in line))


def format_of(path: Path) -> str:
    """Return the picture format that a file name asks for.

    Example:
        >>> format_of(Path("scan.TIF"))
        'TIFF'
    """
    suffix = path.suffix.lower()
    if suffix not in FORMAT_OF_SUFFIX:
        hint = nearest(suffix, tuple(FORMAT_OF_SUFFIX))
        raise image_error(path, f"no picture format has the suffix {suffix!r}; {hint}")
    return FORMAT_OF_SUFFIX[suffix]


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Open a picture file that appears under its name only when it is complete.

    Raises:
        ImageError: If the file cannot be written; one line with the system's reason.
    """
    if path.is_dir():
        raise image_error(path, "is a folder; give the name of a file to write")
    try:
        with atomic_writer(path) as file:
            yield file
    except OSError as error:
        text = f"could not be written ({error.strerror or error}); no partial file is left"
        raise image_error(path, text) from error


def list_images(
    inputs: Iterable[Path | str], *, recursive: bool = False, results: Path | None = None
) -> list[ImageSource]:
    """Return the pictures behind files, folders and patterns, each once, in a stable order.

    Inputs keep their order; a folder or a pattern gives its pictures sorted by path. A picture of
    a folder is named by its place below that folder, one of a pattern by its place below the fixed
    part of the pattern. Folders give only files with a picture's suffix, and no hidden ones.

    Args:
        inputs: Names of files, names of folders, or patterns with ``*``, ``?``, ``[...]``, ``**``.
        recursive: Also look into the folders below each folder.
        results: A folder for results, which is not looked into where it lies below an input.

    Raises:
        ImageError: If an input does not exist, is no picture by its suffix or holds no picture, or
            if two pictures would get the same name.
    """
    sources: dict[Path, ImageSource] = {}
    taken: dict[Path, Path] = {}
    for source in (s for item in inputs for s in _expand(Path(item), recursive, results)):
        if source.path.absolute() in sources:
            continue
        if source.name in taken:
            text = f"its result would have the same name as that of {taken[source.name]}"
            raise image_error(source.path, f"{text}; give the folder above both, with recursive")
        sources[source.path.absolute()] = source
        taken[source.name] = source.path
    return list(sources.values())


def missing_reason(path: Path) -> str:
    """Say why a path leads to no file: nothing is there, or a link to nothing."""
    if path.is_symlink():
        return f"is a link to {path.readlink()}, which does not exist"
    return "does not exist"


def _expand(item: Path, recursive: bool, results: Path | None) -> list[ImageSource]:
    try:
        if item.is_dir():
            return _in_folder(item, recursive, results)
        if item.exists():
            format_of(item)
            return [ImageSource(item, Path(item.name))]
        if any(_is_pattern(part) for part in item.parts):
            return _matching(item, results)
    except OSError as error:
        raise image_error(item, f"could not be looked up ({error.strerror})") from error
    raise image_error(item, missing_reason(item))


def _in_folder(folder: Path, recursive: bool, results: Path | None) -> list[ImageSource]:
    found = _pictures(folder, folder.rglob("*") if recursive else folder.iterdir(), results)
    if not found:
        below = "" if recursive else "; folders below it were not looked into"
        raise image_error(folder, f"holds no picture ({' '.join(FORMAT_OF_SUFFIX)}){below}")
    return found


def _matching(pattern: Path, results: Path | None) -> list[ImageSource]:
    fixed = Path(*takewhile(lambda part: not _is_pattern(part), pattern.parts))
    found = _pictures(fixed, fixed.glob(str(pattern.relative_to(fixed))), results)
    if not found:
        raise image_error(pattern, "matches no picture")
    return found


def _is_pattern(part: str) -> bool:
    return any(character in part for character in "*?[")


def _pictures(folder: Path, paths: Iterable[Path], results: Path | None) -> list[ImageSource]:
    sources = [ImageSource(path, path.relative_to(folder)) for path in sorted(paths)]
    below = _below(folder, results)
    return [
        source
        for source in sources
        if source.path.suffix.lower() in FORMAT_OF_SUFFIX
        and not any(part.startswith(".") for part in source.name.parts)
        and not (below and source.name.is_relative_to(below))
        and not source.path.is_dir()
    ]


def _below(folder: Path, results: Path | None) -> Path | None:
    """Return the place of the results below a folder, if they are there and not the folder."""
    if results is None:
        return None
    outer, inner = (Path(os.path.realpath(path)) for path in (folder, results))
    return inner.relative_to(outer) if outer in inner.parents else None
