"""How a number is measured: a named object that is printed with every number."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from torch import Tensor

from musigma.datasets.degradation import Pair, downscale_pair
from musigma.functional.color import match_channels, quantise, rgb_to_y
from musigma.functional.fidelity import psnr, ssim
from musigma.functional.noise import add_noise, image_generator
from musigma.networks import Network
from musigma.types import ConfigError


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """What is done to an image before a network sees it, and how the result is measured.

    Attributes:
        name: Short name of the convention.
        degradation: How the input is made from the target.
        scale: Zoom factor; 1 for denoising.
        noise_std: Standard deviation of the noise in 8-bit levels.
        noise_seed: Seed from which, with the image's name, its noise is drawn.
        channels: 3 for colour, 1 for grey; 0 for as the file is.
        measured_on: ``"y"``: BT.601 studio-swing luma, not rounded; ``"all"``: every channel.
        shave: Pixels cut off each side before measuring.
        rounded: Whether the result is rounded to 8-bit RGB first. Networks that restore luma alone
            were published with their luma as it comes; RGB in 8 bits costs them 0.02 dB.
    """

    name: str
    degradation: str
    scale: int
    noise_std: float
    noise_seed: int
    channels: int
    measured_on: Literal["y", "all"]
    shave: int
    rounded: bool

    def as_json(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)

    def pair(self, image: Tensor, name: str) -> Pair:
        """Make input and target from an image ``(1, C, H, W)`` in ``[0, 1]``."""
        image = match_channels(image, self.channels) if self.channels else image
        if self.scale > 1:
            return downscale_pair(image, self.scale)
        generator = image_generator(name, self.noise_seed)
        return Pair(add_noise(image, noise_std=self.noise_std, generator=generator), image)

    def noise_level(self, network: Network) -> float | None:
        """Return the noise level that a network is told, or `None` where it takes none."""
        return self.noise_std if network.takes_noise_level else None

    def fidelity(self, mean: Tensor, target: Tensor) -> dict[str, float]:
        """Measure a restored image, ``(1, C, H, W)``."""
        # Rounded in the type of the target, so that equal levels are equal numbers.
        shown = (quantise(mean) if self.rounded else mean).double()
        target = target.double()
        if self.measured_on == "y":
            shown, target = (rgb_to_y(match_channels(image, 3)) for image in (shown, target))
        suffix = "_y" if self.measured_on == "y" else ""
        return {
            f"psnr{suffix}": float(psnr(shown, target, data_range=1.0, shave=self.shave)),
            f"ssim{suffix}": float(ssim(shown, target, data_range=1.0, shave=self.shave)),
        }


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
        degradation="MATLAB imresize bicubic, 8 bits after each pass; HR cropped to a multiple",
        scale=scale,
        noise_std=0.0,
        noise_seed=0,
        channels=3,
        measured_on="y",
        shave=scale,
        rounded=not luma_only,
    )


def denoising(noise_std: float, *, channels: int, seed: int = 0) -> Protocol:
    """Return the protocol of the denoising tables."""
    if not 0 <= noise_std <= 255:
        raise ConfigError(f"the noise level must lie in 0..255 (8-bit levels), got {noise_std}")
    return Protocol(
        name="denoise",
        degradation="additive white Gaussian noise, not clipped, drawn once per image by name",
        scale=1,
        noise_std=noise_std,
        noise_seed=seed,
        channels=channels,
        measured_on="all",
        shave=0,
        rounded=True,
    )
