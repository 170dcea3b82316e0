"""Ways to run a network: one small contract, chosen by name or by measuring them."""

from musigma.inference.engines.base import Engine
from musigma.inference.engines.choice import ENGINES, choose_engine, make_engine
from musigma.inference.engines.onnx_file import export_onnx, read_calibration, read_metadata
from musigma.inference.engines.runtimes import load_onnx
from musigma.inference.engines.torch_engine import TorchEngine

__all__ = [
    "ENGINES",
    "Engine",
    "TorchEngine",
    "choose_engine",
    "export_onnx",
    "load_onnx",
    "make_engine",
    "read_calibration",
    "read_metadata",
]
