"""TorchScript files, and weights files that the package spandrel knows, as functions."""

import warnings
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from musigma.networks.black_box import Function
from musigma.networks.stored_tensors import read_stored_tensors, refuse_onnx
from musigma.prediction.foreign.python_function import function_of
from musigma.types import ConfigError, WeightsError, first_line

WEIGHTS_SUFFIXES = (".pth", ".pt", ".ckpt", ".safetensors")


def is_torchscript(path: Path) -> bool:
    """Return whether a file is a TorchScript archive: it has code inside."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any("/code/" in name for name in archive.namelist())


def open_torchscript(path: Path) -> Callable[[float], Function]:
    """Return what makes the function of a TorchScript file, which is a program, from its range."""
    load: Any = torch.jit.load
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of `torch.jit` as a whole
            module = load(str(path), map_location="cpu").eval()
    except Exception as error:  # a damaged file may raise anything
        raise WeightsError(f"PyTorch cannot open {path.name}: {first_line(error)}") from error
    return lambda value_range: function_of(_ranged(module, value_range), path.name)


def open_spandrel(path: Path) -> Callable[[float], Function]:
    """Return what makes the function of a weights file by the package spandrel.

    The file is read as all weights files are, without running code; spandrel only gets the tensors.
    """
    refuse_onnx(path)
    if path.suffix.lower() not in WEIGHTS_SUFFIXES:
        raise ConfigError(
            f"{path.name} is no network that can be wrapped; give an ONNX file, a TorchScript "
            "file, or a Python function as file.py:function"
        )
    if find_spec("spandrel") is None:
        raise ConfigError(
            f"to wrap the weights in {path.name}, the package spandrel must build their network; "
            "install it, or export the network to ONNX. Networks that musigma knows are better "
            "trained with keep_mean"
        )
    import spandrel

    try:
        loaded = spandrel.ModelLoader().load_from_state_dict(read_stored_tensors(path).tensors)
    except WeightsError:
        raise
    except Exception as error:  # spandrel may raise anything
        text = f"{type(error).__name__}: {first_line(error)}"
        raise WeightsError(f"spandrel cannot build the network of {path.name} ({text})") from error
    loaded.eval()
    return lambda _: function_of(loaded, path.name)


def _ranged(module: Callable[[Tensor], Any], value_range: float) -> Callable[[Tensor], Tensor]:
    def run(image: Tensor) -> Tensor:
        answer = module(image if value_range == 1 else image * value_range)
        answer = answer[0] if isinstance(answer, tuple | list) else answer
        return answer if value_range == 1 else answer / value_range

    return run
