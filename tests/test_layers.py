"""Imports go down only: every module imports what the row of its layer allows, and nothing else."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "musigma"

# From the bottom up. A layer may import itself and its row.
BASE = {"_version", "atomic", "file_lock", "types"}
ALLOWED: dict[str, set[str]] = {
    "_version": set(),
    "types": set(),
    "file_lock": set(),
    "atomic": {"file_lock"},
    "functional": BASE,
    "kernels": {*BASE, "functional"},
    "losses": {*BASE, "functional"},
    "images": {*BASE, "functional"},
    "degradations": {*BASE, "functional"},
    "networks": {*BASE, "functional", "kernels"},
    "datasets": {*BASE, "functional", "images", "degradations"},
}
ALLOWED["prediction"] = {*ALLOWED["networks"], "images", "networks"}
ALLOWED["uncertainty"] = {*ALLOWED["prediction"], "prediction"}
ALLOWED["hub"] = {*BASE, "networks"}
ALLOWED["model_file"] = {*ALLOWED["uncertainty"], "uncertainty"}
ALLOWED["model"] = {*ALLOWED["model_file"], "model_file", "hub"}
ALLOWED["restoration"] = {*ALLOWED["model"], "model"}
ALLOWED["evaluation"] = {*ALLOWED["model"], "model", "datasets", "degradations"}
ALLOWED["training"] = {*ALLOWED["evaluation"], "losses", "evaluation"}
ALLOWED["wrapping"] = {*ALLOWED["training"], "training"}
ALLOWED["adaptation"] = {*ALLOWED["training"], "training", "restoration"}
ALLOWED["app"] = {*ALLOWED["restoration"], "restoration", "datasets", "degradations"}
ALLOWED["napari_plugin"] = {*ALLOWED["restoration"], "restoration", "datasets"}
ALLOWED["cli"] = {*ALLOWED["adaptation"], "adaptation", "wrapping", "app"}
ALLOWED["__main__"] = {"cli"}
ALLOWED["__init__"] = {*ALLOWED["wrapping"], "wrapping"}  # imports a name when it is first used

FILES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))


def imported_layers(source: str, folder: tuple[str, ...] = ("musigma",)) -> Iterator[str]:
    """Yield what stands behind ``musigma.`` in every import, those inside functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = folder[: len(folder) - node.level + 1] if node.level else ()
            module = tuple(node.module.split(".")) if node.module else ()
            names = [(*above, *module, alias.name) for alias in node.names]
        else:
            continue
        yield from (name[1] for name in names if name[0] == "musigma" and len(name) > 1)


@pytest.mark.parametrize("file", FILES)
def test_imports_go_down_only(file):
    path = Path(file)
    layer = path.parts[0].removesuffix(".py")
    assert layer in ALLOWED, f"{layer} is a new layer; give it a row in ALLOWED of {__file__}"
    found = set(imported_layers((ROOT / path).read_text(), ("musigma", *path.parts[:-1])))
    upward = found - ALLOWED[layer] - {layer}
    assert not upward, f"{file} imports {sorted(upward)}; {layer} may use {sorted(ALLOWED[layer])}"


def test_names_of_the_package_come_from_known_layers():
    """What ``musigma.__getattr__`` imports by name is an import, too."""
    tree = ast.parse((ROOT / "__init__.py").read_text())
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    homes = {t.split(".")[1] for t in texts if isinstance(t, str) and t.startswith("musigma.")}
    assert homes
    assert homes <= ALLOWED["__init__"]


def test_every_way_to_import_is_seen():
    source = """
import musigma.networks.super_resolution.edsr
from musigma import losses
def late():
    from musigma.images.image_io import read_image
    from ..training import loop
    from . import color
import torch.cuda
"""
    seen = set(imported_layers(source, ("musigma", "functional")))
    assert seen == {"networks", "losses", "images", "training", "functional"}


def test_no_layer_imports_one_that_imports_it():
    for layer, below in ALLOWED.items():
        assert not [other for other in below if layer in ALLOWED.get(other, ())], layer
    assert "losses" not in ALLOWED["networks"]
    assert "networks" not in ALLOWED["losses"]
