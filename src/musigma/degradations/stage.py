"""What every stage of a chain is: a name, parameters that may be drawn, and an operation."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from musigma.degradations.base import Degradation
from musigma.degradations.values import Amount, Value, as_value, numbers_of
from musigma.types import ConfigError

STDS_IN_RADIUS = 3
"""Radius of a Gaussian kernel, in standard deviations; of those that may be drawn, the largest."""


class Parameter(NamedTuple):
    """What a stage can be told.

    Attributes:
        name: As in the text form.
        low: The least it may be.
        high: The most it may be.
        default: What it is where it is left out; ``None`` where a stage does without.
        required: Whether it must be given.
        allowed: The only numbers it may be, if not all between the limits.
    """

    name: str
    low: float
    high: float
    default: float | None = None
    required: bool = False
    allowed: tuple[float, ...] = ()


class Stage(Degradation):
    """A degradation with a name and parameters.

    A subclass writes `apply`.

    Attributes:
        name: As in the text form.
        parameters: What it can be told, in order.
        values: What it was told, and the defaults.
    """

    name: ClassVar[str]
    parameters: ClassVar[tuple[Parameter, ...]] = ()

    def __init__(self, **amounts: Amount | None) -> None:
        self.values: dict[str, Value] = {}
        for parameter in self.parameters:
            amount = amounts[parameter.name]
            if amount is not None:
                self.values[parameter.name] = _checked(self.name, parameter, as_value(amount))
        self.num_draws = sum(value.num_draws for value in self.values.values())

    def drawn(self, draws: Tensor) -> dict[str, Tensor]:
        """Return each parameter that is set, ``(N,)``."""
        result, first = {}, 0
        for name, value in self.values.items():
            result[name] = value.draw(draws[:, first : first + value.num_draws])
            first += value.num_draws
        return result

    def __call__(
        self, target: Tensor, draws: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Do it to each image with the parameters that were drawn for it."""
        return self.apply(target, self.drawn(draws), generator)

    @abstractmethod
    def apply(
        self, target: Tensor, drawn: Mapping[str, Tensor], generator: torch.Generator | None
    ) -> Tensor:
        """Return the inputs of targets.

        Args:
            target: ``(N, C, H, W)``.
            drawn: Each parameter that is set, ``(N,)``.
            generator: Draws the noise, and nothing else.
        """

    def __str__(self) -> str:
        """As in the text form: the first parameter, then those that are not as by default."""
        told = [
            str(value) if parameter.required else f"{parameter.name}={value}"
            for parameter in self.parameters
            if (value := self.values.get(parameter.name)) is not None
            and value != _default_value(parameter)
        ]
        return f"{self.name}({', '.join(told)})" if told else self.name


def _checked(stage: str, parameter: Parameter, value: Value) -> Value:
    if parameter.allowed:
        numbers = numbers_of(value)
        if not numbers or not {*numbers} <= {*parameter.allowed}:
            allowed = " or ".join(f"{number:g}" for number in parameter.allowed)
            raise ConfigError(f"{stage}: {parameter.name} is {allowed}, not {value}")
    if value.low < parameter.low or value.high > parameter.high:
        limits = f"between {parameter.low:g} and {parameter.high:g}"
        raise ConfigError(f"{stage}: {parameter.name} lies {limits}, not at {value}")
    return value


def _default_value(parameter: Parameter) -> Value | None:
    return None if parameter.default is None else as_value(parameter.default)


def as_bool(value: Value, drawn: Tensor, yes: float) -> bool | Tensor:
    """Return whether the drawn numbers are `yes`: one answer, or one per image."""
    # Where it is the same for all images, half of the work need not be done.
    return value.low == yes if value.low == value.high else drawn == yes
