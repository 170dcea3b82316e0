"""Engines that are made once and kept, for callers that name an engine with every image."""

import threading
from collections.abc import Callable
from itertools import chain
from typing import Any

from torch import Tensor

from musigma.networks import Network
from musigma.prediction.engines.base import Engine, device_of


class EngineCache:
    """Keeps one engine for each name, until the network moves to a device or its weights change.

    Several threads may use one cache; an engine is made by one of them while the others wait.
    Copies of a cache, and those that are sent to other processes, are empty.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._engines: dict[str, tuple[Any, Engine]] = {}

    def __reduce__(self) -> tuple[type["EngineCache"], tuple[()]]:
        return EngineCache, ()

    def get(self, name: str, network: Network, make: Callable[[], Engine]) -> Engine:
        """Return the engine of a name, made anew where there is none for the network as it is.

        Args:
            name: Of the engine.
            network: What the engine runs.
            make: Makes the engine.
        """
        state = _state_of(network)
        with self._lock:
            made_for, engine = self._engines.get(name, (None, None))
            if engine is None or made_for != state:
                engine = make()
                self._engines[name] = (state, engine)
            return engine


def _state_of(network: Network) -> tuple[Any, ...]:
    """Return what tells that a network has moved or learned; values are not compared."""
    tensors = chain(network.parameters(), network.buffers())
    return device_of(network), network.training, [(t.data_ptr(), _version(t)) for t in tensors]


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version
