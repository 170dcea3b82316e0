"""What the help of several commands shares: options, a decorator that adds many, and examples."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any

import typer

LowOption = Annotated[
    str | None,
    typer.Option(
        help="Folder with the inputs of the model, named as the files of --data. By default they "
        "are made from --data, or taken from a folder LR beside its folder HR."
    ),
]
DegradeOption = Annotated[
    list[str] | None,
    typer.Option(
        help="How the inputs are made from --data, such as 'blur(1.2) | area | noise(5) | "
        "jpeg(75)'. May be given several times. By default they are shrunk by MATLAB's bicubic."
    ),
]
NoiseOption = Annotated[
    float | None,
    typer.Option(
        help="Standard deviation of white noise in 8-bit levels, such as 25, for models of scale "
        "1. With --degrade or --low no noise is added: it is only the level that the model is told."
    ),
]
ScaleOption = Annotated[
    int | None, typer.Option(help="Zoom factor, where the model exists for several.")
]
MemoryOption = Annotated[
    str, typer.Option(help="Memory budget for one tile, such as 500MB or 2GiB.")
]
DeviceOption = Annotated[str, typer.Option(help="Where to compute: auto, cpu, cuda or cuda:N.")]
NetworkOption = Annotated[
    str | None,
    typer.Option(
        metavar="NETWORK",
        help="The wrapped network, where the model is a file of 'musigma wrap'.",
    ),
]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust-network",
        help="Run the network even if it is a TorchScript file, which is a program that can do "
        "harm.",
    ),
]
JointModel = Annotated[
    str,
    typer.Option(
        "--model",
        help="Weights with joint errors: edsr-baseline (x2 or x4), or a file of 'musigma calibrate "
        "--joint'.",
    ),
]


def examples(*commands: str) -> str:
    r"""Return the end of a help text: commands that can be typed, each on a line of its own.

    Example:
        >>> examples("musigma models", "musigma models --shipped")
        'Examples:\n\n- `musigma models`\n\n- `musigma models --shipped`'
    """
    if len(commands) == 1:
        return f"Example: `{commands[0]}`"
    return "\n\n".join(["Examples:", *(f"- `{command}`" for command in commands)])


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
