"""The contract of every network: features, the mean made from them, and the facts tiling needs."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from musigma.types import Prediction

RGB_MEAN = (0.4488, 0.4371, 0.4040)
"""Mean colour of DIV2K, which EDSR and its descendants subtract."""


Settings = dict[str, Any]


@dataclass(frozen=True)
class BuildSpec:
    """Everything needed to build a network again: its name, scale and settings."""

    name: str
    scale: int
    settings: Settings = field(default_factory=dict)


_FACTS = (
    *("build_spec", "scale", "in_channels", "out_channels", "feature_channels", "feature_scale"),
    *("feature_receptive_radius", "receptive_radius", "size_multiple", "luma_only"),
    *("activation_floats_per_pixel", "fixed_activation_floats", "takes_noise_level"),
)


class Network(nn.Module, ABC):
    """A network that restores an image in two steps, so that a sigma branch can share the first.

    A subclass sets the attributes below and writes `features` and `reconstruct`. Inputs are
    ``(N, in_channels, H, W)`` in ``[0, 1]``; the mean is ``(N, out_channels, scale H, scale W)``.

    Attributes:
        scale: Zoom factor; 1 for denoising.
        in_channels: Channels of the input, the noise map included where there is one.
        out_channels: Channels of the mean.
        feature_channels: Channels of the last trunk features.
        feature_scale: Size of the mean over the size of the features.
        feature_receptive_radius: How many input pixels away a feature can see; ``None`` for the
            whole image.
        receptive_radius: The same for the mean.
        size_multiple: Origins of exact tiles must be multiples of this.
        luma_only: Whether it restores luma alone, and is measured on luma that was never RGB.
        activation_floats_per_pixel: How many values it holds for each input pixel at the widest
            moment, where they are more than its features let one expect; measured.
        fixed_activation_floats: The same for what does not grow with the image, such as all pairs
            of pixels that are compared at once.
        takes_noise_level: Whether the last input channel is a map of the noise level.
        has_sigma: Whether it predicts its error.
        build_spec: How `create` built it; what a weights file stores.
    """

    scale: int
    in_channels: int = 3
    out_channels: int = 3
    feature_channels: int
    feature_scale: int
    feature_receptive_radius: int | None
    receptive_radius: int | None
    size_multiple: int = 1
    luma_only: bool = False
    activation_floats_per_pixel: int = 0
    fixed_activation_floats: int = 0
    takes_noise_level: bool = False
    has_sigma: bool = False
    build_spec: BuildSpec

    def take_facts(self, base: "Network") -> None:
        """Take over what is true of a network that this one is built around; not `has_sigma`."""
        for name in _FACTS:
            setattr(self, name, getattr(base, name))

    @abstractmethod
    def features(self, degraded: Tensor) -> Tensor:
        """Return the last trunk features, ``(N, feature_channels, h, w)``."""

    @abstractmethod
    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Return the mean made from the features and, where the network adds to it, the input."""

    def forward(self, degraded: Tensor) -> Prediction:
        """Restore a batch of images."""
        return Prediction(self.reconstruct(self.features(degraded), degraded))


class MeanShift(nn.Module):
    """Maps images in ``[0, 1]`` to the zero-mean range a network works in, and back.

    The mean colour is no weight: released files that carry it as a 1x1 convolution load without it,
    and parameters and MACs are those that papers count.
    """

    mean: Tensor

    def __init__(self, *, value_range: float, mean: tuple[float, ...] = RGB_MEAN) -> None:
        super().__init__()
        self.value_range = value_range
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1), persistent=False)

    def forward(self, image: Tensor) -> Tensor:
        """Subtract the mean colour and stretch to the network's range."""
        return (image - self.mean.to(image.dtype)) * self.value_range

    def inverse(self, image: Tensor) -> Tensor:
        """Undo `forward`."""
        return image / self.value_range + self.mean.to(image.dtype)


def conv3x3(in_channels: int, out_channels: int, *, bias: bool = True) -> nn.Conv2d:
    """A 3x3 convolution that keeps the size."""
    return nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=bias)
