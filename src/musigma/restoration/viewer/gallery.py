"""A gallery of the pages in a folder: thumbnails, facts and links, in one HTML file."""

import json
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from musigma.atomic import write_atomically
from musigma.restoration.viewer.template import make_document

NAMES = ("index.html", "gallery.html", "musigma-gallery.html")
"""Names of the gallery; the first one that no other file has is taken."""

_GENERATOR = "musigma gallery"
_MARK = f'<meta name="generator" content="{_GENERATOR}">'
_SUMMARY = re.compile(r'<script type="application/json" id="summary">(.*?)</script>', re.DOTALL)
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_HEAD = 400_000  # bytes of a page among which its summary is


class Entry(NamedTuple):
    """A page of the gallery.

    Attributes:
        path: The page, relative to the folder.
        title: Its heading.
        info: What it says about the result, by name.
        promise: Whether the intervals promise something; `None` where there are none.
        warning: What the user should know.
        thumbnails: JPEGs in base64, by what they show: ``input``, ``result``, ``error``.
        error_top: The level of 255 that is brightest in the thumbnail of the error, if it is known.
    """

    path: Path
    title: str
    info: dict[str, str]
    promise: bool | None
    warning: str | None
    thumbnails: dict[str, str]
    error_top: float | None


def write_gallery(
    folder: Path | str, *, problems: Sequence[str] = (), title: str | None = None
) -> Path | None:
    """Write a gallery of all pages in a folder and its subfolders, of this run and of others.

    A file of another kind is never replaced: the gallery takes the first name of `NAMES` that is
    free or is a gallery.

    Args:
        folder: Where the pages are.
        problems: What went wrong with the files that have no page, one line for each.
        title: Heading; by default the name of the folder.

    Returns:
        The gallery, or `None` where there are fewer than two pages and no problem.
    """
    folder = Path(folder)
    entries = list_pages(folder)
    path = next((folder / name for name in NAMES if _may_replace(folder / name)), None)
    if path is None or not entries or len(entries) + len(problems) < 2:
        return None
    heading = title or folder.resolve().name
    document = make_document(
        "gallery.html",
        {
            "title": escape(f"Gallery: {heading}"),
            "lead": escape(_lead(entries)),
            "problems": _problems(problems),
            "cards": "\n".join(_card(entry) for entry in entries),
        },
        generator=_GENERATOR,
    )
    write_atomically(path, document.encode(errors="replace"))  # of names in other bytes
    return path


def list_pages(folder: Path) -> list[Entry]:
    """Return the pages of `musigma` in a folder and its subfolders, by name."""
    entries = (_read_entry(folder, path) for path in sorted(folder.rglob("*.html")))
    return [entry for entry in entries if entry is not None]


def _may_replace(path: Path) -> bool:
    return not path.exists() or _MARK in _head(path)


def _head(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_HEAD).decode(errors="replace")
    except OSError:
        return ""


def _read_entry(folder: Path, path: Path) -> Entry | None:
    """Return what a page says about itself; `None` for a file that is no page of ours."""
    match = _SUMMARY.search(_head(path))
    if match is None:
        return None
    try:
        summary = json.loads(match[1])
        return _entry(path.relative_to(folder), summary)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _entry(path: Path, summary: dict[str, Any]) -> Entry:
    """Read a summary; other programs may have written the file, so nothing is taken on trust."""
    promise, warning = summary["promise"], summary["warning"]
    thumbnails = {
        str(name): text
        for name, text in summary["thumbnails"].items()
        if isinstance(text, str) and _BASE64.fullmatch(text)
    }
    return Entry(
        path,
        str(summary["title"]),
        {str(name): str(value) for name, value in summary["info"]},
        promise if isinstance(promise, bool) else None,
        None if warning is None else str(warning),
        thumbnails,
        float(top) if isinstance(top := summary.get("error_top"), int | float) else None,
    )


def _lead(entries: list[Entry]) -> str:
    num_without = sum(entry.promise is False for entry in entries)
    text = "1 picture." if len(entries) == 1 else f"{len(entries)} pictures."
    if num_without:
        text += f" The intervals of {num_without} promise nothing."
    if any(entry.error_top is not None for entry in entries):
        text += " Errors are in levels of 255; the scale of each map stands below it."
    return text


def _problems(problems: Sequence[str]) -> str:
    if not problems:
        return ""
    items = "".join(f"<li>{escape(problem)}</li>" for problem in problems)
    return (
        f'<section class="mu-promise mu-none"><h2>{len(problems)} not restored</h2>'
        f'<ul class="mu-problems">{items}</ul></section>'
    )


def _card(entry: Entry) -> str:
    # The colors of each error map have a scale of their own.
    scale = "" if entry.error_top is None else f", 0 to {entry.error_top:g}"
    captions = {"input": "Input", "result": "Result", "error": f"Error{scale}"}
    # The dot keeps a name such as "javascript:x.html" a path.
    link = "./" + quote(entry.path.as_posix())
    below = "" if entry.path.parent == Path() else f"{entry.path.parent.as_posix()}/"
    name = below + entry.title
    figures = "".join(
        f'<figure><img alt="{escape(caption)} of {escape(entry.title)}" '
        f'src="data:image/jpeg;base64,{entry.thumbnails[key]}"><figcaption>{caption}</figcaption>'
        "</figure>"
        for key, caption in captions.items()
        if key in entry.thumbnails
    )
    line = ". ".join(f"{key}: {value}" for key, value in entry.info.items())
    return (
        f'<li class="mu-panel"><h2><a href="{escape(link)}">{escape(name)}</a></h2>'
        f'<div class="mu-thumbs">{figures}</div><p class="mu-quiet">{escape(line)}.</p>'
        f"{_badges(entry)}</li>"
    )


def _badges(entry: Entry) -> str:
    badges = ""
    if entry.promise is not None:
        promised = ("", "Intervals with a promise")
        style, text = promised if entry.promise else (" mu-none", "No promise for this picture")
        badges += f'<span class="mu-badge{style}">{text}</span>'
    if entry.warning:
        badges += f'<p class="mu-badge mu-none">{escape(entry.warning)}</p>'
    return badges
