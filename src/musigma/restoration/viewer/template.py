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


def fill_template(name: str, parts: Mapping[str, str], *, script_name: str = VIEWER) -> str:
    """Return a template with its marks ``{{name}}`` replaced.

    Style and script are added, with their hashes for the content security policy: the browser runs
    them and nothing else, whatever the names of files hold.

    Args:
        name: File name of the template.
        parts: What stands for each mark, as HTML.
        script_name: File name of the script.
    """
    code = _read(script_name)
    parts = {
        **parts,
        "style": stylesheet(),
        "style_hash": _hash(stylesheet()),
        "script": code,
        "script_hash": _hash(code),
    }
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
