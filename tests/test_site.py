"""The documentation site builds without a warning, holds what it must, and opens in a browser.

It is built once for all workers: the first one that needs it builds it, and the others wait.
"""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from helpers.browser import WIDTHS, address, chromium, launched_browser, opened_page
from helpers.documents import DOCUMENTS, ROOT, name_of
from musigma.file_lock import wait_for_lock
from studies.documents.code_blocks import blocks, run_page
from studies.documents.site_hooks import LINK, PICTURE, home_of, root_pages, with_output

GOLDEN = ROOT / "tests" / "golden" / "public_names.json"


class Page(HTMLParser):
    """The names, links and resources of an HTML page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []
        self.resources: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {key: value or "" for key, value in attrs}
        self.names.add(values.get("id", ""))
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in ("img", "script") and "src" in values:
            self.resources.append(values["src"])
        if tag == "link" and values.get("rel") in ("stylesheet", "icon", "preconnect"):
            self.resources.append(values["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory, testrun_uid):
    """The folder of the site."""
    pytest.importorskip("mkdocs", reason="needs the extra docs")
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, done = shared / f"site-{testrun_uid}", shared / f"site-{testrun_uid}.done"
    with (shared / f"site-{testrun_uid}.lock").open("w") as lock:
        wait_for_lock(lock.fileno())
        if not done.exists():
            build(folder)
            done.touch()
    return folder


def build(folder: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def broken_links(pages: dict[Path, Page]) -> list[str]:
    """Return links inside the site whose page or heading does not exist."""
    broken = []
    for path, page in pages.items():
        if path.name == "404.html":  # it is shown at any address, so its links begin with a slash
            continue
        for link in page.links + page.resources:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            fragment = unquote(parts.fragment)
            names = pages[target].names if target in pages else {fragment}
            if not target.is_file() or (fragment and fragment not in names):
                broken.append(f"{path.name}: {link}")
    return broken


def names_that_are_missing(pages: dict[Path, Page], folder: Path) -> list[str]:
    """Return public names without an entry in the reference."""
    missing = []
    for module, names in json.loads(GOLDEN.read_text()).items():
        if module.startswith("$"):
            text = (folder / "api" / "commands.html").read_text()
            missing += [f"{module} {word}" for word in names if word not in text]
        else:
            there = pages[folder / "api" / f"{module}.html"].names
            missing += [n for name in names if (n := f"{module}.{name}") not in there]
    # Options of the bare command stand in its own help.
    return [name for name in missing if not name.startswith("$ musigma -")]


@pytest.mark.slow
def test_the_site_builds_without_warnings_and_is_whole(site):
    pages = {path: Page(path) for path in site.rglob("*.html")}
    assert len(pages) > 25
    assert broken_links(pages) == []
    assert names_that_are_missing(pages, site) == []
    foreign = [r for page in pages.values() for r in page.resources if urlsplit(r).netloc]
    empty_links = [path.name for path in pages if 'href="" id' in path.read_text()]
    assert empty_links == []  # which a screen reader could not name
    assert foreign == []  # nothing is fetched from other hosts when somebody reads
    for path in (ROOT / "docs").rglob("*.md"):
        page = site / path.relative_to(ROOT / "docs").with_suffix(".html")
        shown = {Path(resource).name for resource in pages[page].resources}
        assert {match["file"] for match in PICTURE.finditer(path.read_text())} <= shown
    assert "of the true values lie inside" in (site / "gallery" / "text.html").read_text()


READY = """async () => {
    const pictures = [...document.images];
    await Promise.allSettled(pictures.map((picture) => picture.decode()));
    return {
        dead: pictures.filter((picture) => !picture.naturalWidth).map((picture) => picture.src),
        overflow: document.documentElement.scrollWidth - innerWidth,
    };
}"""
"""Waits for the pictures of a page; returns those that are none, and how far it is too wide."""


@pytest.mark.slow
@pytest.mark.parametrize("device", WIDTHS)
def test_the_site_opens_in_a_browser(site, device):
    """Pages open from the disk, show their pictures, fit the window and lead to each other."""
    chromium()  # skips the test where there is none
    scheme = "dark" if device == "phone" else "light"
    with launched_browser() as browser, opened_page(browser, device, color_scheme=scheme) as page:
        for name in ("index", "weights", "results", "gallery/index", "api/commands"):
            page.goto(address(site / f"{name}.html"))
            assert page.evaluate(READY) == {"dead": [], "overflow": 0}, name
        page.goto(address(site / "index.html"))
        page.get_by_role("main").get_by_role("link", name="Start here in five minutes").click()
        page.wait_for_url("**/start.html")
        assert page.get_by_role("heading", level=1).inner_text().startswith("Start here")
        if device == "desktop":
            page.get_by_role("navigation").get_by_role("link", name="A scan").first.click()
            page.wait_for_url("**/gallery/scan.html")


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_pictures_are_made_by_the_code_of_a_page(path):
    """A page shows pictures that its own code writes, or that of a page in its folder."""
    marks = {match["file"] for match in PICTURE.finditer(path.read_text())}
    code = "".join(
        block.code
        for page in (path.parent.glob("*.md") if path.name == "index.md" else [path])
        for block in blocks(page.read_text())
        if block.language == "python" and block.reason is None
    )
    assert [name for name in marks if f'"{name}"' not in code] == []


def test_a_page_is_run_and_shows_what_it_prints():
    text = """
```python
from pathlib import Path
number = 6
```

```python
print(7 * number)
Path("a.png").write_bytes(b"picture")
```
<!-- not run: needs BasicSR -->
```python
raise SystemExit
```
"""
    run = run_page(text, "page.md")
    assert run.pictures == {"a.png": b"picture"}
    assert [printed for printed in run.printed.values() if printed] == ["42\n"]
    assert '```text title="prints"\n42\n```' in with_output(text, run)


def test_an_error_in_a_page_names_its_line():
    with pytest.raises(ZeroDivisionError) as caught:
        run_page("Text.\n\n```python\n1 / 0\n```\n", "page.md")
    last = caught.traceback[-1]
    assert (Path(last.path).name, last.lineno + 1) == ("page.md", 4)


def test_links_of_the_root_lead_into_the_site():
    pages = root_pages()
    links = [match["path"] for match in LINK.finditer(pages["index.md"])]
    assert "gallery/index.md" in links
    assert "../CONTRIBUTING.md" in links  # `on_page_markdown` sends it to contributing.md
    assert not [link for link in links if link.startswith("docs/")]


def test_a_function_in_a_module_of_its_name_is_found():
    assert home_of("musigma.evaluation", "calibrate") == "musigma.evaluation.calibrate.calibrate"
    assert home_of("musigma.networks", "Network") == "musigma.networks.Network"
    assert home_of("musigma.losses", "names") == "musigma.losses.names"
    assert re.search(r"musigma.*__version__", home_of("musigma", "__version__"))
