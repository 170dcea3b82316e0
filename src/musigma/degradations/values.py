"""Numbers that may be drawn at random: constants, ranges, and choices between numbers."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from musigma.types import ConfigError


@dataclass(frozen=True)
class Range:
    """A number between two limits; a constant where both are the same.

    Attributes:
        low: Lower limit.
        high: Upper limit.
        log: Whether the logarithm is uniform, so that small numbers are as likely as large ones.

    Example:
        >>> value = Range(1, 100, log=True)
        >>> str(value), value.draw(torch.tensor([[0.5]])).round(decimals=3)
        ('1..100:log', tensor([10.]))
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        """Refuse limits that are not in order."""
        if not -math.inf < self.low <= self.high < math.inf:
            raise ConfigError(f"a range goes from a smaller to a larger number, not {self}")
        if self.log and self.low <= 0:
            raise ConfigError(f"a range with :log begins above 0, not {self}")

    @property
    def num_draws(self) -> int:
        """How many random numbers it takes to draw from it."""
        return int(self.low < self.high)

    def draw(self, draws: Tensor) -> Tensor:
        """Return a number per image, ``(N,)``, from ``(N, num_draws)`` uniform in ``[0, 1)``."""
        if self.num_draws == 0:
            return draws.new_full((len(draws),), self.low)
        if not self.log:
            return self.low + (self.high - self.low) * draws[:, 0]
        low, high = math.log(self.low), math.log(self.high)
        return torch.exp(low + (high - low) * draws[:, 0])

    def __str__(self) -> str:
        """As in the text form."""
        if self.num_draws == 0:
            return number_text(self.low)
        limits = f"{number_text(self.low)}..{number_text(self.high)}"
        return limits + ":log" if self.log else limits


@dataclass(frozen=True)
class OneOf:
    """A number from one of several ranges, of which constants are the shortest.

    Attributes:
        options: To choose from.
        weights: How likely each is, relative to the others.

    Example:
        >>> value = OneOf((Range(420, 420), Range(444, 444)), (3, 1))
        >>> str(value), value.draw(torch.tensor([[0.74], [0.76]]))
        ('3*420/444', tensor([420., 444.]))
    """

    options: tuple[Range, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse weights that do not fit."""
        check_weights(self.weights, len(self.options))

    @property
    def low(self) -> float:
        """The least that may be drawn."""
        return min(option.low for option in self.options)

    @property
    def high(self) -> float:
        """The most that may be drawn."""
        return max(option.high for option in self.options)

    @property
    def num_draws(self) -> int:
        """How many random numbers it takes to draw from it: one chooses the range."""
        return 1 + sum(option.num_draws for option in self.options)

    def draw(self, draws: Tensor) -> Tensor:
        """Return a number per image, ``(N,)``, from ``(N, num_draws)`` uniform in ``[0, 1)``."""
        result, first = self.options[0].draw(draws[:, 1:]), 1 + self.options[0].num_draws
        for option, edge in zip(self.options[1:], edges(self.weights), strict=True):
            result = torch.where(draws[:, 0] >= edge, option.draw(draws[:, first:]), result)
            first += option.num_draws
        return result

    def __str__(self) -> str:
        """As in the text form."""
        return "/".join(map(weighted_text, self.weights, map(str, self.options)))


Value = Range | OneOf
"""What a parameter of a stage may be."""

Amount = float | tuple[float, float] | Value
"""A number, the two limits of a range to draw it from, or a value."""


def as_value(amount: Amount) -> Value:
    """Make a value of a number, of the two limits of a range, or of a value.

    Example:
        >>> str(as_value(5)), str(as_value((0.2, 2)))
        ('5', '0.2..2')
    """
    if isinstance(amount, tuple):
        return Range(*amount)
    return amount if isinstance(amount, Range | OneOf) else Range(amount, amount)


def numbers_of(value: Value) -> list[float]:
    """Return the numbers that a value may be, or none where they are too many to list.

    Example:
        >>> numbers_of(Range(1, 1)), numbers_of(Range(1, 2))
        ([1], [])
    """
    options = value.options if isinstance(value, OneOf) else (value,)
    return [] if any(option.num_draws for option in options) else [o.low for o in options]


def pick(draw: Tensor, weights: Sequence[float]) -> Tensor:
    """Return the number of an alternative per image, ``(N,)``, by uniform numbers ``(N,)``.

    Example:
        >>> pick(torch.tensor([0.1, 0.3, 0.99]), (1, 2, 1))
        tensor([0, 1, 2])
    """
    index = torch.zeros_like(draw, dtype=torch.int64)
    for edge in edges(weights):
        index = index + (draw >= edge)
    return index


def edges(weights: Sequence[float]) -> Iterator[float]:
    """Yield where in ``[0, 1)`` each alternative but the first begins."""
    sums = list(accumulate(weights))
    return (part / sums[-1] for part in sums[:-1])


def check_weights(weights: Sequence[float], num_alternatives: int) -> None:
    """Refuse weights that are not positive or not as many as there are alternatives."""
    if len(weights) != num_alternatives or num_alternatives < 1:
        raise ConfigError(f"expected {num_alternatives} weights, one for each, got {len(weights)}")
    if not all(0 < weight < math.inf for weight in weights):
        raise ConfigError(f"a weight is above 0, got {', '.join(map(number_text, weights))}")


def number_text(number: float) -> str:
    """Return the shortest text of a number.

    Example:
        >>> number_text(2.0), number_text(0.25)
        ('2', '0.25')
    """
    is_whole = math.isfinite(number) and number == int(number)
    return str(int(number)) if is_whole else repr(float(number))


def weighted_text(weight: float, text: str) -> str:
    """Return an alternative with its weight, which is left out where it is 1."""
    return text if weight == 1 else f"{number_text(weight)}*{text}"
