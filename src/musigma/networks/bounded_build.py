"""Networks that a file describes, built without values first, and with a limit on their size.

A file of a few bytes can ask for a network of any size. So its settings are bounded, and the
network is built on the meta device, where weights take no memory, before anything is allocated.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from musigma.networks.base import Network
from musigma.types import ConfigError, MusigmaError, first_line, short_repr, shortened

MAX_SETTING = 4096
"""Largest whole number that a setting may be; the widest known network has 256 channels."""

MAX_VALUES = 2**28
"""Most values of a weights file; the largest known network has 116 million."""

MAX_TENSORS = 20_000
"""Most tensors of a weights file; the largest known network has some 2,000."""

MAX_TABLES = 2**22
"""Most values that follow from settings alone and are in no file; known networks have 98,307."""

_MAX_REAL = 1e6
_MAX_ITEMS = 64
_CALLS_PER_TENSOR, _MORE_CALLS = 20, 6000
"""Calls of PyTorch that building a network may take; known networks need up to 14 for each tensor,
and a bank of 25 networks in one tensor each 4,178 in all."""


class _Budget(TorchFunctionMode):
    """Ends what runs inside it after a number of calls of PyTorch's functions."""

    def __init__(self, num_calls: int) -> None:
        super().__init__()
        self.num_left = num_calls

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.num_left -= 1
        if self.num_left < 0:
            raise ConfigError("the settings ask for far more layers than there are weights")
        return func(*args, **(kwargs or {}))


def build_without_values(make: Callable[[], Network], *, num_tensors: int = 1000) -> Network:
    """Build a network on the meta device, where its weights take no memory.

    Args:
        make: Builds the network.
        num_tensors: About how many weights it should have. A network that needs far more is
            refused as soon as that is clear.

    Raises:
        ConfigError: If the network cannot be built.

    Example:
        >>> from musigma.networks import create
        >>> network = build_without_values(lambda: create("edsr-baseline", scale=2))
        >>> next(network.parameters()).device
        device(type='meta')
    """
    with_gradients = torch.is_grad_enabled()
    try:
        with torch.device("meta"), _Budget(_CALLS_PER_TENSOR * num_tensors + _MORE_CALLS):
            network = make()
        _check_tables(network)
        return network
    except MusigmaError:
        raise
    except Exception as error:  # a constructor may meet anything
        raise ConfigError(first_line(error)) from error
    finally:
        # A spent budget also stops `torch.no_grad` from restoring the mode at its end.
        torch.set_grad_enabled(with_gradients)


def _check_tables(network: Network) -> None:
    """Refuse tables that are far too large, which a file of a few bytes can ask for."""
    num_values = sum(buffer.numel() for buffer in network.buffers())
    if num_values > MAX_TABLES:
        raise ConfigError(
            f"the settings ask for tables of {num_values:,} values; at most {MAX_TABLES:,} are made"
        )


def check_settings(settings: object) -> None:
    """Refuse settings that no network has: of another type, or beyond `MAX_SETTING`.

    Example:
        >>> check_settings({"width": 64, "widths": [64, 128], "bias": True})
        >>> check_settings({"num_blocks": 3_000_000})
        Traceback (most recent call last):
        musigma.types.ConfigError: num_blocks must lie in 0..4096, got 3000000
    """
    if not isinstance(settings, Mapping) or len(settings) > _MAX_ITEMS:
        raise ConfigError(f"settings must be a small table, got {short_repr(settings)}")
    for key, value in settings.items():
        if not isinstance(key, str):
            raise ConfigError(f"the name of a setting must be a text, got {short_repr(key)}")
        items = value if isinstance(value, list | tuple) else [value]
        if len(items) > _MAX_ITEMS:
            raise ConfigError(f"{shortened(key)} must have at most {_MAX_ITEMS} values")
        for item in items:
            _check_item(shortened(key), item)


def check_size(name: str, value: object, low: int) -> None:
    """Refuse what is no whole number from `low` to `MAX_SETTING`."""
    if type(value) is not int or not low <= value <= MAX_SETTING:
        expected = f"a whole number from {low} to {MAX_SETTING}"
        raise ConfigError(f"{name} must be {expected}, got {short_repr(value)}")


def _check_item(key: str, value: object) -> None:
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, int):
        if not 0 <= value <= MAX_SETTING:
            raise ConfigError(f"{key} must lie in 0..{MAX_SETTING}, got {short_repr(value)}")
    elif isinstance(value, float):
        if not math.isfinite(value) or abs(value) > _MAX_REAL:
            raise ConfigError(f"{key} must be finite and below {_MAX_REAL:g}, got {value}")
    elif not isinstance(value, str) or len(value) > _MAX_ITEMS:
        raise ConfigError(f"{key} must be a number, a word, or a list of them")
