"""Options that several commands have: a dataclass of them, and a decorator that adds it."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any


def with_options(options: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the fields of a dataclass to a command, which receives them as its first argument.

    Args:
        options: The dataclass. Its fields are annotated as the options of a Typer command.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class Loud:
        ...     loud: bool = False
        >>> @with_options(Loud)
        ... def say(shared: Loud, word: str) -> None:
        ...     print(word.upper() if shared.loud else word)
        >>> say(word="yes", loud=True)
        YES
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(command).parameters.values())[1:]
        shared = inspect.signature(options).parameters.values()
        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own, *shared)]

        @functools.wraps(command)
        def run(**values: Any) -> None:
            typed = {
                field.name: values.pop(field.name)
                for field in fields(options)
                if field.name in values
            }
            command(options(**typed), **values)

        # Typer reads the options of a command from these two.
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate
