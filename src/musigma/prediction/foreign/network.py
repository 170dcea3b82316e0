"""Open a network of somebody else, and find out by a test picture what it does.

What a network is called decides how it is opened:

======================================  ==========================================================
name                                    what it is
======================================  ==========================================================
``net.onnx``                            an ONNX file, which cannot run code: the safe way
``package.module:function``             a Python function
``file.py:function``                    the same, from a file
``net.pt``, ``net.torchscript``         a TorchScript file, which is a program: only if trusted
``net.pth``, ``net.safetensors``        a weights file that the package spandrel knows
======================================  ==========================================================
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from musigma.networks.bicubic_layer import enlarge
from musigma.networks.black_box import ANSWER_SIDE, Function
from musigma.prediction.foreign.python_function import find_function, function_of
from musigma.prediction.foreign.weights import is_torchscript, open_spandrel, open_torchscript
from musigma.types import ConfigError, WeightsError, short_repr

NetworkLike: TypeAlias = str | Path | Callable[[Tensor], Any]
MakeFunction = Callable[[float], Function]
"""Makes the function of a network from the range of values that its layers work in."""

RANGES = (1.0, 255.0)
"""Ranges of values that networks work in, in the order in which they are tried."""

TYPES_WITH_RANGE = ("onnx", "torchscript")
"""Networks that do not tell their range."""

TEST_SIZE = (64, 48)
"""Height and width of the test picture; window networks like multiples of 16."""

MAX_DIFFERENCE = 0.1
"""Largest mean difference between an answer to the test picture and bicubic enlarging."""

ANSWER_TOLERANCE = 2 / 255
"""By how much an answer may change between machines and versions of other programs."""


@dataclass(frozen=True, kw_only=True)
class ForeignNetwork:
    """A network of somebody else that can be asked.

    Attributes:
        function: What is asked.
        scale: Zoom factor.
        origin: What a weights file says of it: ``name``, ``type``, ``value_range`` and, for files,
            ``digest``, the SHA-256 of the file.
        answer: The middle of its answer to the test picture, ``(3, 32, 32)``.
    """

    function: Function
    scale: int
    origin: Mapping[str, Any]
    answer: Tensor

    def check_is(self, origin: object, answer: Tensor, file_name: str) -> None:
        """Refuse this network where the error bars of a file belong to another one.

        Args:
            origin: What the file says of the network that it belongs to.
            answer: What that network answered to the test picture.
            file_name: Name of the file.
        """
        wrapped = origin if isinstance(origin, Mapping) else {}
        text = f"{file_name} does not belong to {self.origin['name']}"
        if "digest" in wrapped or "digest" in self.origin:
            if wrapped.get("digest") != self.origin.get("digest"):
                raise WeightsError(
                    f"{text}: it holds the error bars of {wrapped.get('name')!r}, a file of other "
                    "content; give that file, or wrap this network anew"
                )
            return
        difference = float((answer.float() - self.answer).abs().max())
        if not difference <= ANSWER_TOLERANCE:
            raise WeightsError(
                f"{text}: the network of these error bars, {wrapped.get('name')!r}, answered a "
                f"test picture otherwise (by up to {difference:.3f}); wrap this network anew"
            )


def open_network(
    network: NetworkLike,
    *,
    scale: int | None = None,
    value_range: float | None = None,
    trust: bool = False,
) -> ForeignNetwork:
    """Open a network of somebody else and ask it about a test picture.

    Args:
        network: A file or a function, named as in the table of this module; or a Python function.
            A function takes a tensor ``(1, 3, H, W)`` in ``[0, 1]`` and returns the enlarged
            picture as a tensor, as an array ``(H, W, 3)`` or as a PIL image.
        scale: Zoom factor that is expected; by default the test picture tells it.
        value_range: Range that the network works in, 1 or 255, for ONNX and TorchScript files; by
            default 1, or 255 where the answer to the test picture is wrong with 1.
        trust: Whether a TorchScript file, which is a program, may be run.

    Example:
        >>> def double(image):
        ...     return image.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
        >>> opened = open_network(double)
        >>> opened.scale, opened.origin["name"]
        (2, 'double')
    """
    make, origin = _open(network, trust=trust)
    ranges = RANGES if value_range is None else (value_range,)
    if origin["type"] not in TYPES_WITH_RANGE:
        ranges = (1.0,)
    chosen, answer = _first_that_fits(make, ranges, str(origin["name"]))
    own_scale = answer.shape[-1] // TEST_SIZE[1]
    if scale not in (None, own_scale):
        raise ConfigError(f"{origin['name']} enlarges by {own_scale}, not by {scale}")
    return ForeignNetwork(
        function=make(chosen),
        scale=own_scale,
        origin={**origin, "value_range": chosen},
        answer=_middle(answer),
    )


def _open(network: NetworkLike, *, trust: bool) -> tuple[MakeFunction, dict[str, Any]]:
    if not isinstance(network, str | Path):
        name = getattr(network, "__name__", type(network).__name__)
        return lambda _: function_of(network, name), {"type": "function", "name": name}
    text, path = str(network), Path(network)
    if path.is_file():
        return _open_file(path, trust=trust)
    if (function := find_function(text)) is not None:
        return lambda _: function_of(function, text), {"type": "function", "name": text}
    raise ConfigError(
        f"there is no file {short_repr(text, 300)}; give an ONNX file, a TorchScript file, or a "
        "Python function as package.module:function or file.py:function"
    )


def _open_file(path: Path, *, trust: bool) -> tuple[MakeFunction, dict[str, Any]]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    origin = {"name": path.name, "digest": digest}
    if path.suffix == ".onnx":
        from musigma.prediction.foreign.onnx_function import open_onnx

        return open_onnx(path), origin | {"type": "onnx"}
    if path.suffix == ".py":
        raise ConfigError(f"{path.name} is a Python file; name its function: {path.name}:FUNCTION")
    if is_torchscript(path):
        if not trust:
            raise ConfigError(
                f"{path.name} is a TorchScript file, which is a program that could do anything; "
                "export the network to ONNX, or allow it by `trust_network` if you trust its author"
            )
        return open_torchscript(path), origin | {"type": "torchscript"}
    return open_spandrel(path), origin | {"type": "spandrel"}


def _first_that_fits(
    make: MakeFunction, ranges: tuple[float, ...], name: str
) -> tuple[float, Tensor]:
    """Return the first range by which the answer to the test picture looks like that picture."""
    errors: list[ConfigError] = []
    for value_range in ranges:
        try:
            answer = _answer(make(value_range), name)
        except ConfigError as error:
            errors.append(error)
        else:
            return value_range, answer
    raise errors[0]


def _answer(function: Function, name: str) -> Tensor:
    """Return the answer to the test picture, or say why it cannot be one."""
    picture = make_test_picture()
    answer = function(picture)
    (height, width), shape = TEST_SIZE, tuple(answer.shape)
    scale = shape[-1] // width
    if scale < 1 or shape != (1, 3, height * scale, width * scale):
        raise ConfigError(
            f"{name} answers a picture of {width} x {height} pixels by the shape {shape}; expected "
            "(1, 3, SCALE * height, SCALE * width) with a whole scale"
        )
    difference = float((answer - enlarge(picture, scale)).abs().mean())
    if not difference <= MAX_DIFFERENCE:  # also true of NaN
        raise ConfigError(
            f"the answer of {name} to a test picture does not look like that picture (mean "
            f"difference {difference:.2g}); the network must take and return RGB, and its values "
            "must end at 1 or at 255"
        )
    return answer


def _middle(answer: Tensor) -> Tensor:
    top, left = ((side - ANSWER_SIDE) // 2 for side in answer.shape[-2:])
    # Half precision, as weights files may store it.
    return answer[0, :, top : top + ANSWER_SIDE, left : left + ANSWER_SIDE].half().float().clone()


def make_test_picture() -> Tensor:
    """Return the test picture: waves of several lengths in three colors, and an edge.

    Example:
        >>> make_test_picture().shape
        torch.Size([1, 3, 64, 48])
    """
    rows, columns = (torch.arange(side, dtype=torch.float64) for side in TEST_SIZE)
    waves = [
        torch.sin(rows[:, None] / (3 + color) + color) * torch.cos(columns / (5 - color))
        for color in range(3)
    ]
    picture = 0.5 + 0.25 * torch.stack(waves)
    picture[:, 20:, 30:] -= 0.2
    return picture[None].float()
