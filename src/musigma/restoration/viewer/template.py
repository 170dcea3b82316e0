"""The documents of the viewer: templates, the stylesheet and the script that they share."""

import base64
import functools
import hashlib
import json
import re
from collections.abc import Mapping
from importlib.resources import files

VIEWER = "viewer.js"


@functools.cache
def stylesheet() -> str:
    """Return the stylesheet of page, gallery and app.

    Example:
        >>> ".mu-viewer" in stylesheet()
        True
    """
    return _read("style.css")


@functools.cache
def script() -> str:
    """Return the viewer, which defines ``musigmaViewer.mount(element, data)``.

    Example:
        >>> "musigmaViewer" in script()
        True
    """
    return _read(VIEWER)


def make_document(
    name: str,
    parts: Mapping[str, str],
    *,
    generator: str,
    script_name: str | None = None,
    summary: str = "",
) -> str:
    """Return an HTML document: a filled template inside the frame that all documents share.

    Style and script are added, with their hashes for the content security policy: the browser runs
    them and nothing else, whatever the names of files hold.

    Args:
        name: File name of the template.
        parts: What stands for each mark ``{{...}}``, as HTML; ``title`` is one of them.
        generator: What wrote the document, by which it is known again.
        script_name: File name of the script; `None` for a document without one.
        summary: A script element with data, near the start of the file, where it is found quickly.
    """
    code = "" if script_name is None else _read(script_name)
    frame = {
        "title": parts["title"],
        "generator": generator,
        "summary": summary,
        "style": stylesheet(),
        "style_hash": _hash(stylesheet()),
        "script": f"<script>{code}</script>" if code else "",
        "script_source": _hash(code) if code else "none",
        "content": _filled(name, parts).rstrip("\n"),
    }
    return _filled("document.html", frame)


def _filled(name: str, parts: Mapping[str, str]) -> str:
    # In one pass, so that a title that looks like a mark is not replaced.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _read(name))


def json_for_html(value: object) -> str:
    r"""Return JSON that can stand inside a script element.

    Example:
        >>> json_for_html({"name": "</script>"})
        '{"name": "\\u003c/script>"}'
    """
    return json.dumps(value).replace("<", "\\u003c")


def _read(name: str) -> str:
    return files("musigma.restoration.viewer").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
