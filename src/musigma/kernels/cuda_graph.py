"""CUDA graphs: work that is captured once and launched again at no cost."""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

WARM_UP_RUNS = 3
"""Runs before a capture: cuDNN tries its algorithms, and Triton compiles its kernels."""

MAX_GRAPHS = 16
"""Input shapes that are captured: the tiles of one image have nine at most."""

Result = TypeVar("Result")


def capture(
    function: Callable[[], Result], *, pool: Any = None
) -> tuple[torch.cuda.CUDAGraph, Result]:
    """Run a function a few times, then capture it; return the graph and the captured result.

    Args:
        function: Reads and writes the same tensors whenever it runs.
        pool: Memory of an earlier graph that this one shares.
    """
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP_RUNS):
            function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        result = function()
    return graph, result


class _Captured(NamedTuple):
    graph: torch.cuda.CUDAGraph
    values: Tensor
    result: Any


class GraphsByShape(Generic[Result]):
    """Captures a function of one tensor for each shape that comes a second time.

    What `run` returns holds until the next run. Threads must take turns.
    """

    def __init__(self) -> None:
        self.captured: dict[torch.Size, _Captured] = {}
        self.shapes_before: set[torch.Size] = set()

    def run(self, function: Callable[..., Result], values: Tensor) -> Result:
        """Return ``function(values)``, from a graph if the shape has one.

        Args:
            function: What to compute. It is captured with ``benchmark=True``, so that cuDNN
                chooses its algorithms by measuring them.
            values: The input, on a GPU.
        """
        shape = values.shape
        if shape not in self.captured:
            if shape not in self.shapes_before or len(self.captured) == MAX_GRAPHS:
                self.shapes_before.add(shape)
                return function(values)
            self.captured[shape] = self._capture(function, values)
        graph, captured_values, result = self.captured[shape]
        captured_values.copy_(values)
        graph.replay()
        return result

    def _capture(self, function: Callable[..., Result], values: Tensor) -> _Captured:
        with torch.cuda.device(values.device):
            own_values = values.clone()
            # All graphs share one memory: no result is looked at after the next run.
            pool = next((earlier.graph.pool() for earlier in self.captured.values()), None)
            graph, result = capture(lambda: function(own_values, benchmark=True), pool=pool)
            return _Captured(graph, own_values, result)
