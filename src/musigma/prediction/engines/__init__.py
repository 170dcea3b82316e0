"""Ways to run a network: one small contract, chosen by name or by measuring them."""

from musigma.prediction.engines.base import Engine
from musigma.prediction.engines.choice import ENGINES, choose_engine, make_engine
from musigma.prediction.engines.onnx_file import export_onnx, read_metadata
from musigma.prediction.engines.runtimes import load_onnx
from musigma.prediction.engines.torch_engine import TorchEngine

__all__ = [
    "ENGINES",
    "Engine",
    "TorchEngine",
    "choose_engine",
    "export_onnx",
    "load_onnx",
    "make_engine",
    "read_metadata",
]
