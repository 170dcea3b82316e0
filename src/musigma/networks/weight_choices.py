"""Which weights to choose: short names for them, and what was measured of those that ship."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from musigma.networks.weights_file import SHIPPED, shipped_weights
from musigma.types import ConfigError


class Choice(NamedTuple):
    """A short name for weights.

    Attributes:
        weights: The name under which they ship.
        purpose: What they are for.
    """

    weights: str
    purpose: str


CHOICES: Mapping[str, Choice] = {
    "fast": Choice("fast", "clean pictures on a CPU, or very many of them"),
    "standard": Choice("edsr-baseline", "clean pictures"),
    "large": Choice("large", "clean pictures on a GPU, where quality matters more than time"),
}
"""The names, from the fastest to the best. The network behind a name may change with a version."""

MEASURED = SHIPPED / "measured.json"
"""What the records of the project say about the weights that ship; ``make tables`` writes it."""


def weights_named(name: str) -> str:
    """Return the name under which the weights of a choice ship; any other name stays.

    Raises:
        ConfigError: If no weights ship for the choice.

    Example:
        >>> weights_named("standard"), weights_named("photo")
        ('edsr-baseline', 'photo')
    """
    if name not in CHOICES:
        return name
    weights = CHOICES[name].weights
    if weights not in shipped_weights():
        raise ConfigError(f"no weights ship as {name!r} yet; there are {', '.join(_names())}")
    return weights


def choice_of(weights: str) -> str:
    """Return the short name of shipped weights, or nothing.

    Example:
        >>> choice_of("edsr-baseline"), choice_of("photo")
        ('standard', '')
    """
    return next((name for name, choice in CHOICES.items() if choice.weights == weights), "")


def measured_numbers() -> dict[str, dict[str, Any]]:
    """Return what was measured of the weights that ship, by the name of their file.

    Example:
        >>> sorted(measured_numbers()["edsr-baseline-x2"]["psnr_y"])
        ['B100', 'Set14', 'Set5', 'Urban100']
    """
    numbers: dict[str, dict[str, Any]] = json.loads(MEASURED.read_text())
    return numbers


def _names() -> list[str]:
    """The names of all weights that ship, with their short names."""
    names = []
    for weights in shipped_weights():
        choice = choice_of(weights)
        names.append(f"{choice} ({weights})" if choice not in ("", weights) else weights)
    return names
