"""Choices for programs in which a person waits for the result: the app, napari, ComfyUI."""

from importlib.util import find_spec

from musigma.model import Model
from musigma.networks.weights_file import shipped_weights
from musigma.prediction.engines import Engine

DEFAULT_WEIGHTS = "photo"
TILE = 512
"""Largest side of a tile: one takes some seconds, which is how often progress is seen."""


def weights_for(scale: int) -> list[str]:
    """Return the names of the shipped weights of a scale, those for photographs first.

    Example:
        >>> weights_for(2)[0]
        'photo'
    """
    names = [name for name, scales in shipped_weights().items() if scale in scales]
    return sorted(names, key=lambda name: (name != DEFAULT_WEIGHTS, name))


def default_engine() -> str:
    """Return the fastest engine that computes in float32, as the calibrations ask for."""
    needed = ("onnx", "onnxscript", "openvino")
    return "openvino" if all(find_spec(name) is not None for name in needed) else "torch"


def quick_engine(model: Model) -> Engine:
    """Return what runs a model in float32: `default_engine` for shipped networks on a CPU."""
    is_shipped = model.name in shipped_weights() and model.onnx is None
    return model.engine(default_engine() if is_shipped and model.device.type == "cpu" else None)
