"""Python functions as networks: found by name, called one at a time, their results read."""

import importlib
import importlib.util
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from musigma.images.conversion import as_batch
from musigma.networks.black_box import Function
from musigma.prediction.predict import is_out_of_memory
from musigma.types import ConfigError, first_line


def find_function(text: str) -> Callable[[Tensor], Any] | None:
    """Return the function that a text names, or `None` where the text has not this form.

    Args:
        text: Such as ``package.module:function`` or ``folder/file.py:function``.

    Example:
        >>> find_function("torch.nn.functional:relu") is not None, find_function("net.onnx")
        (True, None)
    """
    home, colon, name = text.rpartition(":")
    if not colon or not name.isidentifier():
        return None
    module = _module_of_file(Path(home)) if home.endswith(".py") else _module_called(home)
    function = getattr(module, name, None)
    if not callable(function):
        raise ConfigError(f"{home} has no function {name!r}")
    return function


def function_of(function: Callable[[Tensor], Any], name: str) -> Function:
    """Return a function whose results are tensors, and whose errors are one line.

    It is called by one thread at a time, since nobody knows whether it allows more.

    Args:
        function: Takes a tensor ``(1, 3, H, W)``; returns any form of an image.
        name: What errors call it.
    """
    turn = threading.Lock()

    def ask(image: Tensor) -> Tensor:
        try:
            with turn, torch.no_grad():
                return as_batch(function(image.clone()))
        except Exception as error:  # it may raise anything
            if is_out_of_memory(error):
                raise
            height, width = image.shape[-2:]
            raise ConfigError(
                f"{name} failed on a picture of {width} x {height} pixels: "
                f"{type(error).__name__}: {first_line(error)}"
            ) from error

    return ask


def _module_called(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:  # the module may raise anything
        raise ConfigError(
            f"the module {name!r} could not be imported: {type(error).__name__}: "
            f"{first_line(error)}; it must be installed, or be given as file.py:function"
        ) from error


def _module_of_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"there is no file {str(path)!r}")
    spec = importlib.util.spec_from_file_location(path.stem, path.absolute())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the file may raise anything
        raise ConfigError(
            f"{path.name} could not be run: {type(error).__name__}: {first_line(error)}"
        ) from error
    return module
