"""How a number is measured: a named object that is printed with every number."""

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from musigma.degradations import Bicubic, Degradation, Noise, parse
from musigma.degradations.pairs import (
    PAIRS,
    Pair,
    make_pair,
    match_pair,
    noise_std_of,
)
from musigma.functional.color import match_channels, quantise, rgb_to_y
from musigma.functional.fidelity import psnr, ssim
from musigma.networks import Network
from musigma.types import ConfigError


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How the inputs of a network are made, and how its results are measured.

    Attributes:
        name: Short name of the convention: ``sr-y`` and ``sr-luma`` for the super-resolution
            tables, ``denoise`` for the denoising tables, ``degraded`` for inputs made in another
            way, ``pairs`` for inputs read from files.
        degradation: How inputs are made from targets; `None` where they are read from files.
        scale: Size of the target over that of the input.
        noise_std: Noise level in 8-bit levels that a network is told if it takes one; `None` where
            it follows from the degradation, or is not known.
        seed: With the name of an image it decides all random numbers of its degradation.
        channels: 3 for color, 1 for gray.
        measured_on: ``"y"``: BT.601 studio-swing luma, not rounded; ``"all"``: every channel;
            ``"both"``: each of the two.
        shave: Pixels cut off each side before measuring.
        rounded: Whether the result is rounded to 8-bit RGB first. Networks that restore luma alone
            were published with their luma as it comes; RGB in 8 bits costs them 0.02 dB.
    """

    name: str
    degradation: Degradation | None
    scale: int
    noise_std: float | None
    seed: int
    channels: int
    measured_on: Literal["y", "all", "both"]
    shave: int
    rounded: bool

    @property
    def inputs(self) -> str:
        """The text form of the degradation, or ``"pairs"``."""
        return PAIRS if self.degradation is None else str(self.degradation)

    def as_json(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        values = {key: getattr(self, key) for key in self.__dataclass_fields__}
        return values | {"degradation": self.inputs, "noise_std": self._noise_levels()}

    def pair(self, image: Tensor, name: str, degraded: Tensor | None = None) -> Pair:
        """Return input and target of an image.

        Args:
            image: The target, ``(1, C, H, W)`` in ``[0, 1]``.
            name: Name of the image, from which its random numbers follow.
            degraded: The input, where it was read from a file.
        """
        image = match_channels(image, self.channels)
        if degraded is not None:
            return match_pair(match_channels(degraded, self.channels), image, scale=self.scale)
        if self.degradation is None:
            raise ConfigError("this protocol measures pairs of files, but the set has targets only")
        return make_pair(self.degradation, image, name=name, seed=self.seed)

    def noise_level(self, network: Network, name: str) -> float | None:
        """Return the noise level that a network is told for an image, `None` if it takes none."""
        if not network.takes_noise_level:
            return None
        if self.noise_std is not None or self.degradation is None:
            return self.noise_std
        return noise_std_of(self.degradation, name=name, seed=self.seed)

    def check(self, network: Network) -> None:
        """Refuse a network that this protocol cannot measure."""
        if network.scale != self.scale:
            raise ConfigError(
                f"the network enlarges by {network.scale}, the protocol {self.name} measures "
                f"enlarging by {self.scale}"
            )
        if network.takes_noise_level and self._noise_levels() is None:
            raise ConfigError(
                f"the network must be told the noise level, which {self.inputs!r} does not say; "
                "give `noise_std`, such as 25"
            )

    def fidelity(self, mean: Tensor, target: Tensor) -> dict[str, float]:
        """Measure a restored image, ``(1, C, H, W)``."""
        # Rounded in the type of the target, so that equal levels are equal numbers.
        shown = (quantise(mean) if self.rounded else mean).double()
        target = target.double()
        values: dict[str, float] = {}
        if self.measured_on in ("y", "both"):
            shown_y, target_y = (rgb_to_y(match_channels(image, 3)) for image in (shown, target))
            values |= self._scores(shown_y, target_y, suffix="_y")
        if self.measured_on in ("all", "both"):
            values |= self._scores(shown, target)
        return values

    def _scores(self, shown: Tensor, target: Tensor, suffix: str = "") -> dict[str, float]:
        return {
            f"psnr{suffix}": float(psnr(shown, target, data_range=1.0, shave=self.shave)),
            f"ssim{suffix}": float(ssim(shown, target, data_range=1.0, shave=self.shave)),
        }

    def _noise_levels(self) -> float | list[float] | None:
        """Return the noise level, or the least and the largest where it is drawn."""
        drawn = self.degradation.white_noise_std if self.degradation else None
        if self.noise_std is not None or drawn is None:
            return self.noise_std
        return drawn.low if drawn.low == drawn.high else [drawn.low, drawn.high]


def super_resolution(scale: int, *, luma_only: bool = False) -> Protocol:
    """Return the protocol of the super-resolution tables.

    Args:
        scale: Zoom factor.
        luma_only: Whether the network restores luma alone.
    """
    if scale < 2:
        raise ConfigError(f"super-resolution needs a scale of 2 or more, got {scale}")
    return Protocol(
        name="sr-luma" if luma_only else "sr-y",
        degradation=Bicubic(scale),
        scale=scale,
        noise_std=None,
        seed=0,
        channels=3,
        measured_on="y",
        shave=scale,
        rounded=not luma_only,
    )


def denoising(noise_std: float, *, channels: int, seed: int = 0) -> Protocol:
    """Return the protocol of the denoising tables.

    Args:
        noise_std: Standard deviation of the white noise in 8-bit levels.
        channels: 3 for color, 1 for gray.
        seed: Another seed gives other noise.
    """
    if not 0 <= noise_std <= 255:
        raise ConfigError(f"the noise level must lie in 0..255 (8-bit levels), got {noise_std}")
    return Protocol(
        name="denoise",
        degradation=Noise(noise_std),
        scale=1,
        noise_std=float(noise_std),
        seed=seed,
        channels=channels,
        measured_on="all",
        shave=0,
        rounded=True,
    )


def restoration(
    degradation: Degradation | None,
    *,
    scale: int,
    channels: int = 3,
    noise_std: float | None = None,
    luma_only: bool = False,
    seed: int = 0,
) -> Protocol:
    """Return the protocol for inputs that no published table has.

    Super-resolution is measured on luma, without a border as wide as the scale. At scale 1 color
    images are measured on luma and on all channels: real photographs are published by the first,
    noise and JPEG by the second.

    Args:
        degradation: How inputs are made; `None` for pairs of files.
        scale: Size of the target over that of the input.
        channels: 3 for color, 1 for gray.
        noise_std: Noise level in 8-bit levels that a network is told if it takes one.
        luma_only: Whether the network restores luma alone.
        seed: Another seed gives other random numbers.
    """
    whole: Literal["all", "both"] = "both" if channels == 3 else "all"
    return Protocol(
        name=PAIRS if degradation is None else "degraded",
        degradation=degradation,
        scale=scale,
        noise_std=noise_std,
        seed=seed,
        channels=channels,
        measured_on="y" if scale > 1 else whole,
        shave=scale if scale > 1 else 0,
        rounded=not luma_only,
    )


def protocol_for(
    network: Network,
    *,
    degradation: str | None = None,
    pairs: bool = False,
    noise_std: float | None = None,
) -> Protocol:
    """Decide by which protocol a network is measured, calibrated and validated.

    Without further wishes a network that enlarges is measured as in the super-resolution tables. A
    network of scale 1 may remove noise, JPEG or blur; so its inputs must be described.

    Args:
        network: The network to be measured.
        degradation: Text form of how inputs are made, such as ``"area | noise(5) | jpeg(75)"``.
        pairs: Whether inputs are read from files.
        noise_std: Noise level in 8-bit levels. Alone it is the level of white noise that is added;
            beside `degradation` or `pairs` it is what the network is told.

    Example:
        >>> from musigma.networks import create
        >>> protocol_for(create("vdsr-y", scale=2)).name
        'sr-luma'
        >>> protocol_for(create("dncnn", scale=1), noise_std=50).inputs
        'noise(50)'
    """
    scale, luma_only = network.scale, network.luma_only
    channels = 3 if scale > 1 else network.out_channels
    if noise_std is not None and scale > 1:
        raise ConfigError("the network enlarges; `noise_std` is for networks of scale 1")
    if pairs or degradation is not None:
        made = None if pairs else parse(degradation or "", scale=scale)
        if isinstance(made, Bicubic):
            return super_resolution(scale, luma_only=luma_only)
        return restoration(
            made, scale=scale, channels=channels, noise_std=noise_std, luma_only=luma_only
        )
    if scale > 1:
        return super_resolution(scale, luma_only=luma_only)
    if noise_std is None:
        raise ConfigError(
            "a network of scale 1 must be told how its inputs are made: give `noise_std` (such as "
            "25) for white noise, `degrade` for anything else, or `low` for pairs of files"
        )
    return denoising(noise_std, channels=channels)
