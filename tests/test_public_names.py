"""The public face: names that others import and options that others type change on purpose only.

``python tests/test_public_names.py`` writes the list anew.
"""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from musigma.cli.main import app

GOLDEN = Path(__file__).parent / "golden" / "public_names.json"
MODULES = (
    "musigma",
    "musigma.evaluation",
    "musigma.losses",
    "musigma.uncertainty.metrics",
    "musigma.networks",
)


def public_names() -> dict[str, list[str]]:
    """Return the names of each public module, and the words of each command, sorted."""
    names = {module: sorted(importlib.import_module(module).__all__) for module in MODULES}
    return names | dict(sorted(_words("musigma", get_command(app)).items()))


def _words(path: str, command: Any) -> dict[str, list[str]]:
    found = {}
    own = [word for param in command.params for word in _spellings(param)]
    if own:
        found[f"$ {path}"] = sorted(own)
    for name, inner in getattr(command, "commands", {}).items():
        found |= _words(f"{path} {name}", inner)
    return found


def _spellings(param: Any) -> list[str]:
    if param.param_type_name == "argument":
        return [param.name.upper()]
    return [*param.opts, *param.secondary_opts]


def test_public_names_are_those_of_the_list():
    listed, present = json.loads(GOLDEN.read_text()), public_names()
    changes = [
        f"{place}: {what} {sorted(names)}"
        for place in sorted({*listed, *present})
        for what, names in (
            ("added", {*present.get(place, ())} - {*listed.get(place, ())}),
            ("removed", {*listed.get(place, ())} - {*present.get(place, ())}),
        )
        if names
    ]
    how = "if this is meant, run 'python tests/test_public_names.py' and say it in CHANGELOG.md"
    assert not changes, "; ".join([*changes, how])


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_exists(module):
    found = importlib.import_module(module)
    assert len(set(found.__all__)) == len(found.__all__)
    assert not [name for name in found.__all__ if not hasattr(found, name)]


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(public_names(), indent=1) + "\n")
