"""Our GPU kernel, run by Triton's interpreter on a CPU, against PyTorch's weight gradients."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

PROGRAM = """
import torch
from torch.nn.grad import conv2d_weight
from musigma.training.kernels import weight_gradients

generator = torch.Generator().manual_seed(0)
for num_in, num_out, num_parts in ((64, 64, 1), (128, 128, 2)):
    def draw(channels):
        values = torch.randn(2, channels, 3, 5, generator=generator)
        return values.to(memory_format=torch.channels_last)
    read, wrote = [draw(num_in) for _ in range(2)], [draw(num_out) for _ in range(2)]
    weights, biases = weight_gradients(read, wrote, num_parts=num_parts, depth=16)
    for image, gradient, weight, bias in zip(read, wrote, weights, biases, strict=True):
        expected = conv2d_weight(image, (num_out, num_in, 3, 3), gradient, padding=1)
        assert weight.is_contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(weight, expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(bias, gradient.sum((0, 2, 3)), rtol=1e-4, atol=1e-4)
print("equal")
"""


@pytest.mark.skipif(not find_spec("triton"), reason="needs Triton")
def test_all_layers_at_once_equal_one_by_one():
    environment = os.environ | {"TRITON_INTERPRET": "1"}  # read once, when Triton is imported
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "equal\n", done.stderr
