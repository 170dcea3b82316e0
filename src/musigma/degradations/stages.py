"""The stages that a chain is made of: blur, shrinking, noise, JPEG, rounding."""

import math
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from musigma.degradations.base import Degradation
from musigma.degradations.values import OneOf, Range, Value, as_value
from musigma.functional import blur as blurs
from musigma.functional import shrink as shrinks
from musigma.functional.color import quantise
from musigma.functional.jpeg import BLOCK, jpeg
from musigma.functional.resize import bicubic_down
from musigma.functional.sensor_noise import gaussian_noise, poisson_noise
from musigma.types import ConfigError

Amount = float | tuple[float, float] | Value
"""A number, the two limits of a range to draw it from, or a value."""

STDS_IN_RADIUS = 3
"""A Gaussian kernel is cut off at so many standard deviations, the largest that may be drawn."""


class Parameter(NamedTuple):
    """What a stage can be told.

    Attributes:
        name: As in the text form.
        low: The least it may be.
        high: The most it may be.
        default: What it is where it is left out; ``None`` where a stage does without.
        required: Whether it must be given.
        allowed: The only numbers it may be, if not all between the limits.
    """

    name: str
    low: float
    high: float
    default: float | None = None
    required: bool = False
    allowed: tuple[float, ...] = ()


class Stage(Degradation):
    """A degradation with a name and parameters.

    Attributes:
        name: As in the text form.
        parameters: What it can be told, in order.
        values: What it was told, and the defaults.
    """

    name: ClassVar[str]
    parameters: ClassVar[tuple[Parameter, ...]] = ()

    def __init__(self, **amounts: Amount | None) -> None:
        self.values: dict[str, Value] = {}
        for parameter in self.parameters:
            amount = amounts[parameter.name]
            if amount is not None:
                self.values[parameter.name] = _checked(self.name, parameter, as_value(amount))
        self.num_draws = sum(value.num_draws for value in self.values.values())

    def drawn(self, draws: Tensor) -> dict[str, Tensor]:
        """Return each parameter that is set, ``(N,)``."""
        result, first = {}, 0
        for name, value in self.values.items():
            result[name] = value.draw(draws[:, first : first + value.num_draws])
            first += value.num_draws
        return result

    def __str__(self) -> str:
        """As in the text form: the first parameter, then those that are not as by default."""
        told = [
            str(value) if parameter.required else f"{parameter.name}={value}"
            for parameter in self.parameters
            if (value := self.values.get(parameter.name)) is not None
            and value != _default_value(parameter)
        ]
        return f"{self.name}({', '.join(told)})" if told else self.name


class Blur(Stage):
    """Convolution with a Gaussian, of one width or of two at an angle.

    Args:
        std: Standard deviation in pixels of where the stage stands: those of the target before
            shrinking, those of the input after it.
        across: Standard deviation at a right angle to the first; the same where left out.
        angle: Of the first, in degrees.

    Example:
        >>> str(Blur((0.5, 2), across=0.6, angle=(0, 180)))
        'blur(0.5..2, across=0.6, angle=0..180)'
        >>> Blur(1.2)(torch.rand(1, 3, 12, 10), torch.rand(1, 0)).shape
        torch.Size([1, 3, 12, 10])
    """

    name = "blur"
    parameters = (
        Parameter("std", 0, 100, required=True),
        Parameter("across", 0, 100),
        Parameter("angle", -360, 360),
    )

    def __init__(
        self, std: Amount, *, across: Amount | None = None, angle: Amount | None = None
    ) -> None:
        if (across is None) != (angle is None):
            raise ConfigError("a blur of two widths needs both across and angle")
        super().__init__(std=std, across=across, angle=angle)
        widest = max(self.values[name].high for name in ("std", "across") if name in self.values)
        self.filter_radius = math.ceil(STDS_IN_RADIUS * widest)

    @property
    def is_blur(self) -> bool:
        """It is."""
        return True

    def kernels(self, draws: Tensor) -> Tensor:
        """Return a kernel per image."""
        drawn = self.drawn(draws)
        return blurs.gaussian_kernels(
            drawn["std"],
            across=drawn.get("across"),
            angle=drawn.get("angle"),
            radius=self.filter_radius,
        )

    def __call__(
        self, target: Tensor, draws: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Blur each image with its kernel."""
        return blurs.blur(target, self.kernels(draws))


class MotionBlur(Stage):
    """Blur by a camera that moved straight during the exposure.

    Args:
        length: Of the way, in pixels.
        angle: Of the way, in degrees.

    Example:
        >>> str(MotionBlur((1, 5), angle=(0, 180)))
        'motion(1..5, angle=0..180)'
    """

    name = "motion"
    parameters = (
        Parameter("length", 0, 100, required=True),
        Parameter("angle", -360, 360, default=0),
    )

    def __init__(self, length: Amount, *, angle: Amount = 0) -> None:
        super().__init__(length=length, angle=angle)
        self.filter_radius = math.ceil(self.values["length"].high / 2)

    @property
    def is_blur(self) -> bool:
        """It is."""
        return True

    def kernels(self, draws: Tensor) -> Tensor:
        """Return a kernel per image."""
        drawn = self.drawn(draws)
        return blurs.motion_kernels(
            drawn["length"], angle=drawn["angle"], radius=self.filter_radius
        )

    def __call__(
        self, target: Tensor, draws: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Blur each image with its kernel."""
        return blurs.blur(target, self.kernels(draws))


class Shrink(Degradation):
    """Shrinking by one of the ways of `musigma.functional.shrink`, in float, not rounded.

    Args:
        method: Name of the way, which is also the text form.
        scale: How many times smaller the result is.

    Example:
        >>> area = Shrink("area", 2)
        >>> str(area), area(torch.rand(1, 3, 12, 10), torch.rand(1, 0)).shape
        ('area', torch.Size([1, 3, 6, 5]))
    """

    def __init__(self, method: str, scale: int) -> None:
        self.method, self.scale = method, scale
        self.filter_radius = shrinks.filter_radius(method, scale)

    def __call__(
        self, target: Tensor, draws: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Shrink all images alike."""
        rows, columns = (
            shrinks.shrink_matrices((self.method,), side, self.scale, target.device)[0]
            for side in target.shape[-2:]
        )
        return shrinks.shrink(target, rows.to(target.dtype), columns.to(target.dtype))

    def __str__(self) -> str:
        """The name of the way."""
        return self.method


class Bicubic(Degradation):
    """The published benchmark input, bit for bit: MATLAB's imresize in 8 bits, `bicubic_down`.

    Args:
        scale: How many times smaller the result is.

    Example:
        >>> Bicubic(2)(torch.rand(1, 3, 12, 10), torch.rand(1, 0)).shape
        torch.Size([1, 3, 6, 5])
    """

    def __init__(self, scale: int) -> None:
        self.scale = scale
        self.filter_radius = shrinks.filter_radius("bicubic", scale)

    def __call__(
        self, target: Tensor, draws: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Shrink all images alike."""
        return bicubic_down(target, self.scale)

    def __str__(self) -> str:
        """The text that gives it where it is all there is."""
        return "bicubic"


class Noise(Stage):
    """Gaussian noise of one level all over an image, not clipped.

    Args:
        std: Standard deviation in 8-bit levels.
        grey: 1 where all channels get the same noise, 0 where each has its own.

    Example:
        >>> str(Noise((0.5, 15), grey=1))
        'noise(0.5..15, grey=1)'
    """

    name = "noise"
    parameters = (
        Parameter("std", 0, 255, required=True),
        Parameter("grey", 0, 1, default=0, allowed=(0, 1)),
    )

    def __init__(self, std: Amount, *, grey: Amount = 0) -> None:
        super().__init__(std=std, grey=grey)

    def __call__(
        self, target: Tensor, draws: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Add noise of the level of each image."""
        drawn = self.drawn(draws)
        grey = _as_bool(self.values["grey"], drawn["grey"], 1)
        return gaussian_noise(target, std=drawn["std"], grey=grey, generator=generator)


class PoissonNoise(Stage):
    """Noise whose variance grows with the signal, not clipped.

    Args:
        gain: Variance over signal, both in 8-bit levels.
        grey: As that of `Noise`.

    Example:
        >>> str(PoissonNoise(0.5))
        'poisson(0.5)'
    """

    name = "poisson"
    parameters = (
        Parameter("gain", 0, 255, required=True),
        Parameter("grey", 0, 1, default=0, allowed=(0, 1)),
    )

    def __init__(self, gain: Amount, *, grey: Amount = 0) -> None:
        super().__init__(gain=gain, grey=grey)

    def __call__(
        self, target: Tensor, draws: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Add noise of the gain of each image."""
        drawn = self.drawn(draws)
        grey = _as_bool(self.values["grey"], drawn["grey"], 1)
        return poisson_noise(target, gain=drawn["gain"], grey=grey, generator=generator)


class Jpeg(Stage):
    """Saving as JPEG and reading again; the result is on 8-bit levels.

    Args:
        quality: libjpeg's, 1 to 100; drawn numbers are rounded.
        subsampling: 420 where the colour planes are stored at half the size, 444 where in full.

    Example:
        >>> str(Jpeg((30, 95), subsampling=444))
        'jpeg(30..95, subsampling=444)'
    """

    name = "jpeg"
    parameters = (
        Parameter("quality", 1, 100, required=True),
        Parameter("subsampling", 420, 444, default=420, allowed=(420, 444)),
    )
    block = BLOCK

    def __init__(self, quality: Amount, *, subsampling: Amount = 420) -> None:
        super().__init__(quality=quality, subsampling=subsampling)

    def __call__(
        self, target: Tensor, draws: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Code each image with its quality."""
        drawn = self.drawn(draws)
        half = _as_bool(self.values["subsampling"], drawn["subsampling"], 420)
        return jpeg(target, quality=drawn["quality"], subsampling=half)


class Round(Stage):
    """Clipping to ``[0, 1]`` and rounding to 8-bit levels, as a file does it.

    Example:
        >>> Round()(torch.tensor([[[[0.3, 1.2]]]]), torch.rand(1, 0)) * 255
        tensor([[[[ 77., 255.]]]])
    """

    name = "round"

    def __init__(self) -> None:
        super().__init__()

    def __call__(
        self, target: Tensor, draws: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Round all images alike."""
        return quantise(target)


STAGES: dict[str, type[Stage]] = {
    stage.name: stage for stage in (Blur, MotionBlur, Noise, PoissonNoise, Jpeg, Round)
}
"""Stages by the name in the text form; ways of shrinking have their own."""


def _checked(stage: str, parameter: Parameter, value: Value) -> Value:
    if parameter.allowed:
        numbers = value.numbers if isinstance(value, OneOf) else (value.low, value.high)
        if value.num_draws and isinstance(value, Range) or not {*numbers} <= {*parameter.allowed}:
            allowed = " or ".join(f"{number:g}" for number in parameter.allowed)
            raise ConfigError(f"{stage}: {parameter.name} is {allowed}, not {value}")
    if value.low < parameter.low or value.high > parameter.high:
        limits = f"between {parameter.low:g} and {parameter.high:g}"
        raise ConfigError(f"{stage}: {parameter.name} lies {limits}, not at {value}")
    return value


def _default_value(parameter: Parameter) -> Value | None:
    return None if parameter.default is None else as_value(parameter.default)


def _as_bool(value: Value, drawn: Tensor, yes: float) -> bool | Tensor:
    # Where it is the same for all images, half of the work need not be done.
    return value.low == yes if value.low == value.high else drawn == yes
