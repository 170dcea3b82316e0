"""ONNX files of other people as functions: layouts, types and ranges of values are matched."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from musigma.networks.black_box import Function
from musigma.prediction.engines.onnx_file import require
from musigma.prediction.foreign.python_function import function_of
from musigma.types import ConfigError, WeightsError, first_line

_TYPES: dict[str, Any] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(uint8)": np.uint8,
}


@dataclass(frozen=True)
class OnnxInput:
    """What an ONNX file takes.

    Attributes:
        name: Of the input.
        dtype: Type of its values.
        channels_last: Whether it is ``(N, H, W, C)``.
    """

    name: str
    dtype: type
    channels_last: bool


def open_onnx(path: Path) -> Callable[[float], Function]:
    """Return what makes the function of an ONNX file from its range of values.

    The file is read into memory. So what runs is what was hashed, and no other file is opened.
    """
    require("onnxruntime", extra="export")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(
            path.read_bytes(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # ONNX Runtime has errors of many types
        raise WeightsError(
            f"ONNX Runtime cannot open {path.name}: {first_line(error)}; a network whose weights "
            "lie in a second file must be saved as one file"
        ) from error
    taken = _check_inputs(path.name, session.get_inputs())

    def make(value_range: float) -> Function:
        def run(image: Tensor) -> Tensor:
            values = session.run(None, {taken.name: _to_input(image, taken, value_range)})[0]
            return _from_output(values, value_range, channels_last=taken.channels_last)

        return function_of(run, path.name)

    return make


def _check_inputs(name: str, inputs: Sequence[Any]) -> OnnxInput:
    if len(inputs) != 1:
        names = ", ".join(str(each.name) for each in inputs)
        raise ConfigError(
            f"{name} has {len(inputs)} inputs ({names}), and a network with one can be wrapped; "
            "write a Python function that gives it the others"
        )
    shape, dtype = list(inputs[0].shape), _TYPES.get(inputs[0].type)
    if len(shape) != 4 or dtype is None:
        raise ConfigError(
            f"{name} takes {inputs[0].type} of shape {shape}; expected pictures of float32, "
            "float16 or uint8, (N, 3, H, W) or (N, H, W, 3)"
        )
    channels_last = shape[1] != 3 and shape[3] == 3
    height, width = shape[1:3] if channels_last else shape[2:]
    if isinstance(height, int) or isinstance(width, int):
        raise ConfigError(
            f"{name} takes pictures of {width} x {height} pixels only; export it with free height "
            "and width (dynamic axes)"
        )
    if 1 in (shape[1], shape[3]):
        raise ConfigError(
            f"{name} takes one channel, and a wrapped network takes RGB; write a Python function "
            "that gives it the luma and enlarges the colors"
        )
    return OnnxInput(inputs[0].name, dtype, channels_last)


def _to_input(image: Tensor, taken: OnnxInput, value_range: float) -> NDArray[Any]:
    levels = 255.0 if taken.dtype is np.uint8 else value_range
    values = image.numpy() * np.float32(levels)
    if taken.dtype is np.uint8:
        values = np.rint(values).clip(0, 255)
    values = values.transpose(0, 2, 3, 1) if taken.channels_last else values
    return np.ascontiguousarray(values.astype(taken.dtype, copy=False))


def _from_output(values: Any, value_range: float, *, channels_last: bool) -> Tensor:
    if not isinstance(values, np.ndarray) or values.ndim != 4:
        raise ConfigError("its first output is no picture (N, 3, H, W)")
    levels = 255.0 if values.dtype == np.uint8 else value_range
    values = values.transpose(0, 3, 1, 2) if channels_last else values
    answer = torch.from_numpy(np.ascontiguousarray(values.astype(np.float32, copy=False)))
    # A range that is tried and wrong must not be refused as an image of the range 0..255.
    return answer if levels == 1 else answer / levels
