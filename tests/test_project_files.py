"""Files that other programs read: GitHub Actions, pre-commit, the citation."""

import re
import tomllib
from pathlib import Path

import pytest

import musigma

yaml = pytest.importorskip("yaml", reason="needs the extra docs")

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def read(path: Path) -> dict:
    return yaml.safe_load(path.read_text())


def commands(workflow: dict) -> list[str]:
    return [
        step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step
    ]


def targets() -> set[str]:
    """Return what `make` can make, without files."""
    return set(
        re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()
    )


def test_there_are_a_test_and_a_release():
    assert [path.stem for path in WORKFLOWS] == ["release", "test"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_is_whole(path):
    workflow = read(path)
    assert workflow["name"] == path.stem
    assert workflow["permissions"] == {"contents": "read"}  # a job asks for more where it needs it
    assert True in workflow  # YAML reads the key "on" so
    for job in workflow["jobs"].values():
        assert job["runs-on"] == "ubuntu-latest"
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            assert re.fullmatch(r"[\w/-]+@[\w/.-]+", step.get("uses", "a@b"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_make_only_what_the_makefile_has(path):
    made = {word for run in commands(read(path)) for word in re.findall(r"^make (\S+)", run)}
    assert made <= targets()


def test_the_two_commands_run_on_every_python_that_is_admitted():
    workflow = read(ROOT / ".github" / "workflows" / "test.yml")
    runs = commands(workflow)
    assert runs.index("make demo") < runs.index("make test")
    listed = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if "Python :: 3." in c]
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == listed
    assert PROJECT["requires-python"] == f">={listed[0]}"


def test_a_release_is_built_checked_and_published_without_a_password():
    jobs = read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
    built = "\n".join(commands({"jobs": {"build": jobs["build"]}}))
    for command in ("python -m build", "twine check --strict", "GITHUB_REF_NAME", "musigma demo"):
        assert command in built
    assert jobs["publish"]["needs"] == "build"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets" not in (ROOT / ".github" / "workflows" / "release.yml").read_text()


def test_pre_commit_runs_the_tools_of_make_lint():
    (repository,) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"  # nothing is fetched, so versions cannot differ
    lint = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    for hook in repository["hooks"]:
        assert hook["language"] == "system"
        program = hook["entry"].removeprefix(".venv/bin/").split(" --")[0]
        assert f"$(BIN)/{program}" in lint


def test_the_citation_names_this_version():
    citation = read(ROOT / "CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert citation["license"] == PROJECT["license"]
    assert citation["version"] == musigma.__version__
    assert citation["preferred-citation"]["version"] == musigma.__version__
    for part in (citation, citation["preferred-citation"], *citation["references"]):
        assert part["title"]
        assert part["authors"]
        assert part["type"]


def test_every_extra_is_named_in_the_readme():
    extras = set(PROJECT["optional-dependencies"])
    text = (ROOT / "README.md").read_text()
    assert [extra for extra in extras if f"`{extra}`" not in text] == []
