"""``import musigma`` is quick, and heavy packages wait for the function that uses them."""

import subprocess
import sys
from statistics import median

LIMIT = 0.3  # seconds beyond torch
HEAVY = {"PIL", "bm3d", "matplotlib", "onnx", "onnxruntime", "openvino", "ray", "skimage"}


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_adds_little_to_that_of_torch():
    # Time of the processor, not of the clock: other tests may run beside this one.
    code = """
import time, torch
start = time.process_time()
import musigma
print(time.process_time() - start)
"""
    assert median(float(run(code)) for _ in range(3)) <= LIMIT


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
