"""An objective, written as text, for any training loop."""

import re

import torch
from torch import Generator, Tensor, nn

from musigma.losses.terms import Setting, Term, entry
from musigma.types import ConfigError, Prediction

_TERM = re.compile(
    r"""\s*
    (?:(?P<weight>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*\*\s*)?
    (?P<name>[A-Za-z_]\w*)\s*
    (?:\((?P<settings>[^()]*)\)\s*)?
    (?P<next>\+|$)""",
    re.VERBOSE,
)


class Objective(nn.Module):
    """A weighted sum of named terms, each the mean of a function of `functional.objectives`.

    The text is ``[weight *] name[(key=value, ...)]``, joined by ``+``; `names` lists the names.
    `str` gives it back in its shortest form. There are no parameters to train.

    Args:
        text: What to minimise.
        teacher: The network whose prediction ``distillation`` and ``udl_step2`` compare with. It is
            frozen, runs in evaluation mode, and moves with the objective.

    Example:
        >>> objective = Objective("expected_l1(samples=1, mask=False) + .01*sigma_l1")
        >>> str(objective), objective.needs_sigma
        ('expected_l1(mask=false) + 0.01 * sigma_l1', True)
        >>> mean, target = torch.full((1, 3, 4, 5), 0.5), torch.zeros(1, 3, 4, 5)
        >>> Objective("l1 + 2 * l2")(mean, target)
        tensor(1.)
    """

    def __init__(self, text: str, *, teacher: nn.Module | None = None) -> None:
        super().__init__()
        self.terms = _parse(text)
        self.teacher = teacher
        if self.needs_teacher and teacher is None:
            raise ConfigError(f"objective {text!r} needs a teacher: Objective(text, teacher=...)")
        if teacher is not None:
            if not self.needs_teacher:
                raise ConfigError(f"objective {text!r} has no use for a teacher")
            teacher.requires_grad_(False).eval()

    @property
    def needs_sigma(self) -> bool:
        """Whether the network must predict sigma."""
        return any("sigma" in term.entry.pictures for term in self.terms)

    @property
    def needs_teacher(self) -> bool:
        """Whether there must be a teacher, and every call must bring the `degraded` it looks at."""
        return any(
            picture.startswith("teacher_") for term in self.terms for picture in term.entry.pictures
        )

    def forward(
        self,
        prediction: Prediction | Tensor,
        target: Tensor,
        *,
        degraded: Tensor | None = None,
        generator: Generator | None = None,
    ) -> Tensor:
        """Return the sum of `parts`, a scalar."""
        parts = self.parts(prediction, target, degraded=degraded, generator=generator)
        return torch.stack(list(parts.values())).sum()

    def parts(
        self,
        prediction: Prediction | Tensor,
        target: Tensor,
        *,
        degraded: Tensor | None = None,
        generator: Generator | None = None,
    ) -> dict[str, Tensor]:
        """Return what each term adds to the loss, by name, as scalars that stay on the device.

        Args:
            prediction: What the network returned; a bare tensor is a mean without sigma.
            target: The true picture.
            degraded: The input of the network, for the teacher; other objectives ignore it.
            generator: Where random terms draw from.
        """
        mean, sigma = _as_prediction(prediction)
        teacher_mean, teacher_sigma = self._teach(degraded)
        pictures = {
            "mean": mean,
            "target": target,
            "sigma": sigma,
            "teacher_mean": teacher_mean,
            "teacher_sigma": teacher_sigma,
        }
        return {term.entry.name: term(pictures, generator) for term in self.terms}

    def train(self, mode: bool = True) -> "Objective":
        """Switch to training mode, but never the teacher."""
        super().train(mode)
        if self.teacher is not None:
            self.teacher.eval()
        return self

    def __str__(self) -> str:
        """The text that gives this objective again."""
        return " + ".join(str(term) for term in self.terms)

    def extra_repr(self) -> str:
        """The text, for the printed form of a module that holds this one."""
        return str(self)

    def _teach(self, degraded: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        if self.teacher is None:
            return None, None
        if degraded is None:
            raise ConfigError(
                f"the teacher of {str(self)!r} needs the input: call it with degraded=..."
            )
        with torch.no_grad():
            return _as_prediction(self.teacher(degraded))


def _as_prediction(output: Prediction | Tensor) -> Prediction:
    return Prediction(output) if isinstance(output, Tensor) else output


def _parse(text: str) -> tuple[Term, ...]:
    terms: dict[str, Term] = {}
    position, more = 0, True
    while more:
        match = _TERM.match(text, position)
        if match is None:
            piece = repr(text[position:].strip()) if text[position:].strip() else "its end"
            expected = "[weight *] name[(key=value, ...)], joined by +"
            raise ConfigError(f"objective {text!r}: cannot read {piece}; expected {expected}")
        term = _parse_term(match)
        if term.entry.name in terms:
            raise ConfigError(f"objective {text!r} has {term.entry.name} twice; give it one weight")
        terms[term.entry.name] = term
        position, more = match.end(), match["next"] == "+"
    return tuple(terms.values())


def _parse_term(match: re.Match[str]) -> Term:
    function = entry(match["name"])
    settings: dict[str, Setting] = {}
    inside = (match["settings"] or "").strip()
    for piece in inside.split(",") if inside else ():
        key, equals, value = (part.strip() for part in piece.partition("="))
        if not equals:
            raise ConfigError(f"{function.name}: expected key=value, got {piece.strip()!r}")
        if key in settings:
            raise ConfigError(f"{function.name}: {key} is given twice")
        settings[key] = function.read(key, value)
    return Term(function, float(match["weight"] or 1), settings)
