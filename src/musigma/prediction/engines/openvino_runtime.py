"""OpenVINO as an engine: float32 on the CPU, often faster than PyTorch there."""

from collections import deque
from typing import Any

import torch
from torch import Tensor

from musigma.prediction.engines.onnx_file import require
from musigma.prediction.engines.onnx_runtime import CPU, PREDICTED, to_array, to_prediction
from musigma.types import Prediction


class OpenVinoEngine:
    """Runs the bytes of an ONNX file with OpenVINO, in float32 even where bfloat16 is faster.

    Several threads may use one engine. An infer request of OpenVINO holds the input and the output
    of one run, so two threads must never share one: each call takes a request of its own and puts
    it back for later calls.
    """

    name, device, batches = "openvino", CPU, False

    def __init__(self, content: bytes) -> None:
        require("openvino", extra="openvino")
        import openvino

        core = openvino.Core()
        settings = {
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        }
        self._compiled = core.compile_model(core.read_model(content), "CPU", settings)
        ports = self._compiled.outputs
        self._outputs = [port for port in ports if port.get_names() & set(PREDICTED)]
        self._idle: deque[Any] = deque()  # requests that no call uses now

    def __call__(self, tiles: Tensor) -> Prediction:
        """Restore tiles."""
        try:
            request = self._idle.pop()
        except IndexError:
            request = self._compiled.create_infer_request()
        # The outputs are copied, since the request will be used again.
        outputs = request.infer([to_array(tiles)], share_outputs=False)
        values = [outputs[port] for port in self._outputs]
        self._idle.append(request)
        return to_prediction(values)
