"""The Chromium of this machine, driven by Playwright; nothing is downloaded."""

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import pytest

WIDTHS = {"desktop": 1280, "phone": 390}
WAIT = 300_000
"""Milliseconds until a test gives up; on a busy machine a page may need a minute to open."""


def chromium() -> str:
    """Return the path of Chromium, or skip the test."""
    if find_spec("playwright") is None:
        pytest.skip("needs the package playwright (pip install 'musigma[dev]')")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("needs Chromium (apt install chromium)")
    return path


@contextmanager
def launched_browser() -> Iterator:
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Containers often have neither the sandbox's privileges nor a large /dev/shm.
        options = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=path, args=options)
        yield browser
        browser.close()


@contextmanager
def opened_page(browser, device: str, **options) -> Iterator:
    """Open an empty page, and see at the end that nothing was logged, fetched or popped up."""
    width, is_phone = WIDTHS[device], device == "phone"
    context = browser.new_context(
        viewport={"width": width, "height": 800},
        is_mobile=is_phone,
        has_touch=is_phone,
        device_scale_factor=2 if is_phone else 1,
        **options,
    )
    context.set_default_timeout(WAIT)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.extend(complaint(message)))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.on("request", lambda request: complaints.extend(outside(request.url)))
    yield page
    context.close()
    assert not complaints, complaints


def wait_until(page, holds) -> None:
    """Wait until a condition holds, while the page goes on."""
    deadline = time.monotonic() + WAIT / 1000
    while not holds():
        assert time.monotonic() < deadline, "the page did not get there"
        page.wait_for_timeout(50)


def complaint(message) -> list[str]:
    return [message.text] if message.type == "error" else []


def outside(url: str) -> list[str]:
    return [] if url.startswith(("file:", "data:", "blob:")) else [f"request of {url}"]


def address(path: Path) -> str:
    return path.resolve().as_uri()


def serious_violations(page) -> list[str]:
    """Return what axe-core finds on the page that is serious or critical."""
    source = files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    page.evaluate(source + "; undefined")  # not a script element, which the page's policy refuses
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [
        f"{rule['id']}: {json.dumps([node['target'] for node in rule['nodes']])}"
        for rule in found
        if rule["impact"] in ("serious", "critical")
    ]
