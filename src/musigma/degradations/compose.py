"""Degradations made of others: one after another, one of several, or sometimes."""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from musigma.degradations.base import Degradation
from musigma.degradations.stages import Round, Shrink
from musigma.degradations.values import Value, check_weights, number_text, pick, weighted_text
from musigma.functional.blur import blur
from musigma.functional.shrink import shrink, shrink_matrices
from musigma.types import ConfigError


class Chain(Degradation):
    """Degradations one after another.

    Args:
        stages: In their order.

    Example:
        >>> from musigma.degradations.stages import Jpeg, Noise
        >>> chain = Chain([Shrink("area", 2), Noise(5), Jpeg((30, 95))])
        >>> str(chain), chain.scale, chain.num_draws, chain.margin
        ('area | noise(5) | jpeg(30..95)', 2, 1, 16)
    """

    def __init__(self, stages: Sequence[Degradation]) -> None:
        self.stages = tuple(stages)
        for stage in self.stages:
            # What comes after shrinking counts in larger pixels.
            self.filter_radius += stage.filter_radius * self.scale
            self.block = math.lcm(self.block, stage.block * self.scale)
            self.scale *= stage.scale
        self.num_draws = sum(stage.num_draws for stage in self.stages)

    def __call__(
        self, target: Tensor, draws: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Apply each in turn, to what the one before gave."""
        for stage, own in _shared(self.stages, draws):
            target = stage(target, own, generator)
        return target

    @property
    def white_noise_std(self) -> Value | None:
        """That of the first, where nothing but rounding follows it, as in a file with noise."""
        first, *others = self.stages
        return first.white_noise_std if all(isinstance(s, Round) for s in others) else None

    def __str__(self) -> str:
        """The texts joined by ``|``."""
        return " | ".join(
            f"({stage})" if isinstance(stage, Chain) else str(stage) for stage in self.stages
        )


class Choice(Degradation):
    """One of several degradations for each image.

    Blurs are chosen by their kernels and ways of shrinking by their matrices. Of any others all are
    done to all images, and the results chosen.

    Args:
        options: To choose from, all of one scale.
        weights: How likely each is, relative to the others; equally, where left out.

    Example:
        >>> choice = Choice([Shrink("bicubic", 2), Shrink("area", 2)], weights=(3, 1))
        >>> str(choice), choice.num_draws
        ('3*bicubic/area', 1)
    """

    def __init__(
        self, options: Sequence[Degradation], weights: Sequence[float] | None = None
    ) -> None:
        self.options = tuple(options)
        self.weights = (1.0,) * len(self.options) if weights is None else tuple(weights)
        check_weights(self.weights, len(self.options))
        scales = {option.scale for option in self.options}
        if len(scales) > 1:
            raise ConfigError(f"either all alternatives shrink, by one scale, or none: {self}")
        self.scale = scales.pop()
        self.filter_radius = max(option.filter_radius for option in self.options)
        self.block = math.lcm(*(option.block for option in self.options))
        self.num_draws = 1 + sum(option.num_draws for option in self.options)

    def kernels(self, draws: Tensor) -> Tensor | None:
        """Return a kernel per image, of the blur that was chosen for it, if all are blurs."""
        kernels = [option.kernels(own) for option, own in _shared(self.options, draws[:, 1:])]
        sized = [_widened(kernel, self.filter_radius) for kernel in kernels if kernel is not None]
        return self._chosen(draws, sized) if len(sized) == len(kernels) else None

    def __call__(
        self, target: Tensor, draws: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Apply to each image what was chosen for it."""
        kernels = self.kernels(draws)
        if kernels is not None:
            return blur(target, kernels)
        methods = [option.method for option in self.options if isinstance(option, Shrink)]
        if len(methods) == len(self.options):
            return self._shrunk(target, draws, methods)
        results = [
            option(target, own, generator) for option, own in _shared(self.options, draws[:, 1:])
        ]
        return self._chosen(draws, results)

    def _shrunk(self, target: Tensor, draws: Tensor, methods: Sequence[str]) -> Tensor:
        index = pick(draws[:, 0], self.weights)
        device, dtype = target.device, target.dtype
        rows, columns = (
            shrink_matrices(methods, side, self.scale, device, dtype)[index]
            for side in target.shape[-2:]
        )
        return shrink(target, rows, columns)

    def _chosen(self, draws: Tensor, results: Sequence[Tensor]) -> Tensor:
        index = pick(draws[:, 0], self.weights).view(-1, *[1] * (results[0].ndim - 1))
        chosen = results[0]
        for number, result in enumerate(results[1:], start=1):
            chosen = torch.where(index == number, result, chosen)
        return chosen

    def __str__(self) -> str:
        """The texts joined by ``/``, with their weights."""
        return "/".join(map(weighted_text, self.weights, map(_option, self.options)))


class Maybe(Degradation):
    """A degradation that some images go through and others do not.

    Args:
        inner: What some go through; it must not shrink.
        probability: How likely that is.

    Example:
        >>> from musigma.degradations.stages import Noise
        >>> str(Maybe(Noise(5), 0.7))
        'noise(5)?0.7'
    """

    def __init__(self, inner: Degradation, probability: float) -> None:
        if inner.scale != 1:
            raise ConfigError(
                f"what shrinks cannot be left out, so that {inner} has no probability; give "
                "alternatives that shrink, such as bicubic/area"
            )
        if not 0 <= probability <= 1:
            raise ConfigError(f"a probability lies between 0 and 1, not at {probability}")
        self.inner, self.probability = inner, probability
        self.filter_radius, self.block = inner.filter_radius, inner.block
        self.num_draws = 1 + inner.num_draws

    def kernels(self, draws: Tensor) -> Tensor | None:
        """Return a kernel per image, the identity for those that are left as they are."""
        kernels = self.inner.kernels(draws[:, 1:])
        if kernels is None:
            return None
        line = torch.arange(-self.filter_radius, self.filter_radius + 1, device=draws.device)
        identity = ((line == 0) & (line == 0).view(-1, 1)).to(kernels.dtype)
        return torch.where((draws[:, 0] < self.probability).view(-1, 1, 1), kernels, identity)

    def __call__(
        self, target: Tensor, draws: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Apply it to those images whose first draw is below the probability."""
        taken = (draws[:, 0] < self.probability).view(-1, 1, 1, 1)
        return torch.where(taken, self.inner(target, draws[:, 1:], generator), target)

    def __str__(self) -> str:
        """The text, followed by ``?`` and the probability."""
        return f"{_atom(self.inner)}?{number_text(self.probability)}"


def _shared(parts: Sequence[Degradation], draws: Tensor) -> Iterator[tuple[Degradation, Tensor]]:
    """Yield each part with its own of the draws."""
    first = 0
    for part in parts:
        yield part, draws[:, first : first + part.num_draws]
        first += part.num_draws


def _widened(kernels: Tensor, radius: int) -> Tensor:
    more = radius - kernels.shape[-1] // 2
    return pad(kernels, (more, more, more, more)) if more else kernels


def _option(part: Degradation) -> str:
    return str(part) if isinstance(part, Maybe) else _atom(part)


def _atom(part: Degradation) -> str:
    return f"({part})" if isinstance(part, Chain | Choice | Maybe) else str(part)
