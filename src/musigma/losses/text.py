"""The text form of losses, which recipes use: ``expected_l1 + 0.01 * sigma_l1``."""

import re

from torch import nn

from musigma.losses.base import LossSum, PixelLoss
from musigma.losses.function_info import Setting
from musigma.losses.registry import create, loss_class
from musigma.types import ConfigError, short_repr, shortened

MAX_LENGTH = 1000
"""Longest text that is read; the longest useful one is far shorter."""

_TERM = re.compile(
    r"""\s*
    (?:(?P<weight>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)\s*\*\s*)?
    (?P<name>[A-Za-z_]\w*)\s*
    (?:\((?P<settings>[^()]*)\)\s*)?
    (?P<next>\+|$)""",
    re.VERBOSE,
)


def parse(text: str, *, teacher: nn.Module | None = None) -> LossSum:
    """Read a sum of losses from text.

    The text is ``[weight *] name[(key=value, ...)]``, joined by ``+``. `names` lists the names.

    Args:
        text: What to minimize.
        teacher: The network whose prediction ``distillation`` and ``udl_step2`` compare with.

    Example:
        >>> loss = parse("expected_l1(samples=1, mask=False) + .01*sigma_l1")
        >>> loss.losses[0]
        ExpectedL1(mask=False)
        >>> str(loss), loss.needs_sigma
        ('expected_l1(mask=false) + 0.01 * sigma_l1', True)
    """
    return LossSum(_read(text, teacher))


def phases(text: str) -> list[str]:
    """Return the objectives that a run has one after the other, of a text joined by ``then``.

    Example:
        >>> phases("l1 then l2 + 0.05 * fourier")
        ['l1', 'l2 + 0.05 * fourier']
    """
    return [part.strip() for part in re.split(r"\bthen\b", text)]


class Objective(LossSum):
    """The sum of losses that a text describes; the same as `parse`, as a class.

    Args:
        text: What to minimize.
        teacher: The network whose prediction ``distillation`` and ``udl_step2`` compare with.

    Example:
        >>> Objective("l1 + 1e-2 * sigma_l1")
        Objective(l1 + 0.01 * sigma_l1)
    """

    def __init__(self, text: str, *, teacher: nn.Module | None = None) -> None:
        super().__init__(_read(text, teacher))


def _read(text: str, teacher: nn.Module | None) -> list[tuple[float, PixelLoss]]:
    if len(text) > MAX_LENGTH:
        raise ConfigError(
            f"objective {short_repr(text)} has {len(text)} characters; at most {MAX_LENGTH} are "
            "read"
        )
    terms: list[tuple[float, PixelLoss]] = []
    position, more = 0, True
    while more:
        match = _TERM.match(text, position)
        if match is None:
            rest = text[position:].strip()
            piece = short_repr(rest) if rest else "its end"
            expected = "[weight *] name[(key=value, ...)], joined by +"
            raise ConfigError(
                f"objective {short_repr(text)}: cannot read {piece}; expected {expected}"
            )
        terms.append((float(match["weight"] or 1), _read_term(match, text, teacher)))
        position, more = match.end(), match["next"] == "+"
    if teacher is not None and not any(loss.teacher for _, loss in terms):
        raise ConfigError(f"objective {short_repr(text)} has no use for a teacher")
    return terms


def _read_term(match: re.Match[str], text: str, teacher: nn.Module | None) -> PixelLoss:
    loss = loss_class(match["name"])
    settings = _read_settings(loss, match["settings"] or "")
    if loss.takes_teacher() and teacher is None:
        raise ConfigError(
            f"objective {short_repr(text)} needs a teacher: parse(text, teacher=network)"
        )
    return create(match["name"], teacher=teacher if loss.takes_teacher() else None, **settings)


def _read_settings(loss: type[PixelLoss], text: str) -> dict[str, Setting]:
    settings: dict[str, Setting] = {}
    for piece in text.split(",") if text.strip() else ():
        key, equals, value = (part.strip() for part in piece.partition("="))
        if not equals:
            raise ConfigError(
                f"{loss.info.name}: expected key=value, got {short_repr(piece.strip())}"
            )
        if key in settings:
            raise ConfigError(f"{loss.info.name}: {shortened(key)} is given twice")
        settings[key] = loss.info.read(key, value)
    return settings
