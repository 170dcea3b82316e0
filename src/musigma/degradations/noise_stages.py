"""Stages that add the noise of a camera."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from musigma.degradations.stage import STDS_IN_RADIUS, Parameter, Stage, as_bool
from musigma.degradations.values import Amount, Value
from musigma.functional.blur import gaussian_kernels
from musigma.functional.sensor_noise import raw_noise, sensor_noise

_GREY = Parameter("grey", 0, 1, default=0, allowed=(0, 1))
_GRAIN = Parameter("grain", 0, 10)
_GRAINS = ("grain", "color_grain")


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
        self.filter_radius = _grain_radius(self.values, "grain")

    @property
    def white_noise_std(self) -> Value | None:
        """The standard deviation, unless the noise is gray, grainy or grows with the light."""
        white = self.values.keys() <= {"std", "grey"} and self.values["grey"].high == 0
        return self.values["std"] if white else None

    def apply(
        self, target: Tensor, drawn: Mapping[str, Tensor], generator: torch.Generator | None
    ) -> Tensor:
        """Add noise of the level of each image."""
        return sensor_noise(
            target,
            std=drawn["std"],
            gain=drawn.get("gain", 0.0),
            grey=as_bool(self.values["grey"], drawn["grey"], 1),
            grain=_grain_kernels(self.values, drawn, "grain"),
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
        self.filter_radius = _grain_radius(self.values, "grain")

    def apply(
        self, target: Tensor, drawn: Mapping[str, Tensor], generator: torch.Generator | None
    ) -> Tensor:
        """Add noise of the gain of each image."""
        return sensor_noise(
            target,
            gain=drawn["gain"],
            grey=as_bool(self.values["grey"], drawn["grey"], 1),
            grain=_grain_kernels(self.values, drawn, "grain"),
            generator=generator,
        )


class RawNoise(Stage):
    """Noise of a camera's sensor whose picture was developed: strong in the dark, and smooth.

    Args:
        gain: Variance over light, both in 8-bit levels of linear light.
        std: Standard deviation of reading out, in 8-bit levels of linear light.
        grain: As that of `Noise`: smoothing inside the camera, beside that of demosaicing.
        color: Factor of the noise of the color differences.
        color_grain: As `grain`, of the noise of the color differences alone, which cameras smooth
            more than that of the luma.

    Example:
        >>> str(RawNoise((0.05, 2), std=0.5))
        'raw(0.05..2, std=0.5)'
    """

    name = "raw"
    parameters = (
        Parameter("gain", 0, 255, required=True),
        Parameter("std", 0, 255, default=0),
        _GRAIN,
        Parameter("color", 0, 10),
        Parameter("color_grain", 0, 10),
    )

    def __init__(
        self,
        gain: Amount,
        *,
        std: Amount = 0,
        grain: Amount | None = None,
        color: Amount | None = None,
        color_grain: Amount | None = None,
    ) -> None:
        super().__init__(gain=gain, std=std, grain=grain, color=color, color_grain=color_grain)
        # Demosaicing looks at the next pixel; what follows on smooths its result.
        self.filter_radius = 1 + sum(_grain_radius(self.values, name) for name in _GRAINS)

    def apply(
        self, target: Tensor, drawn: Mapping[str, Tensor], generator: torch.Generator | None
    ) -> Tensor:
        """Add noise of the gain of each image."""
        return raw_noise(
            target,
            gain=drawn["gain"],
            std=drawn["std"],
            grain=_grain_kernels(self.values, drawn, "grain"),
            color=drawn.get("color", 1.0),
            color_grain=_grain_kernels(self.values, drawn, "color_grain"),
            generator=generator,
        )


def _grain_radius(values: Mapping[str, Value], name: str) -> int:
    return math.ceil(STDS_IN_RADIUS * values[name].high) if name in values else 0


def _grain_kernels(
    values: Mapping[str, Value], drawn: Mapping[str, Tensor], name: str
) -> Tensor | None:
    if name not in drawn:
        return None
    return gaussian_kernels(drawn[name], radius=_grain_radius(values, name))
