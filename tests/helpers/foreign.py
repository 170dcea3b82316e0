"""Networks of other people, made for tests: ONNX files and functions that enlarge by two."""

import warnings
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from helpers.natural import natural

DOUBLE = """
calls = []

def double(image):
    calls.append(image.shape)
    return image.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3) * {factor}
"""


def double(image: Tensor) -> Tensor:
    """Enlarge by two."""
    return image.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)


def write_function(path: Path, factor: float = 1.0) -> str:
    """Write a Python file with a function, and return how it is named."""
    path.write_text(DOUBLE.format(factor=factor))
    return f"{path}:double"


def write_onnx(
    path: Path,
    *,
    channels: int = 3,
    side: int | str = "side",
    channels_last: bool = False,
    dtype: str = "FLOAT",
    num_inputs: int = 1,
    offset: float = 0.0,
) -> Path:
    """Write a network that enlarges by two and adds a number."""
    import onnx
    from onnx import TensorProto, helper

    element = getattr(TensorProto, dtype)
    shape = [1, side, "w", channels] if channels_last else [1, channels, side, "w"]
    factors = [1.0, 2.0, 2.0, 1.0] if channels_last else [1.0, 1.0, 2.0, 2.0]
    nodes = [
        helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT),
        helper.make_node(
            "Resize", ["f", "", "factors"], ["r"], mode="nearest", nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        ),
        helper.make_node("Add", ["r", "offset"], ["a"]),
        helper.make_node("Cast", ["a"], ["y"], to=element),
    ]  # fmt: skip
    inputs = [helper.make_tensor_value_info("x", element, shape)]
    inputs += [
        helper.make_tensor_value_info(f"more{number}", element, [1])
        for number in range(num_inputs - 1)
    ]
    constants = [
        helper.make_tensor("factors", TensorProto.FLOAT, [4], factors),
        helper.make_tensor("offset", TensorProto.FLOAT, [1], [offset]),
    ]
    outputs = [helper.make_tensor_value_info("y", element, [None] * 4)]
    graph = helper.make_graph(nodes, "double", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return path


class Double(torch.nn.Module):
    """Enlarges by two."""

    def forward(self, image: Tensor) -> Tensor:
        """Repeat every pixel."""
        return image.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)


def write_torchscript(path: Path) -> Path:
    """Write a network that enlarges by two as a TorchScript file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of `torch.jit` as a whole
        torch.jit.script(Double()).save(str(path))
    return path


def write_pictures(folder: Path, count: int, side: int = 64) -> Path:
    """Write pictures whose left half is smooth and whose right half is rough."""
    folder.mkdir()
    for number in range(count):
        image = natural(side, side, seed=number)[0]
        noise = torch.rand(image.shape, generator=torch.Generator().manual_seed(number))
        image[..., side // 2 :] = 0.5 * image[..., side // 2 :] + 0.5 * noise[..., side // 2 :]
        image[..., : side // 2] = image[..., : side // 2].mean() + 0.02 * number / count
        levels = (image.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
        Image.fromarray(np.ascontiguousarray(levels)).save(folder / f"{number:02}.png")
    return folder
