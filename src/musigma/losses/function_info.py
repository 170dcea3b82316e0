"""What the signature of a per-pixel function says: the images it takes and its settings."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from torch import Tensor

from musigma.types import ConfigError, nearest, short_repr

Setting = bool | int | float | str

IMAGES = ("mean", "target", "sigma", "teacher_mean", "teacher_sigma")
"""What a function may be given, by the names of its parameters."""

_TYPES: Mapping[object, str] = {bool: "true or false", int: "a whole number", float: "a number"}


@dataclass(frozen=True)
class FunctionInfo:
    """The parameters of a per-pixel function.

    Attributes:
        name: Its name, which recipes use.
        images: Which of `IMAGES` it takes, in its order.
        settings: Its settings, by name.
        is_random: Whether it takes a ``generator``.
        takes_threshold: Whether it takes the ``threshold`` of a mask.
    """

    name: str
    images: tuple[str, ...]
    settings: Mapping[str, inspect.Parameter]
    is_random: bool
    takes_threshold: bool

    def read(self, key: str, text: str) -> Setting:
        """Return the value that a text gives a setting."""
        annotation = self._annotation(key)
        try:
            if annotation is bool:
                return {"true": True, "false": False}[text.lower()]
            if annotation is int:
                return int(text)
            if annotation is float:
                return float(text)
        except (KeyError, ValueError):
            expected = _TYPES[annotation]
            raise ConfigError(f"{self.name}: {key} is {expected}, not {short_repr(text)}") from None
        return text

    def check(self, settings: Mapping[str, Any]) -> dict[str, Setting]:
        """Return the settings with numbers in their own type; refuse a wrong or a missing one."""
        checked = {key: self._check(key, value) for key, value in settings.items()}
        for key, parameter in self.settings.items():
            if parameter.default is parameter.empty and key not in settings:
                raise ConfigError(f"{self.name} needs {key}: {self.name}({key}=...)")
        return checked

    def changed(self, settings: Mapping[str, Setting]) -> dict[str, Setting]:
        """Return the settings that differ from their defaults, in the function's order."""
        return {
            key: settings[key]
            for key, parameter in self.settings.items()
            if key in settings and settings[key] != parameter.default
        }

    def _annotation(self, key: str) -> object:
        if key not in self.settings:
            hint = nearest(key, list(self.settings)) if self.settings else "it takes none"
            raise ConfigError(f"{self.name} has no setting called {short_repr(key)}; {hint}")
        return self.settings[key].annotation

    def _check(self, key: str, value: Any) -> Setting:
        annotation = self._annotation(key)
        if annotation not in _TYPES:
            if value not in get_args(annotation):
                hint = nearest(str(value), get_args(annotation))
                raise ConfigError(f"{self.name}: {key} cannot be {short_repr(value)}; {hint}")
            return str(value)
        if annotation is float and type(value) is int:
            value = _as_float(value)
        if type(value) is not annotation:
            raise ConfigError(
                f"{self.name}: {key} is {_TYPES[annotation]}, not {short_repr(value)}"
            )
        if isinstance(value, float) and math.isnan(value):
            raise ConfigError(f"{self.name}: {key} is a number, not nan")
        return value


def _as_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def function_info(function: Callable[..., Tensor]) -> FunctionInfo:
    """Read the signature of a per-pixel function, and refuse one that no recipe could use."""
    name = function.__name__
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    settings = {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY}
    images = tuple(p.name for p in parameters if p.name not in settings)
    is_random = settings.pop("generator", None) is not None
    takes_threshold = settings.pop("threshold", None) is not None
    for image in images:
        if image not in IMAGES:
            raise ConfigError(f"{name} cannot be given {image!r}; {nearest(image, IMAGES)}")
    for key, parameter in settings.items():
        if parameter.annotation not in _TYPES and get_origin(parameter.annotation) is not Literal:
            raise ConfigError(f"{name}: annotate {key} as bool, int, float or Literal")
    return FunctionInfo(name, images, settings, is_random, takes_threshold)
