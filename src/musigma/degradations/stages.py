"""The stages that a chain is made of: blur, shrinking, noise, JPEG, rounding."""

import math
from abc import abstractmethod
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from musigma.degradations.base import Degradation
from musigma.degradations.values import Amount, Value, as_value, numbers_of
from musigma.functional import blur as blurs
from musigma.functional import shrink as shrinks
from musigma.functional.color import quantise, to_uint8
from musigma.functional.jpeg import BLOCK, jpeg
from musigma.functional.resize import bicubic_down
from musigma.functional.sensor_noise import raw_noise, sensor_noise
from musigma.types import ConfigError

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


class _BlurStage(Stage):
    @abstractmethod
    def kernels(self, draws: Tensor) -> Tensor:
        """Return a kernel per image."""

    def __call__(
        self,
        target: Tensor,
        draws: Tensor,
        generator: torch.Generator | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Blur each image with its kernel."""
        return blurs.blur(target, self.kernels(draws))


class Blur(_BlurStage):
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

    def kernels(self, draws: Tensor) -> Tensor:
        """Return a kernel per image."""
        drawn = self.drawn(draws)
        return blurs.gaussian_kernels(
            drawn["std"],
            across=drawn.get("across"),
            angle=drawn.get("angle"),
            radius=self.filter_radius,
        )


class MotionBlur(_BlurStage):
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

    def kernels(self, draws: Tensor) -> Tensor:
        """Return a kernel per image."""
        drawn = self.drawn(draws)
        return blurs.motion_kernels(
            drawn["length"], angle=drawn["angle"], radius=self.filter_radius
        )


class Sharpen(Stage):
    """Unsharp masking, as cameras and programs do it: the image plus a part of what blur takes.

    Args:
        amount: How much of the difference to the blurred image is added; 1 is strong.
        std: Standard deviation of the Gaussian blur, in pixels.

    Example:
        >>> str(Sharpen((0.2, 1.5), std=0.8))
        'sharpen(0.2..1.5, std=0.8)'
    """

    name = "sharpen"
    parameters = (
        Parameter("amount", 0, 10, required=True),
        Parameter("std", 0, 10, default=1),
    )

    def __init__(self, amount: Amount, *, std: Amount = 1) -> None:
        super().__init__(amount=amount, std=std)
        self.filter_radius = math.ceil(STDS_IN_RADIUS * self.values["std"].high)

    def __call__(
        self,
        target: Tensor,
        draws: Tensor,
        generator: torch.Generator | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Sharpen each image by its amount."""
        drawn = self.drawn(draws)
        kernels = blurs.gaussian_kernels(drawn["std"], radius=self.filter_radius)
        detail = target - blurs.blur(target, kernels)
        return target + drawn["amount"].to(target).view(-1, 1, 1, 1) * detail


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
        self,
        target: Tensor,
        draws: Tensor,  # noqa: ARG002
        generator: torch.Generator | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Shrink all images alike."""
        device, dtype = target.device, target.dtype
        rows, columns = (
            shrinks.shrink_matrices((self.method,), side, self.scale, device, dtype)[0]
            for side in target.shape[-2:]
        )
        return shrinks.shrink(target, rows, columns)

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
        self,
        target: Tensor,
        draws: Tensor,  # noqa: ARG002
        generator: torch.Generator | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Shrink all images alike."""
        if torch.compiler.is_compiling():
            return _bicubic_by_matrices(target, self.scale)
        return bicubic_down(target, self.scale)

    def __str__(self) -> str:
        """The text that gives it where it is all there is."""
        return "bicubic"


_GREY = Parameter("grey", 0, 1, default=0, allowed=(0, 1))
_GRAIN = Parameter("grain", 0, 10)


class Noise(Stage):
    """Gaussian noise, not clipped: of one level all over an image, and growing with the light.

    Args:
        std: Standard deviation in 8-bit levels.
        gain: Variance that comes with the signal, over the signal, both in 8-bit levels.
        grey: 1 where all channels get the same noise, 0 where each has its own.
        grain: Standard deviation, in pixels, of a Gaussian by which the noise is smoothed, its
            level staying the same, as demosaicing does it. White where left out.

    Example:
        >>> str(Noise((0.5, 15), gain=0.1, grey=1))
        'noise(0.5..15, gain=0.1, grey=1)'
    """

    name = "noise"
    parameters = (
        Parameter("std", 0, 255, required=True),
        Parameter("gain", 0, 255),
        _GREY,
        _GRAIN,
    )

    def __init__(
        self,
        std: Amount,
        *,
        gain: Amount | None = None,
        grey: Amount = 0,
        grain: Amount | None = None,
    ) -> None:
        super().__init__(std=std, gain=gain, grey=grey, grain=grain)
        self.filter_radius = _grain_radius(self.values)

    @property
    def white_noise_std(self) -> Value | None:
        """The standard deviation, unless the noise is grey, grainy or grows with the light."""
        white = self.values.keys() <= {"std", "grey"} and self.values["grey"].high == 0
        return self.values["std"] if white else None

    def __call__(
        self, target: Tensor, draws: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Add noise of the level of each image."""
        drawn = self.drawn(draws)
        return sensor_noise(
            target,
            std=drawn["std"],
            gain=drawn.get("gain", 0.0),
            grey=_as_bool(self.values["grey"], drawn["grey"], 1),
            grain=_grain_kernels(drawn, self.filter_radius),
            generator=generator,
        )


class PoissonNoise(Stage):
    """Noise of counted light alone: its variance grows with the signal; not clipped.

    Args:
        gain: Variance over signal, both in 8-bit levels.
        grey: As that of `Noise`.
        grain: As that of `Noise`.

    Example:
        >>> str(PoissonNoise(0.5))
        'poisson(0.5)'
    """

    name = "poisson"
    parameters = (Parameter("gain", 0, 255, required=True), _GREY, _GRAIN)

    def __init__(self, gain: Amount, *, grey: Amount = 0, grain: Amount | None = None) -> None:
        super().__init__(gain=gain, grey=grey, grain=grain)
        self.filter_radius = _grain_radius(self.values)

    def __call__(
        self, target: Tensor, draws: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Add noise of the gain of each image."""
        drawn = self.drawn(draws)
        return sensor_noise(
            target,
            gain=drawn["gain"],
            grey=_as_bool(self.values["grey"], drawn["grey"], 1),
            grain=_grain_kernels(drawn, self.filter_radius),
            generator=generator,
        )


class RawNoise(Stage):
    """Noise of a camera's sensor whose picture was developed: strong in the dark, and smooth.

    Args:
        gain: Variance over light, both in 8-bit levels of linear light.
        std: Standard deviation of reading out, in 8-bit levels of linear light.
        grain: As that of `Noise`: smoothing inside the camera, beside that of demosaicing.

    Example:
        >>> str(RawNoise((0.05, 2), std=0.5))
        'raw(0.05..2, std=0.5)'
    """

    name = "raw"
    parameters = (
        Parameter("gain", 0, 255, required=True),
        Parameter("std", 0, 255, default=0),
        _GRAIN,
    )

    def __init__(self, gain: Amount, *, std: Amount = 0, grain: Amount | None = None) -> None:
        super().__init__(gain=gain, std=std, grain=grain)
        # Demosaicing looks at the next pixel; what follows on smooths its result.
        self.filter_radius = 1 + _grain_radius(self.values)

    def __call__(
        self, target: Tensor, draws: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Add noise of the gain of each image."""
        drawn = self.drawn(draws)
        return raw_noise(
            target,
            gain=drawn["gain"],
            std=drawn["std"],
            grain=_grain_kernels(drawn, _grain_radius(self.values)),
            generator=generator,
        )


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
        self,
        target: Tensor,
        draws: Tensor,
        generator: torch.Generator | None = None,  # noqa: ARG002
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
        self,
        target: Tensor,
        draws: Tensor,  # noqa: ARG002
        generator: torch.Generator | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Round all images alike."""
        return quantise(target)


STAGES: dict[str, type[Stage]] = {
    stage.name: stage
    for stage in (Blur, MotionBlur, Sharpen, Noise, PoissonNoise, RawNoise, Jpeg, Round)
}
"""Stages by the name in the text form; ways of shrinking have their own."""


def _checked(stage: str, parameter: Parameter, value: Value) -> Value:
    if parameter.allowed:
        numbers = numbers_of(value)
        if not numbers or not {*numbers} <= {*parameter.allowed}:
            allowed = " or ".join(f"{number:g}" for number in parameter.allowed)
            raise ConfigError(f"{stage}: {parameter.name} is {allowed}, not {value}")
    if value.low < parameter.low or value.high > parameter.high:
        limits = f"between {parameter.low:g} and {parameter.high:g}"
        raise ConfigError(f"{stage}: {parameter.name} lies {limits}, not at {value}")
    return value


def _default_value(parameter: Parameter) -> Value | None:
    return None if parameter.default is None else as_value(parameter.default)


def _grain_radius(values: dict[str, Value]) -> int:
    return math.ceil(STDS_IN_RADIUS * values["grain"].high) if "grain" in values else 0


def _grain_kernels(drawn: dict[str, Tensor], radius: int) -> Tensor | None:
    return blurs.gaussian_kernels(drawn["grain"], radius=radius) if "grain" in drawn else None


def _bicubic_by_matrices(image: Tensor, scale: int) -> Tensor:
    """Do to the bit what `bicubic_down` does, of which a compiler cannot trace the weights."""
    device, dtype = image.device, torch.float64
    rows, columns = (
        shrinks.shrink_matrices(("bicubic",), side, scale, device, dtype)[0]
        for side in image.shape[-2:]
    )
    work = (rows @ to_uint8(image).to(dtype) + 0.5).floor().clamp(0, 255)
    work = (work @ columns.T + 0.5).floor().clamp(0, 255)
    return work.to(image.dtype) / 255


def _as_bool(value: Value, drawn: Tensor, yes: float) -> bool | Tensor:
    # Where it is the same for all images, half of the work need not be done.
    return value.low == yes if value.low == value.high else drawn == yes
