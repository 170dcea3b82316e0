"""The text form of degradations: ``"blur(0.2..2)?0.7 | bicubic/area | noise(5) | jpeg(30..95)"``.

The grammar, from the loosest to the tightest binding::

    chain        = alternatives { "|" alternatives }               one after another
    alternatives = [weight "*"] part { "/" [weight "*"] part }     one of them for each image
    part         = stage [ "?" probability ]                       only for some images
    stage        = name [ "(" arguments ")" ] | "(" chain ")"
    arguments    = [name "="] value { "," [name "="] value }
    value        = [weight "*"] range { "/" [weight "*"] range }   a number from one of them
    range        = number [ ".." number [":log"] ]

- A stage is one of ``blur(std, across, angle)``, ``motion(length, angle)``,
  ``sharpen(amount, std)``,
  ``noise(std, gain, grey, grain)``, ``poisson(gain, grey, grain)``,
  ``raw(gain, std, grain, color, color_grain)``, ``bilateral(difference, std, amount)``,
  ``wiener(noise, std, amount)``, ``resample(share, support)``,
  ``jpeg(quality, subsampling, left, top)``, ``round``; a way of shrinking
  (`musigma.functional.shrink.shrink_matrix` lists them): ``bicubic``,
  ``area``, ``lanczos`` ...; or a chain with a name: ``photo``. Their classes (`STAGES` in
  `musigma.degradations.stages`) say what the arguments mean.
- A value is drawn anew for each image: ``30..95`` evenly between the limits, ``0.5..15:log`` evenly
  in the logarithm, ``420/444`` one of the numbers, ``3*420/444`` the first three times as often.
- How much is shrunk is not in the text but in the scale, by which every way of shrinking shrinks.
  A chain shrinks once. Where no way is named and the scale is above 1, it is ``bicubic``, before
  the first stage that is more than a blur: a camera blurs, then samples, then adds noise.
- ``bicubic`` alone is the published benchmark: MATLAB's imresize with its rounding to 8 bits, bit
  for bit. Alone is the whole text, or one alternative beside others that do more than shrink.
  Everywhere else shrinking is not rounded; end a text with ``round`` for what a file would hold
  (``jpeg`` rounds by itself).
"""

import re
from collections.abc import Callable
from typing import NamedTuple, NoReturn

import torch

from musigma.degradations.base import Degradation
from musigma.degradations.compose import Chain, Choice, Maybe
from musigma.degradations.photo import photo_text
from musigma.degradations.stage import Stage
from musigma.degradations.stages import STAGES, Bicubic, Shrink
from musigma.degradations.values import OneOf, Range, Value
from musigma.functional.shrink import METHODS
from musigma.types import ConfigError, nearest, short_repr

_TOKEN = re.compile(
    r"\s*(?:(?P<number>-?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?)"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<sign>\.\.|[|/*?(),=:]))"
)

MAX_LENGTH, MAX_BRACKETS = 10_000, 100
"""Longest text that is read; that of ``photo``, the longest useful one, is far shorter."""

NAMED: dict[str, Callable[[int], str]] = {"photo": photo_text}
"""Chains with a name: the text of each for a scale."""


def parse(text: str, *, scale: int = 1) -> Degradation:
    """Read the text form of a degradation.

    Args:
        text: As the grammar of this module has it. Empty, it is ``bicubic``.
        scale: Size of the target over that of the input, 1 or more.

    Returns:
        A degradation of that scale, of which `str` gives the text in its shortest form; what is
        drawn from which random number follows the order of that text.

    Example:
        >>> degradation = parse("blur(1.2)|area | noise( 5 )|jpeg(30..95)?.7", scale=2)
        >>> str(degradation), degradation.num_draws
        ('blur(1.2) | area | noise(5) | jpeg(30..95)?0.7', 2)
        >>> str(parse("blur(0.8) | jpeg(75)", scale=4))
        'blur(0.8) | bicubic | jpeg(75)'
    """
    if len(text) > MAX_LENGTH or text.count("(") > MAX_BRACKETS:
        raise ConfigError(
            f"the degradation {short_repr(text)} is too long; at most {MAX_LENGTH} characters and "
            f"{MAX_BRACKETS} brackets are read"
        )
    if scale < 1:
        raise ConfigError(f"the scale is 1 or more, not {scale}")
    if text.strip() in ("", "bicubic") and scale > 1:
        return Bicubic(scale)
    degradation = _Reader(text, scale).whole()
    if degradation.scale == 1 != scale:
        degradation = _with_bicubic(degradation, scale)
    if degradation.scale != scale:
        raise ConfigError(f"{short_repr(text)} shrinks more than once; name one way of shrinking")
    return degradation


def photo(scale: int) -> Degradation:
    """Return the chain for photographs: what users' files are made by, at random.

    Example:
        >>> photo(2) == parse("photo", scale=2), photo(2).margin
        (True, 48)
    """
    return parse("photo", scale=scale)


def names() -> list[str]:
    """Return the names that a text may use."""
    return [*NAMED, *STAGES, *METHODS]


def _with_bicubic(degradation: Degradation, scale: int) -> Degradation:
    """Put ``bicubic`` before the first stage that is more than a blur."""
    stages = list(degradation.stages) if isinstance(degradation, Chain) else [degradation]
    first = next((n for n, stage in enumerate(stages) if not _is_blur(stage)), len(stages))
    return Chain([*stages[:first], Shrink("bicubic", scale), *stages[first:]])


def _is_blur(stage: Degradation) -> bool:
    return stage.kernels(torch.zeros(1, stage.num_draws)) is not None


class _Token(NamedTuple):
    text: str
    type: str  # number, name, sign or end
    start: int


class _Reader:
    """Reads a text from left to right, each method a rule of the grammar."""

    def __init__(self, text: str, scale: int) -> None:
        self.text, self.scale, self.position = text, scale, 0
        self.tokens = self._tokens()

    def whole(self) -> Degradation:
        degradation = self._chain()
        if self._next.type != "end":
            self._refuse("'|' or the end")
        return degradation

    def _chain(self) -> Degradation:
        stages = [self._alternatives()]
        while self._skip("|"):
            stages.append(self._alternatives())
        return stages[0] if len(stages) == 1 else Chain(stages)

    def _alternatives(self) -> Degradation:
        weights, options = [self._weight()], [self._part()]
        while self._skip("/"):
            weights.append(self._weight())
            options.append(self._part())
        if len(options) == 1:
            return options[0]
        return Choice(self._alike(options), weights)

    def _alike(self, options: list[Degradation]) -> list[Degradation]:
        """Let all shrink where one does, and let ``bicubic`` alone be the published one."""
        if all(option.scale == 1 for option in options):
            return options
        options = [o if o.scale > 1 else _with_bicubic(o, self.scale) for o in options]
        if all(isinstance(option, Shrink) for option in options):
            return options
        alone = Shrink("bicubic", self.scale)
        return [Bicubic(self.scale) if option == alone else option for option in options]

    def _weight(self) -> float:
        if self._next.type != "number" or self.tokens[self.position + 1].text != "*":
            return 1.0
        weight = self._number()
        self._expect("*")
        return weight

    def _part(self) -> Degradation:
        stage = self._stage()
        return Maybe(stage, self._number()) if self._skip("?") else stage

    def _stage(self) -> Degradation:
        if self._skip("("):
            inner = self._chain()
            self._expect(")")
            return inner
        name = self._name("the name of a stage")
        if name in STAGES:
            return _build(STAGES[name], self._arguments() if self._skip("(") else [])
        if self._next.text == "(":
            self._refuse(f"no arguments, since {name} takes none")
        if name in METHODS:
            return self._shrink(name)
        return _Reader(NAMED[name](self.scale), self.scale).whole()

    def _shrink(self, method: str) -> Degradation:
        if self.scale == 1:
            raise ConfigError(
                f"at scale 1 nothing is shrunk; leave {method} out of {short_repr(self.text)}"
            )
        return Shrink(method, self.scale)

    def _arguments(self) -> list[tuple[str, Value]]:
        arguments = [self._argument()]
        while self._skip(","):
            arguments.append(self._argument())
        self._expect(")")
        return arguments

    def _argument(self) -> tuple[str, Value]:
        if self._next.type != "name":
            return "", self._value()
        name = self._advance().text
        self._expect("=")
        return name, self._value()

    def _value(self) -> Value:
        weights, options = [self._weight()], [self._range()]
        while self._skip("/"):
            weights.append(self._weight())
            options.append(self._range())
        return options[0] if len(options) == 1 else OneOf(tuple(options), tuple(weights))

    def _range(self) -> Range:
        low = self._number()
        return Range(low, self._number(), log=self._log()) if self._skip("..") else Range(low, low)

    def _log(self) -> bool:
        if not self._skip(":"):
            return False
        if self._next.text != "log":
            self._refuse("'log'")
        self._advance()
        return True

    def _number(self) -> float:
        if self._next.type != "number":
            self._refuse("a number")
        return float(self._advance().text)

    def _name(self, what: str) -> str:
        if self._next.type != "name":
            self._refuse(what)
        name = self._advance().text
        if name not in names():
            raise ConfigError(
                f"there is no degradation {short_repr(name)}; {nearest(name, names())}"
            )
        return name

    def _expect(self, sign: str) -> None:
        if not self._skip(sign):
            self._refuse(repr(sign))

    def _skip(self, sign: str) -> bool:
        is_next = self._next.text == sign
        self.position += is_next
        return is_next

    def _advance(self) -> _Token:
        self.position += 1
        return self.tokens[self.position - 1]

    @property
    def _next(self) -> _Token:
        return self.tokens[self.position]

    def _tokens(self) -> list[_Token]:
        tokens, start = [], 0
        while self.text[start:].strip():
            match = _TOKEN.match(self.text, start)
            if match is None:
                raise ConfigError(_fault(self.text, start, "a name, a number or a sign"))
            tokens.append(_Token(match[0].strip(), str(match.lastgroup), match.start()))
            start = match.end()
        return [*tokens, _Token("", "end", len(self.text))]

    def _refuse(self, expected: str) -> NoReturn:
        raise ConfigError(_fault(self.text, self._next.start, expected))


def _build(stage: type[Stage], arguments: list[tuple[str, Value]]) -> Stage:
    """Make a stage of arguments with or without names."""
    known = [parameter.name for parameter in stage.parameters]
    if len(arguments) > len(known):
        takes = ", ".join(known) if known else "none"
        raise ConfigError(f"{stage.name} takes {takes}; got {len(arguments)} arguments")
    given: dict[str, Value] = {}
    for position, (name, value) in enumerate(arguments):
        name = name or known[position]
        if name not in known:
            raise ConfigError(
                f"{stage.name} has no argument {short_repr(name)}; {nearest(name, known)}"
            )
        if name in given:
            raise ConfigError(f"{stage.name}: {name} is given twice")
        given[name] = value
    for parameter in stage.parameters:
        if parameter.required and parameter.name not in given:
            raise ConfigError(f"{stage.name} needs a number: {stage.name}({parameter.name})")
    return stage(**given)


def _fault(text: str, start: int, expected: str) -> str:
    rest = text[start:].strip()
    what = short_repr(rest) if rest else "the end"
    return f"cannot read the degradation {short_repr(text)}: expected {expected} before {what}"
