"""What the plug-in computes, and what it must not load beside the window of a viewer."""

import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from musigma.napari_plugin.request import LayerRequest, check_memory, restore_layer
from musigma.restoration.array_source import ArraySource
from musigma.restoration.restore_array import ArrayOptions
from musigma.types import ImageError

STACK = ArraySource(name="cells", data=np.zeros((2, 8, 9), np.uint16), rgb=False)


def test_shipped_weights_restore_a_stack():
    options = ArrayOptions(all_planes=True, coverage=0.5)
    restored = restore_layer(STACK, LayerRequest(weights="photo", scale=2, options=options))
    assert restored.mean.shape == restored.std.shape == (2, 16, 18)
    assert restored.coverage == 0.5


def test_triton_is_not_loaded_because_its_llvm_and_that_of_mesa_crash():
    code = """
import sys
import numpy as np
from musigma.napari_plugin.panel import restore_panel
from musigma.napari_plugin.request import LayerRequest, restore_layer
from musigma.restoration.array_source import ArraySource
from musigma.restoration.restore_array import ArrayOptions
source = ArraySource(name="a", data=np.zeros((8, 9), np.uint8), rgb=False)
restore_layer(source, LayerRequest(weights="photo", scale=2, options=ArrayOptions()))
print("triton" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "False"


@pytest.mark.skipif(find_spec("psutil") is None, reason="psutil comes with the extra napari")
def test_layers_that_do_not_fit_the_memory_are_refused():
    check_memory(2**20)
    with pytest.raises(ImageError, match="restore the shown plane alone"):
        check_memory(2**60)
