"""What MkDocs calls while it builds the documentation site (`mkdocs.yml`).

- README, CONTRIBUTING, CHANGELOG and SECURITY become pages of the site. They are written once, at
  the root.
- The reference is made from the list of public names (`tests/golden/public_names.json`) and from
  the commands themselves.
- Pages with ``<!-- picture: FILE: TEXT -->`` are run. The picture that their code wrote takes the
  place of the mark, and what a block prints is shown below it.
"""

import importlib
import json
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from studies.documents.code_blocks import Run, run_page

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
NAMES = ROOT / "tests" / "golden" / "public_names.json"
ROOT_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "reporting.md",
    "CITATION.cff": "CITATION.cff",
}
LINK = re.compile(r"(?<=\]\()(?!https?:|#)(?P<path>[^)#\s]+)(?P<heading>#[\w-]+)?(?=\))")
FILE_AS_TEXT = re.compile(r"(?<=\[)(?:docs/)?(?P<name>\w+)\.md(?=\]\()")
PICTURE = re.compile(r"^<!-- picture: (?P<file>[\w.-]+): (?P<text>.*?) -->$", re.MULTILINE)
WIDE_PAGES = ("leaderboard.md", "study.md")
"""Pages whose tables take the place of the table of contents."""

_runs: dict[str, Run] = {}


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Add the pages and pictures that are made while the site is built."""
    for name, text in {**root_pages(), **reference_pages()}.items():
        files.append(_generated(config, name, text))
    for file in [file for file in files if file.is_documentation_page()]:
        text = file.content_string
        if PICTURE.search(text) and "```python" in text:
            _runs[file.src_uri] = run_page(text, file.src_uri)
            for name, content in _runs[file.src_uri].pictures.items():
                folder = posixpath.dirname(file.src_uri)
                files.append(_generated(config, posixpath.join(folder, name), content))
    return files


def on_page_markdown(markdown: str, page: "Page", config: "MkDocsConfig", files: "Files") -> str:
    """Bring links and pictures of a page to where they are in the site."""
    del config, files  # MkDocs calls by name
    run = _runs.get(page.file.src_uri)
    if run is not None:
        markdown = with_output(markdown, run)
    if page.file.src_uri in WIDE_PAGES:
        page.meta["hide"] = ["toc"]
    folder = posixpath.dirname(page.file.src_uri)
    markdown = FILE_AS_TEXT.sub(title_of, markdown)
    markdown = LINK.sub(lambda link: _moved(link, folder), markdown)
    return PICTURE.sub(r"![\g<text>](\g<file>)", markdown)


def root_pages() -> dict[str, str]:
    """Return the pages of the root, with links as from the folder of the documentation."""
    return {
        page: LINK.sub(_from_root, (ROOT / source).read_text())
        for source, page in ROOT_PAGES.items()
    }


def _from_root(link: re.Match[str]) -> str:
    path = link["path"]
    inside = path.removeprefix("docs/") if path.startswith("docs/") else f"../{path}"
    return inside + (link["heading"] or "")


def _moved(link: re.Match[str], folder: str) -> str:
    """Return where a link leads in the site, if it leads to a page of the root."""
    path = posixpath.normpath(posixpath.join("docs", folder, link["path"]))
    page = ROOT_PAGES.get(path)
    if page is None:
        return link[0]
    return posixpath.relpath(page, folder or ".") + (link["heading"] or "")


def title_of(link: re.Match[str]) -> str:
    """Return the title of a page in place of the name of its file, where it has one."""
    path = ROOT / "docs" / f"{link['name']}.md"
    title = re.match(r"# (.*)\n", path.read_text()) if path.is_file() else None
    return title[1] if title else link[0].removesuffix(".md")


def with_output(markdown: str, run: Run) -> str:
    """Put what each block printed below the block."""
    for end, text in sorted(run.printed.items(), reverse=True):
        if text:
            output = f'\n\n```text title="prints"\n{text.rstrip()}\n```\n'
            markdown = markdown[:end] + output + markdown[end:]
    return markdown


def on_page_content(html: str, page: "Page", config: "MkDocsConfig", files: "Files") -> str:
    """Turn the second names of functions into places to go to: as links they would be empty."""
    del page, config, files
    return re.sub(r'<a href="" id="([\w.]+)"></a>', r'<span id="\1"></span>', html)


def reference_pages() -> dict[str, str]:
    """Return a page for each public module, and one for all commands."""
    listed: dict[str, list[str]] = json.loads(NAMES.read_text())
    modules = {name: names for name, names in listed.items() if not name.startswith("$")}
    pages = {f"api/{module}.md": _module_page(module, modules) for module in modules}
    return pages | {"api/commands.md": _commands_page()}


def _module_page(module: str, modules: dict[str, list[str]]) -> str:
    parts = [f"# {module}"]
    for name in modules[module]:
        full_name = f"{module}.{name}"
        home = home_of(module, name)
        if home != full_name:
            parts.append(f"[](){{#{full_name}}}")
        options = "\n    options:\n      members: false" if full_name in modules else ""
        parts.append(f"::: {home}{options}")
    return "\n\n".join(parts) + "\n"


def home_of(module: str, name: str) -> str:
    """Return the path by which the reference finds a public name.

    A function in a module of the same name needs its own path; its public one leads to the module.

    Example:
        >>> home_of("musigma", "evaluate"), home_of("musigma", "load")
        ('musigma.evaluation.evaluate.evaluate', 'musigma.load')
    """
    value = getattr(importlib.import_module(module), name)
    home = getattr(value, "__module__", "")
    return f"{home}.{name}" if home.endswith(f".{name}") else f"{module}.{name}"


def _commands_page() -> str:
    from typer.main import get_command

    from musigma.cli.main import app

    commands: dict[str, Any] = getattr(get_command(app), "commands", {})
    parts = ["# Commands", "`musigma COMMAND --help` prints the same in a terminal."]
    for name, command in sorted(commands.items()):
        parts += [f"## musigma {name}", _plain(command.help), _options_table(command)]
        if command.epilog:
            parts.append(command.epilog)  # examples, in Markdown
    return "\n\n".join(parts) + "\n"


def _options_table(command: Any) -> str:
    rows = ["| option | meaning |", "| --- | --- |"]
    for param in command.params:
        if param.param_type_name == "argument":
            words = f"`{param.name.upper()}`"
        else:
            words = ", ".join(f"`{word}`" for word in (*param.opts, *param.secondary_opts))
        rows.append(
            f"| {words} | {_plain(getattr(param, 'help', '')).replace('|', chr(92) + '|')} |"
        )
    return "\n".join(rows)


def _plain(text: str | None) -> str:
    """Return a help text as one paragraph; a form feed ends what people read."""
    return " ".join((text or "").partition("\f")[0].split())


def _generated(config: "MkDocsConfig", name: str, content: str | bytes) -> Any:
    from mkdocs.structure.files import File

    return File.generated(config, name, content=content)
