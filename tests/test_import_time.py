"""``import musigma`` is quick, and heavy packages wait for the function that uses them."""

import subprocess
import sys

import pytest

from musigma.networks.weights_file import SHIPPED

HEAVY = {"PIL", "bm3d", "matplotlib", "onnx", "onnxruntime", "openvino", "ray", "skimage"}


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_loads_nothing_but_the_list_of_names():
    """Names are imported when they are first used, so that the import itself costs nothing."""
    code = """
import sys
before = set(sys.modules)
import musigma
print(*(name for name in set(sys.modules) - before if name.split(".")[0] in ("musigma", "torch")))
"""
    assert set(run(code).split()) == {"musigma", "musigma._version"}


def test_heavy_packages_are_not_imported_for_their_names_alone():
    code = """
import sys, musigma, musigma.cli.main
for name in musigma.__all__:
    getattr(musigma, name)
print(*sys.modules, sep="\\n")
"""
    loaded = set(run(code).split())
    assert {"musigma.networks", "musigma.cli.upscale"} <= loaded
    assert not loaded & HEAVY


def test_help_does_not_wait_for_torch():
    """torch takes seconds to import, and a help text needs none of it."""
    code = """
import sys
from musigma.cli.main import app
for arguments in (["--help"], ["upscale", "--help"], ["calibrate", "--help"]):
    try:
        app(arguments)
    except SystemExit:
        pass
print("loaded:", *sys.modules)
"""
    assert "torch" not in run(code).rpartition("loaded:")[2].split()


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.safetensors")), ids=lambda path: path.stem)
def test_loading_weights_does_not_load_the_compiler(path):
    """Without values, as networks are first built, some functions of PyTorch load its compiler."""
    name, _, scale = path.stem.rpartition("-x")
    code = f"""
import sys, musigma
musigma.load({name!r}, scale={scale})
print("torch._dynamo" in sys.modules)
"""
    assert run(code).split() == ["False"]
