"""Our GPU kernels, run by Triton's interpreter on a CPU, against PyTorch."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

WEIGHT_GRADIENTS = """
import torch
from torch.nn.grad import conv2d_weight
from musigma.kernels.triton_conv import weight_gradients

generator = torch.Generator().manual_seed(0)
for num_in, num_out, num_parts in ((64, 64, 1), (128, 128, 2), (48, 48, 2), (80, 112, 1)):
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


CONVOLUTIONS = """
import torch
from torch.nn.functional import conv2d, conv_transpose2d
from musigma.kernels.triton_conv import convolve

generator = torch.Generator().manual_seed(0)
def draw(*shape):
    return torch.randn(shape, generator=generator).to(memory_format=torch.channels_last)
def same(ours, theirs):
    assert ours.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
# More pixels than a program owns and fewer, channels that do not fill a tile, and few of them.
for num_in, num_out, height, width in ((64, 64, 9, 19), (160, 96, 3, 5), (32, 16, 4, 7)):
    image, weight = draw(2, num_in, height, width), draw(num_out, num_in, 3, 3) / 10
    bias = torch.randn(num_out, generator=generator)
    output, other = draw(2, num_out, height, width), draw(2, num_in, height, width)
    expected = conv2d(image, weight, bias, padding=1)
    same(convolve(image, weight, bias), expected)
    same(convolve(image, weight, bias, rectify=True), expected.relu())
    same(convolve(image, weight, bias, add=output), expected + output)
    slope = torch.full((1,), 0.3)
    same(convolve(image, weight, bias, slope=slope), torch.nn.functional.prelu(expected, slope))
    if num_out % 32:
        continue  # an odd number of inputs on the way back
    back = conv_transpose2d(output, weight, padding=1)
    same(convolve(output, weight, backwards=True, pixels=256), back)
    same(convolve(output, weight, backwards=True, add=other), back + other)
    same(convolve(output, weight, backwards=True, mask=other), back * (other > 0))
print("equal")
"""


@pytest.mark.skipif(not find_spec("triton"), reason="needs Triton")
@pytest.mark.parametrize("program", [WEIGHT_GRADIENTS, CONVOLUTIONS])
def test_kernels_equal_pytorch(program):
    environment = os.environ | {"TRITON_INTERPRET": "1"}  # read once, when Triton is imported
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "equal\n", done.stderr
