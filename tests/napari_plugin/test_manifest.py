"""The manifest, by which napari finds the plug-in."""

import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import musigma
from musigma.napari_plugin.samples import noisy_stack_layer, portrait_layer

yaml = pytest.importorskip("yaml", reason="needs the extra docs")

ROOT = Path(__file__).parents[2]
MANIFEST = Path(musigma.__file__).parent / "napari_plugin" / "napari.yaml"


def test_the_entry_point_names_the_manifest():
    """Its part before the colon is a package, and that after it a file of this package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    package, _, file = project["entry-points"]["napari.manifest"]["musigma"].partition(":")
    assert Path(import_module(package).__file__).parent / file == MANIFEST
    assert yaml.safe_load(MANIFEST.read_text())["name"] == project["name"]


def test_every_command_is_a_function_that_exists():
    contributions = yaml.safe_load(MANIFEST.read_text())["contributions"]
    commands = {command["id"]: command["python_name"] for command in contributions["commands"]}
    for name in commands.values():
        module, _, function = name.partition(":")
        assert callable(getattr(import_module(module), function))
    used = [part["command"] for kind in ("widgets", "sample_data") for part in contributions[kind]]
    assert sorted(used) == sorted(commands)


def test_npe2_validates_the_manifest():
    pytest.importorskip("npe2", reason="the plug-in needs the extra napari")
    words = [sys.executable, "-m", "npe2", "validate", str(MANIFEST)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "valid" in done.stdout


def test_samples_are_what_napari_takes():
    for data, properties, layer_type in (*portrait_layer(), *noisy_stack_layer()):
        assert layer_type == "image"
        assert data.min() < data.max()
        assert data.ndim == len(properties.get("scale", data.shape))
