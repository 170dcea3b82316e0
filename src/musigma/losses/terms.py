"""The terms of an objective: the list of functions it may name, and one of them put to use."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar, get_args, get_origin

from torch import Generator, Tensor

from musigma.functional import objectives
from musigma.types import ConfigError, nearest

Setting = bool | int | float | str
Function = TypeVar("Function", bound=Callable[..., Tensor])

PICTURES = ("mean", "target", "sigma", "teacher_mean", "teacher_sigma")
"""What a function may be given, by the names of its parameters."""

_KINDS: dict[object, str] = {bool: "true or false", int: "a whole number", float: "a number"}

_MISSING = {
    "sigma": "a sigma and the prediction has none; with_sigma(network) gives the network a branch",
    "teacher_sigma": "the teacher's sigma and the teacher predicts none",
}


@dataclass(frozen=True)
class Entry:
    """A function on the list and what its signature says of it."""

    name: str
    function: Callable[..., Tensor]
    pictures: tuple[str, ...]
    settings: Mapping[str, inspect.Parameter]
    is_random: bool

    def read(self, key: str, text: str) -> Setting:
        """Turn the text of a setting into its value."""
        kind = self._parameter(key).annotation
        try:
            if kind is bool:
                return {"true": True, "false": False}[text.lower()]
            if kind in (int, float):
                return kind(text)
        except (KeyError, ValueError):
            expected = _KINDS[kind]
            raise ConfigError(f"{self.name}: {key} is {expected}, not {text!r}") from None
        if text not in get_args(kind):
            hint = nearest(text, get_args(kind))
            raise ConfigError(f"{self.name}: {key} cannot be {text!r}; {hint}")
        return text

    def _parameter(self, key: str) -> inspect.Parameter:
        if key not in self.settings:
            hint = nearest(key, list(self.settings)) if self.settings else "it takes none"
            raise ConfigError(f"{self.name} has no setting called {key!r}; {hint}")
        return self.settings[key]


_ENTRIES: dict[str, Entry] = {}


def register(function: Function) -> Function:
    """Let objectives name a per-pixel function; also a decorator for one's own.

    Its parameters before the ``*`` choose among `PICTURES` what it is given. Those behind it are
    its settings, annotated as bool, int, float or a ``Literal`` of strings; a ``generator`` among
    them says that it is random.
    """
    name = function.__name__
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    keyword_only = {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY}
    pictures = tuple(p.name for p in parameters if p.name not in keyword_only)
    is_random = keyword_only.pop("generator", None) is not None
    if name in _ENTRIES:
        raise ConfigError(f"there is an objective called {name!r} already; choose another name")
    for picture in pictures:
        if picture not in PICTURES:
            hint = nearest(picture, PICTURES)
            raise ConfigError(f"{name} cannot be given {picture!r}; {hint}")
    for key, parameter in keyword_only.items():
        if parameter.annotation not in _KINDS and get_origin(parameter.annotation) is not Literal:
            raise ConfigError(f"{name}: annotate {key} as bool, int, float or Literal")
    _ENTRIES[name] = Entry(name, function, pictures, keyword_only, is_random)
    return function


for _function in (
    objectives.l1,
    objectives.l2,
    objectives.charbonnier,
    objectives.expected_l1,
    objectives.expected_l1_closed_form,
    objectives.learned_sigma,
    objectives.fixed_sigma,
    objectives.sigma_l1,
    objectives.sigma_l2,
    objectives.sigma_quantile,
    objectives.laplace_nll,
    objectives.gaussian_nll,
    objectives.beta_nll,
    objectives.edge,
    objectives.distillation,
    objectives.udl_step1,
    objectives.udl_step2,
):
    register(_function)


def names() -> list[str]:
    """Return the names an objective may use, in the order of the list."""
    return list(_ENTRIES)


def entry(name: str) -> Entry:
    """Return what is registered under a name."""
    if name not in _ENTRIES:
        raise ConfigError(f"there is no objective called {name!r}; {nearest(name, names())}")
    return _ENTRIES[name]


@dataclass(frozen=True)
class Term:
    """A function with its weight and settings, reduced to its mean over the batch."""

    entry: Entry
    weight: float = 1.0
    settings: Mapping[str, Setting] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a weight that does not count and a setting left open."""
        if not (0 < self.weight < math.inf):
            raise ConfigError(f"the weight of {self.entry.name} is positive, not {self.weight}")
        for key, parameter in self.entry.settings.items():
            if parameter.default is parameter.empty and key not in self.settings:
                raise ConfigError(f"{self.entry.name} needs {key}: {self.entry.name}({key}=...)")

    def __str__(self) -> str:
        """The text that gives this term again; what equals its default is left out."""
        changed = [
            f"{key}={_text(self.settings[key])}"
            for key, parameter in self.entry.settings.items()
            if key in self.settings and self.settings[key] != parameter.default
        ]
        weight = "" if self.weight == 1 else f"{self.weight} * "
        return weight + self.entry.name + (f"({', '.join(changed)})" if changed else "")

    def __call__(
        self, pictures: Mapping[str, Tensor | None], generator: Generator | None
    ) -> Tensor:
        """Return weight times the mean of the function."""
        given: list[Tensor] = []
        for name in self.entry.pictures:
            picture = pictures[name]
            if picture is None:
                raise ConfigError(f"{self.entry.name} needs {_MISSING[name]}")
            given.append(picture)
        random = {"generator": generator} if self.entry.is_random else {}
        return self.weight * self.entry.function(*given, **self.settings, **random).mean()


def _text(value: Setting) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
