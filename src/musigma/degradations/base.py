"""What every degradation is: a function from targets to inputs, and what it needs."""

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from musigma.degradations.values import Value


class TrainingPair(NamedTuple):
    """What a network learns from.

    Attributes:
        degraded: Its input, ``(N, C, H / scale, W / scale)``.
        target: What it should return, ``(N, C, H, W)``.
        counted: 1 where the loss counts and 0 elsewhere, as the target; `None` for everywhere.
    """

    degraded: Tensor
    target: Tensor
    counted: Tensor | None = None


class Degradation(ABC):
    """How the input of a network is made from its target.

    A degradation holds settings alone, no state. It is built from tensor operations whose order
    does not depend on values, so that it can be compiled and captured in a CUDA graph.

    Attributes:
        scale: Size of the target over that of the input.
        num_draws: How many uniform random numbers per image decide its parameters.
        filter_radius: How many pixels of the target beyond its own a pixel of the input depends on
            by filters.
        block: Side of the squares of the target that are best not cut, from its upper left corner
            on: those from which JPEG makes a block. 1 where there are none.
        grid: Patches of the target begin at multiples of it.
    """

    scale: int = 1
    num_draws: int = 0
    filter_radius: int = 0
    block: int = 1
    grid: int = 1

    @abstractmethod
    def __call__(
        self, target: Tensor, draws: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Make inputs from targets.

        Args:
            target: ``(N, C, H, W)``, float in ``[0, 1]``; both sides are multiples of `scale`.
            draws: ``(N, num_draws)``, uniform in ``[0, 1)``. They decide all random parameters, so
                that an image with the same draws gets the same ones in any batch.
            generator: Draws the noise, and nothing else. The global one of the target's device
                where left out, which alone can be compiled.

        Returns:
            ``(N, C, H / scale, W / scale)``.
        """

    @property
    def margin(self) -> int:
        """How many pixels of the target around a patch are to be cut with it.

        As many as its filters need, rounded up to whole pixels of the input and to whole blocks of
        JPEG; with JPEG at least one block. So the borders of a patch are not those of a picture:
        its blocks are complete, and what lies in it depends on nothing that was cut off. A color
        block of 4:2:0 may reach further than that; it is then filled as at the border of a picture.
        """
        whole = math.lcm(self.block, self.scale)
        least = max(self.filter_radius, int(self.block > 1))
        return -(-least // whole) * whole

    def target_of(self, stored: Tensor) -> Tensor:
        """Return the target in what a patch bank stores, ``(N, C, H, W)``: by default all of it."""
        return stored

    def training_pair(self, stored: Tensor, draws: Tensor) -> TrainingPair:
        """Return input and target of what a patch bank stores, for one step of training.

        Args:
            stored: ``(N, C, H, W)``, float in ``[0, 1]``.
            draws: As those of a call.
        """
        return TrainingPair(self(stored, draws), self.target_of(stored))

    @property
    def white_noise_std(self) -> Value | None:
        """Level of the noise in 8-bit levels, where white noise is all it adds; else `None`.

        Example:
            >>> from musigma.degradations import parse
            >>> str(parse("noise(0..50)").white_noise_std), parse("jpeg(75)").white_noise_std
            ('0..50', None)
        """
        return None

    def noise_level(self, draws: Tensor) -> Tensor | None:
        """Return the level of white noise of each image, ``(N,)``, or `None` as above."""
        std = self.white_noise_std
        return None if std is None else std.draw(draws)

    def kernels(self, draws: Tensor) -> Tensor | None:  # noqa: ARG002
        """Return the kernels of a degradation that is a convolution and nothing else.

        They are ``(N, k, k)`` with ``k = 2 filter_radius + 1``, or `None` for all others.
        """
        return None

    @abstractmethod
    def __str__(self) -> str:
        """The text form, which `parse` reads."""

    def __repr__(self) -> str:
        """The text form and the scale, as `parse` takes them."""
        return f"parse({str(self)!r}, scale={self.scale})"

    def __eq__(self, other: object) -> bool:
        """Whether both do the same in the same way."""
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        """Equal degradations have equal texts."""
        return hash((str(self), self.scale))
