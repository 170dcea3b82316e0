"""Tables of numbers in a weights file, read as if a stranger had written them."""

from collections.abc import Mapping
from typing import Any

from musigma.types import ConfigError


def checked_table(data: Any, keys: set[str], name: str) -> Mapping[str, Any]:
    """Return a stored table that has just these keys, or refuse it."""
    if not isinstance(data, Mapping) or set(data) != keys:
        raise ConfigError(f"{name} are a table with the keys {sorted(keys)}")
    return data


def whole(value: object) -> int:
    """Return a whole number of a stored table, or refuse what is none."""
    if type(value) is not int or abs(value) > 2**31:
        raise ConfigError("a whole number was expected in the joint error model")
    return value


def real(value: object) -> float:
    """Return a number of a stored table, or refuse what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1e6:
        raise ConfigError("a number was expected in the joint error model")
    return float(value)
