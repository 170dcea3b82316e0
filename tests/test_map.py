"""CONTRIBUTING leads to the right file: every file and name of its tables exists."""

import re
from pathlib import Path

import pytest

from helpers.documents import DOCUMENTS, ROOT, headings_of, name_of

TEXT = (ROOT / "CONTRIBUTING.md").read_text()
QUESTIONS = re.findall(r"^\| (.*\?) \| `(.*)` \| `(.*)` \|$", TEXT, flags=re.MULTILINE)


def test_there_are_ten_questions():
    assert len(QUESTIONS) >= 10


@pytest.mark.parametrize(("question", "file", "name"), QUESTIONS, ids=[q[2] for q in QUESTIONS])
def test_a_question_is_answered_by_the_file_that_it_names(question, file, name):
    source = (ROOT / file).read_text()
    assert re.search(rf"^\s*(?:def|class) {name}\b", source, re.MULTILINE), question


def tree() -> list[str]:
    """Return the paths of the tree below the heading "The tree"."""
    block = re.search(r"## The tree.*?```text\n(.*?)```", TEXT, re.DOTALL)[1]
    paths, parents = [], []
    for line in block.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        parents = [*parents[:depth], line.split()[0]]
        paths.append("".join(parents))
    return paths


def test_the_tree_is_the_tree():
    assert [path for path in tree() if not (ROOT / path).exists()] == []
    rooms = {path.name for path in (ROOT / "src" / "musigma").iterdir() if path.is_dir()}
    named = {Path(path).name for path in tree()}
    assert rooms - {"__pycache__"} <= named


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_and_code_paths_exist(path):
    """Links to files, and paths such as `tests/...` or `studies/...` in code marks."""
    text = path.read_text()
    links = re.findall(r"\]\((?!http)([^)#]+)(?:#[^)]*)?\)", text)
    assert [link for link in links if not (path.parent / link).exists()] == []
    files = re.findall(r"`((?:tests|studies|examples|docs)/[\w/.-]+\.\w+)`", text)
    assert [file for file in files if not (ROOT / file).exists()] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_headings_that_are_linked_exist(path):
    links = re.findall(r"\]\(([\w./-]*\.md)?#([\w-]+)\)", path.read_text())
    for target, heading in links:
        page = path.parent / target if target else path
        assert heading in headings_of(page), f"{target}#{heading}"
