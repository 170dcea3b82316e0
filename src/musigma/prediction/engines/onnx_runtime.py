"""ONNX Runtime as an engine: float32 on the CPU, often faster than PyTorch there."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from musigma.prediction.engines.onnx_file import require
from musigma.types import Prediction, WeightsError, first_line, short_repr

CPU = torch.device("cpu")
_FATAL = 4

PREDICTED = Prediction._fields
"""Outputs of a graph that make a prediction; a file may have others."""


class OnnxEngine:
    """Runs the bytes of an ONNX file with ONNX Runtime.

    Several threads may use one engine: ONNX Runtime keeps nothing between two runs of a session.
    """

    name, device, batches = "onnx", CPU, False

    def __init__(self, content: bytes) -> None:
        require("onnxruntime", extra="export")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = _FATAL  # what is wrong is said by the error
        try:
            self._session = onnxruntime.InferenceSession(
                content, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # ONNX Runtime has errors of many types
            reason = first_line(error)
            raise WeightsError(
                f"ONNX Runtime cannot open the file of the model: {reason}"
            ) from error
        inputs = [each.name for each in self._session.get_inputs()]
        outputs = [output.name for output in self._session.get_outputs()]
        self._outputs = [name for name in outputs if name in PREDICTED]
        if len(inputs) != 1 or "mean" not in self._outputs:
            raise WeightsError(
                f"an ONNX file of 'musigma export' has one input and the output mean, got "
                f"{short_repr(inputs)} and {short_repr(outputs)}"
            )
        self._input = inputs[0]

    def __call__(self, tiles: Tensor) -> Prediction:
        """Restore tiles."""
        return to_prediction(self._session.run(self._outputs, {self._input: to_array(tiles)}))


def to_array(tiles: Tensor) -> NDArray[np.float32]:
    """Return tiles as the contiguous array that the runtimes take."""
    return np.ascontiguousarray(tiles.cpu().numpy())


def to_prediction(values: list[NDArray[np.float32]]) -> Prediction:
    """Return the outputs of a graph, mean and perhaps sigma, as a prediction."""
    return Prediction(*(torch.from_numpy(value) for value in values))
