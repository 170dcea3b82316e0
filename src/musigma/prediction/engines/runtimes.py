"""Runtimes for CPUs that read ONNX: the arithmetic is float32, their convolutions are faster."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from musigma.networks import Network
from musigma.networks.weights_file import build
from musigma.prediction.engines.onnx_file import INPUT, read_metadata, require
from musigma.types import ConfigError, Prediction, WeightsError

CPU = torch.device("cpu")


class OnnxEngine:
    """Runs the bytes of an ONNX file with ONNX Runtime."""

    name, device, batches = "onnx", CPU, False

    def __init__(self, content: bytes) -> None:
        require("onnxruntime", extra="export")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        self._session = onnxruntime.InferenceSession(
            content, options, providers=["CPUExecutionProvider"]
        )

    def __call__(self, tiles: Tensor) -> Prediction:
        """Restore tiles."""
        return _prediction(self._session.run(None, {INPUT: _array(tiles)}))


class OpenVinoEngine:
    """Runs the bytes of an ONNX file with OpenVINO, in float32 where it would take bfloat16."""

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

    def __call__(self, tiles: Tensor) -> Prediction:
        """Restore tiles."""
        return _prediction(list(self._compiled([_array(tiles)]).values()))


def load_onnx(path: Path) -> tuple[Network, OnnxEngine]:
    """Load a file of `export_onnx`: a network without weights, and the engine that runs it.

    ``predict(network, image, engine=engine)`` restores an image with it.
    """
    metadata = read_metadata(path)
    try:
        with torch.device("meta"):
            network = build(metadata).eval()
    except (ConfigError, KeyError, TypeError) as error:
        raise WeightsError(f"{path.name} describes no network known here: {error}") from error
    return network, OnnxEngine(path.read_bytes())


def _array(tiles: Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(tiles.cpu().numpy())


def _prediction(values: list[NDArray[np.float32]]) -> Prediction:
    return Prediction(*(torch.from_numpy(value) for value in values))
