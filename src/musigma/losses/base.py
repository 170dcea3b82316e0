"""The base of all losses: a per-pixel function with its settings, and weighted sums of them."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Self

import torch
from torch import Generator, Tensor, distributed, nn

from musigma.functional import objectives
from musigma.losses.function_info import FunctionInfo, Setting, function_info
from musigma.types import ConfigError, Prediction

Predicted = Prediction | tuple[Tensor, Tensor | None] | Tensor
"""What a network returns: mean and sigma, or the mean alone."""

_MISSING = {
    "sigma": "a sigma and the prediction has none; with_sigma(network) gives the network a branch",
    "teacher_mean": "a teacher: give it one with teacher=...",
    "teacher_sigma": "the teacher's sigma and the teacher predicts none",
}


class Loss(nn.Module, ABC):
    """A scalar to minimize. Losses add up with ``+`` and take weights with ``*``.

    There are no parameters to train. `str` gives the text that recipes use.
    """

    @property
    @abstractmethod
    def terms(self) -> Sequence[tuple[float, "PixelLoss"]]:
        """The weights and losses that are added up."""

    @property
    def needs_sigma(self) -> bool:
        """Whether the network must predict sigma."""
        return any("sigma" in loss.info.images for _, loss in self.terms)

    @property
    def needs_teacher(self) -> bool:
        """Whether every call needs `degraded`, the input, to show it to a teacher."""
        return any(loss.teacher is not None for _, loss in self.terms)

    def forward(
        self,
        prediction: Predicted,
        target: Tensor,
        *,
        degraded: Tensor | None = None,
        counted: Tensor | None = None,
        taught: Predicted | None = None,
        generator: Generator | None = None,
    ) -> Tensor:
        """Return the sum of `parts`, a scalar. The arguments are those of `parts`."""
        parts = self.parts(
            prediction,
            target,
            degraded=degraded,
            counted=counted,
            taught=taught,
            generator=generator,
        )
        return torch.stack(list(parts.values())).sum()

    def parts(
        self,
        prediction: Predicted,
        target: Tensor,
        *,
        degraded: Tensor | None = None,
        counted: Tensor | None = None,
        taught: Predicted | None = None,
        generator: Generator | None = None,
    ) -> dict[str, Tensor]:
        """Return what each term adds to the loss, by name, as scalars that stay on the device.

        Args:
            prediction: What the network returned. A bare tensor is a mean without sigma.
            target: The true image.
            degraded: The input of the network, for a teacher; other losses ignore it.
            counted: 1 where the loss counts and 0 elsewhere, as the target; by default everywhere.
            taught: What the teacher predicts, where that is known; by default it is asked.
            generator: Source of random draws; by default PyTorch's global generator.
        """
        mean, sigma = _as_prediction(prediction)
        asked: list[tuple[nn.Module, Prediction]] = []
        parts: dict[str, Tensor] = {}
        for weight, loss in self.terms:
            images = {"mean": mean, "target": target, "sigma": sigma}
            if loss.teacher is not None:
                answer = next((known for module, known in asked if module is loss.teacher), None)
                if answer is None and taught is not None:
                    answer = _as_prediction(taught)
                if answer is None:
                    answer = _ask(loss.teacher, degraded, loss.name)
                    asked.append((loss.teacher, answer))
                images["teacher_mean"], images["teacher_sigma"] = answer
            parts[loss.name] = weight * _mean(loss.per_pixel(images, generator), counted)
        return parts

    def __add__(self, other: object) -> "LossSum":
        if not isinstance(other, Loss):
            return NotImplemented
        return LossSum([*self.terms, *other.terms])

    def __radd__(self, other: object) -> "LossSum":
        # The built-in sum() starts from 0.
        return LossSum(self.terms) if other == 0 else NotImplemented

    def __mul__(self, weight: object) -> "LossSum":
        if isinstance(weight, bool) or not isinstance(weight, int | float):
            return NotImplemented
        return LossSum([(weight * own, loss) for own, loss in self.terms])

    __rmul__ = __mul__

    def __str__(self) -> str:
        return " + ".join(_term_text(weight, loss) for weight, loss in self.terms)


class PixelLoss(Loss):
    """The mean of one per-pixel function, with its settings.

    Subclasses set `function` and state its settings in their constructors.

    Args:
        teacher: The network that the function compares with, if it does. It is frozen, stays in
            evaluation mode, and moves with the loss.
        settings: The settings of the function.
    """

    function: ClassVar[Callable[..., Tensor]]
    info: ClassVar[FunctionInfo]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.info = function_info(cls.function)

    def __init__(self, *, teacher: nn.Module | None = None, **settings: Setting) -> None:
        super().__init__()
        self.settings = self.info.check(settings)
        if self.function.__module__ == objectives.__name__:
            objectives.check_settings(self.name, **self.settings)
        if self.takes_teacher() and teacher is None:
            raise ConfigError(f"{self.name} needs {_MISSING['teacher_mean']}")
        if teacher is not None:
            teacher.requires_grad_(False).eval()
        self.teacher = teacher

    @property
    def name(self) -> str:
        """The name that recipes use."""
        return self.info.name

    @property
    def terms(self) -> Sequence[tuple[float, "PixelLoss"]]:
        """This loss, with weight 1."""
        return [(1.0, self)]

    @classmethod
    def takes_teacher(cls) -> bool:
        """Whether the function looks at the prediction of a teacher."""
        return any(image.startswith("teacher_") for image in cls.info.images)

    def per_pixel(self, images: dict[str, Tensor | None], generator: Generator | None) -> Tensor:
        """Return the values before their mean is taken.

        Args:
            images: Images by name, as in `function_info.IMAGES`.
            generator: Source of random draws.
        """
        given: list[Tensor] = []
        for name in self.info.images:
            image = images.get(name)
            if image is None:
                raise ConfigError(f"{self.name} needs {_MISSING[name]}")
            given.append(image)
        extra: dict[str, object] = {"generator": generator} if self.info.is_random else {}
        if self._needs_threshold() and self.training and _shares_batch():
            extra["threshold"] = _mean_over_processes(images["mean"], images["target"])
        return type(self).function(*given, **self.settings, **extra)

    def _needs_threshold(self) -> bool:
        return self.info.takes_threshold and bool(self.settings.get("mask", True))

    def train(self, mode: bool = True) -> Self:
        """Switch to training mode. A teacher stays in evaluation mode."""
        super().train(mode)
        if self.teacher is not None:
            self.teacher.eval()
        return self

    def extra_repr(self) -> str:
        """The settings that differ from their defaults."""
        changed = self.info.changed(self.settings)
        return ", ".join(f"{key}={value!r}" for key, value in changed.items())


class LossSum(Loss):
    """A weighted sum of losses, as ``+`` and ``*`` make it.

    Args:
        terms: Weights and losses. Weights are positive; each name occurs once.

    Example:
        >>> from musigma.losses import L1, SigmaL1
        >>> loss = L1() + 0.01 * SigmaL1(detach=False)
        >>> loss
        LossSum(l1 + 0.01 * sigma_l1(detach=false))
        >>> mean, target = torch.full((1, 3, 4, 5), 0.5), torch.zeros(1, 3, 4, 5)
        >>> loss.parts((mean, mean), target)
        {'l1': tensor(0.5000), 'sigma_l1': tensor(0.)}
    """

    def __init__(self, terms: Iterable[tuple[float, PixelLoss]]) -> None:
        super().__init__()
        weights, losses = zip(*terms, strict=True)
        self.weights: tuple[float, ...] = tuple(float(weight) for weight in weights)
        self.losses = nn.ModuleList(losses)
        names = [loss.name for loss in losses]
        for weight, name in zip(self.weights, names, strict=True):
            if not 0 < weight < math.inf:
                raise ConfigError(f"the weight of {name} is positive, not {weight}")
            if names.count(name) > 1:
                raise ConfigError(f"the sum has {name} twice; give it one weight")

    @property
    def terms(self) -> Sequence[tuple[float, PixelLoss]]:
        """The weights and losses that are added up."""
        return list(zip(self.weights, self.losses, strict=True))  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"


def _mean(values: Tensor, counted: Tensor | None) -> Tensor:
    if counted is None:
        return values.mean()
    # The shape of the result must not depend on values, or it could not be captured.
    return (values * counted).sum() / counted.sum().clamp(min=1)


def _as_prediction(output: Predicted) -> Prediction:
    return Prediction(output) if isinstance(output, Tensor) else Prediction(*output)


def _ask(teacher: nn.Module, degraded: Tensor | None, name: str) -> Prediction:
    if degraded is None:
        raise ConfigError(f"the teacher of {name} needs the input: call with degraded=...")
    with torch.no_grad():
        return _as_prediction(teacher(degraded))


def _shares_batch() -> bool:
    return distributed.is_available() and distributed.is_initialized()


def _mean_over_processes(mean: Tensor | None, target: Tensor | None) -> Tensor:
    """Return the mean of ``|e|`` over the batch of all processes."""
    assert mean is not None
    assert target is not None
    own = objectives.mean_absolute_error(mean, target)
    count = torch.full_like(own, mean.numel())
    total = torch.stack([own * count, count])
    distributed.all_reduce(total)
    return total[0] / total[1]


def _term_text(weight: float, loss: PixelLoss) -> str:
    changed = loss.info.changed(loss.settings)
    inside = ", ".join(f"{key}={_setting_text(value)}" for key, value in changed.items())
    return ("" if weight == 1 else f"{weight} * ") + loss.name + (f"({inside})" if inside else "")


def _setting_text(value: Setting) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
