"""Networks of other people: an ONNX file, a TorchScript file, a Python function, spandrel."""

from musigma.prediction.foreign.network import (
    RANGES,
    TYPES_WITH_RANGE,
    ForeignNetwork,
    NetworkLike,
    open_network,
)

__all__ = ["RANGES", "TYPES_WITH_RANGE", "ForeignNetwork", "NetworkLike", "open_network"]
