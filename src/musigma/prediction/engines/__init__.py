"""Ways to run a network: one small contract, chosen by name or by measuring them."""

from musigma.prediction.engines.base import Engine
from musigma.prediction.engines.cache import EngineCache
from musigma.prediction.engines.fastest import ENGINES, choose_engine, make_engine, make_onnx_engine
from musigma.prediction.engines.onnx_file import export_onnx, read_metadata
from musigma.prediction.engines.onnx_runtime import OnnxEngine
from musigma.prediction.engines.openvino_runtime import OpenVinoEngine
from musigma.prediction.engines.pytorch import TorchEngine

__all__ = [
    "ENGINES",
    "Engine",
    "EngineCache",
    "OnnxEngine",
    "OpenVinoEngine",
    "TorchEngine",
    "choose_engine",
    "export_onnx",
    "make_engine",
    "make_onnx_engine",
    "read_metadata",
]
